//! The light text detector leaves the bibs of the reference as they are and spares the text detector passes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use photofinish_kernels::image::frame::Picture;
use photofinish_models::factory::ZooModels;
use photofinish_models::onnx::runtime::{Backend, Precision};
use photofinish_models::onnx::session::{Items, Network, Workload};
use photofinish_models::reading::{self, TorsoPassKind};
use photofinish_models::traits::{
    BibPattern, BibReader, BibText, FaceBox, FaceDetector, ModelFactory, ReadRequest,
};
use photofinish_models::tuning::PrecisionChoice;
use photofinish_zoo::{ModelRole, ModelSet};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};

use crate::environment::{TestEnvironment, shared_environment};
use crate::pictures::ReferencePicture;
use crate::steps::read_in_turn;
use crate::{LONG_SIDE, find_model, load_yunet};

/// Counts the torsos that the text detector's first pass looks at: one in each step of a photo on a processor.
#[derive(Clone, Default)]
struct FirstPasses(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for FirstPasses {
    fn on_new_span(&self, span: &tracing::span::Attributes<'_>, _: &tracing::span::Id, _: Context<'_, S>) {
        if span.metadata().name() == "first_pass" {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn load_reader(
    environment: &TestEnvironment,
    precision: Precision,
    has_light_pass: bool,
) -> Option<Box<dyn BibReader>> {
    let detector = environment.model_file("pp_ocrv4_det_factored.onnx")?;
    let runtime = Arc::new(environment.runtime.on_device(0));
    let networks = ZooModels::open(runtime, detector.parent().unwrap().to_owned()).unwrap();
    let networks = networks.with_light_pass(has_light_pass);
    let networks = networks.with_precision(PrecisionChoice::Always(precision), None).unwrap();
    Some(networks.create_bib_reader().unwrap())
}

/// Reads in steps, and at once, which must give the same. Returns the accepted bibs, and how many torsos the text detector
/// looked at.
fn read(reader: &mut dyn BibReader, picture: &Picture, faces: &[FaceBox]) -> (Vec<String>, usize) {
    let pattern = BibPattern::new("[A-Z]{0,2}[0-9]{2,5}[A-Z]?").unwrap();
    let request = ReadRequest { frame: picture.frame(), faces, pattern: &pattern };
    let passes = FirstPasses::default();
    let subscriber = Registry::default().with(passes.clone());
    let texts =
        tracing::subscriber::with_default(subscriber, || read_in_turn(reader, &[request]).0.remove(0));
    assert_eq!(texts, reader.read(&[request]).unwrap().remove(0));
    let is_accepted = |text: &BibText| text.is_bib && text.confidence >= 0.9;
    let accepted = texts.into_iter().filter(is_accepted).map(|text| text.text).collect();
    (accepted, passes.0.load(Ordering::Relaxed))
}

#[test]
fn the_light_pass_reads_the_same_bibs_with_fewer_passes_of_the_text_detector() {
    let Some(environment) = shared_environment() else { return };
    let Some(mut detector) = load_yunet(environment) else { return };
    let computes_integers = environment.computes_integers("the light text detector with 8-bit integers");
    let precisions = [Precision::F32].into_iter().chain(computes_integers.then_some(Precision::Int8));
    for precision in precisions {
        let load = |has_light_pass| load_reader(environment, precision, has_light_pass);
        let (Some(mut light), Some(mut plain)) = (load(true), load(false)) else { return };
        let (mut with, mut without) = (0, 0);
        for picture in ReferencePicture::load_all(&environment.reference) {
            let faces = detector.detect(&[picture.pixels.frame()], LONG_SIDE).unwrap().remove(0);
            let (bibs, passes) = read(light.as_mut(), &picture.pixels, &faces);
            let (wanted, all_passes) = read(plain.as_mut(), &picture.pixels, &faces);
            assert_eq!(bibs, wanted, "{}, {precision}", picture.name);
            (with, without) = (with + passes, without + all_passes);
            // The same people where nothing can be seen.
            let size = picture.pixels.frame().size();
            let grey = Picture::new(vec![128; size.area() * 3], size.width, size.height).unwrap();
            assert_eq!(read(light.as_mut(), &grey, &faces), (Vec::new(), 0), "{}", picture.name);
        }
        assert!(with < without, "{with} of {without} passes, {precision}");
    }
}

#[test]
fn a_file_that_is_no_light_text_detector_is_refused_by_name() {
    let Some(environment) = shared_environment() else { return };
    let load = |role, workload| {
        let file = find_model(ModelSet::Default, role).locate(Path::new("no folder"));
        Network::load(environment.runtime, &file, workload, Items::One, Backend::OnnxRuntime).unwrap()
    };
    let workload = TorsoPassKind::Light.whole_workload();
    reading::check_light_detector(&mut load(ModelRole::LightTextDetector, workload)).unwrap();
    let gate = reading::check_light_detector(&mut load(ModelRole::BibGate, Workload::BibGate));
    let error = gate.unwrap_err().to_string();
    assert!(error.starts_with("model bib_gate.onnx: not a light text detector"), "{error}");
}
