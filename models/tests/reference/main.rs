//! Compares the real networks with the results of a reference program on the same pictures: boxes, landmarks, embeddings
//! and texts of `../shared/models/reference`. Prints what it skips when files are missing; fails with `REQUIRE_SHARED=1`.

#![expect(clippy::unwrap_used, reason = "a test binary: an unreadable file fails the test")]

mod batches;
mod environment;
mod halved;
mod light;
mod pictures;
mod quantised;
mod steps;

use std::path::Path;

use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::{Quad, Rect};
use photofinish_kernels::image::frame::{Picture, Size};
use photofinish_kernels::resize::{Filter, ResizeTarget, Resizer};
use photofinish_models::bucket::Bucket;
use photofinish_models::faces::embedder::AlignedEmbedder;
use photofinish_models::faces::libfacedetection::Libfacedetection;
use photofinish_models::faces::yunet::{Yunet, YunetThresholds};
use photofinish_models::onnx::runtime::{Backend, Precision};
use photofinish_models::onnx::session::{Items, Network, Workload};
use photofinish_models::reading::{
    self, BibGate, GateScope, ReaderNetworks, SharedTextDetector, TorsoBibReader, TorsoPassKind,
};
use photofinish_models::traits::{
    BibPattern, BibReader, EmbeddedFace, FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelIdentity,
    ReadRequest,
};
use photofinish_zoo::{Contract, Model, ModelRole, ModelSet, NetworkFile, Zoo};

use environment::{TestEnvironment, shared_environment};
use pictures::{ReferenceFace, ReferencePicture};

/// Long side, in pixels, at which the reference faces were detected.
const LONG_SIDE: u32 = 640;

fn find_model(set: ModelSet, role: ModelRole) -> Model {
    Zoo::embedded().model(set, role).unwrap().clone()
}

fn identity(model: &Model) -> ModelIdentity {
    ModelIdentity { name: model.name.clone(), version: model.version }
}

/// How networks are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// One item a call, as on a processor.
    Single,
    /// The same, with 8-bit integers where OpenVINO computes them.
    Quantised,
    /// The same, with floats of 16 bits in the networks that have a file for it.
    Halved,
    /// So many items a call, as on a device.
    Batched(usize),
}

impl Calls {
    fn batch(self) -> usize {
        match self {
            Self::Single | Self::Quantised | Self::Halved => 1,
            Self::Batched(batch) => batch,
        }
    }
}

fn load_network(environment: &TestEnvironment, model: &Model, workload: Workload) -> Option<Network> {
    load_network_for(environment, model, workload, Calls::Single)
}

fn load_network_for(
    environment: &TestEnvironment,
    model: &Model,
    workload: Workload,
    calls: Calls,
) -> Option<Network> {
    let folder = Path::new("");
    let (file, items, precision) = match calls {
        Calls::Single => (model.locate(folder), Items::One, Precision::F32),
        Calls::Quantised => (quantised_file(model), Items::One, Precision::Int8),
        Calls::Halved => (halved_file(model), Items::One, Precision::F16),
        Calls::Batched(_) => (model.locate_for_batches(folder), Items::Many, Precision::F32),
    };
    let file = NetworkFile::Path(environment.model_file(&file.name())?);
    let backend = match environment.runtime.has_openvino() && items == Items::One {
        true if precision != Precision::F16 => Backend::OpenVino(precision),
        _ => Backend::OnnxRuntime,
    };
    Some(Network::load(environment.runtime, &file, workload, items, backend).unwrap())
}

/// Its name is what is needed: the folder is looked for afterwards.
fn quantised_file(model: &Model) -> NetworkFile {
    let file = model.files.iter().find(|file| file.quantised_from.is_some()).unwrap();
    NetworkFile::Path(file.name.clone().into())
}

/// Likewise; that of the network itself where it has no such file.
fn halved_file(model: &Model) -> NetworkFile {
    let file = model.files.iter().find(|file| file.halved_from.is_some());
    file.map_or_else(|| model.locate(Path::new("")), |file| NetworkFile::Path(file.name.clone().into()))
}

fn load_yunet(environment: &TestEnvironment) -> Option<Yunet> {
    let model = find_model(ModelSet::Default, ModelRole::FaceDetector);
    let Contract::Yunet { score_threshold, iou_threshold } = model.contract else { panic!("not yunet") };
    let thresholds = YunetThresholds { score: score_threshold, iou: iou_threshold };
    Some(Yunet::new(
        load_network(environment, &model, Workload::FaceDetection)?,
        thresholds,
        identity(&model),
    ))
}

fn load_embedder(environment: &TestEnvironment, set: ModelSet, calls: Calls) -> Option<AlignedEmbedder> {
    let model = find_model(set, ModelRole::FaceEmbedder);
    let network = load_network_for(environment, &model, Workload::Embedding, calls)?;
    let Contract::Embedder(contract) = &model.contract else { panic!("not an embedder") };
    Some(AlignedEmbedder::new(network, contract, identity(&model), calls.batch()))
}

fn load_detectors(
    environment: &TestEnvironment,
    detector: &Model,
    pass: TorsoPassKind,
    calls: Calls,
) -> Option<Vec<Network>> {
    let load = |workload| load_network_for(environment, detector, workload, calls);
    pass.workloads().into_iter().map(load).collect()
}

/// The gate of the binary.
fn load_bib_gate(environment: &TestEnvironment, scope: GateScope) -> BibGate {
    let file = find_model(ModelSet::Default, ModelRole::BibGate).locate(Path::new("no folder"));
    let network =
        Network::load(environment.runtime, &file, Workload::BibGate, Items::One, Backend::OnnxRuntime)
            .unwrap();
    BibGate::new(&Device::Cpu, network, scope).unwrap()
}

fn load_bib_reader(environment: &TestEnvironment, scope: Option<GateScope>) -> Option<TorsoBibReader> {
    load_bib_reader_for(environment, scope, Calls::Single)
}

fn load_bib_reader_for(
    environment: &TestEnvironment,
    scope: Option<GateScope>,
    calls: Calls,
) -> Option<TorsoBibReader> {
    let (detector, recogniser) = (
        find_model(ModelSet::Default, ModelRole::TextDetector),
        find_model(ModelSet::Default, ModelRole::TextRecogniser),
    );
    let Contract::TextRecogniser { characters } = &recogniser.contract else { panic!("not a recogniser") };
    let networks = ReaderNetworks {
        bib_gate: scope.map(|scope| load_bib_gate(environment, scope)),
        light_pass: None,
        first_pass: load_detectors(environment, &detector, TorsoPassKind::First, calls)?,
        second_pass: load_detectors(environment, &detector, TorsoPassKind::Second, calls)?,
        third_pass: load_detectors(environment, &detector, TorsoPassKind::Third, calls)?,
        full_frame: SharedTextDetector::new(
            &Device::Cpu,
            load_network_for(environment, &detector, Workload::DynamicTextDetection, calls)?,
            Bucket::new(calls.batch()),
        ),
        recogniser: load_network_for(environment, &recogniser, reading::RECOGNISER_WORKLOAD, calls)?,
        characters: characters.clone(),
        batch: calls.batch(),
    };
    Some(TorsoBibReader::new(&Device::Cpu, networks, identity(&detector)))
}

/// Returns the detected face that overlaps the known one most.
fn find_match<'f>(known: &ReferenceFace, found: &'f [FaceBox]) -> Option<&'f FaceBox> {
    let overlap = |face: &&FaceBox| face.rect.iou(&known.rect);
    found.iter().max_by(|a, b| overlap(a).total_cmp(&overlap(b))).filter(|face| overlap(face) > 0.4)
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn embed_known(embedder: &mut AlignedEmbedder, picture: &ReferencePicture) -> Vec<EmbeddedFace> {
    let frame = picture.pixels.frame();
    let crops: Vec<FaceCrop<'_>> =
        picture.faces.iter().map(|face| FaceCrop::new(frame, face.landmarks)).collect();
    embedder.embed(&crops).unwrap()
}

#[test]
fn yunet_finds_the_faces_of_the_reference() {
    let Some(environment) = shared_environment() else { return };
    let Some(mut detector) = load_yunet(environment) else { return };
    for picture in ReferencePicture::load_all(&environment.reference) {
        let found = detector.detect(&[picture.pixels.frame()], LONG_SIDE).unwrap().remove(0);
        assert_eq!(found.len(), picture.faces.len(), "{}: {found:?}", picture.name);
        for known in &picture.faces {
            let face = find_match(known, &found).expect("each reference face is detected");
            // The two JPEG decoders differ by one or two grey levels.
            assert!((face.score - known.score).abs() < 0.02, "{} for {}", face.score, known.score);
            assert!(face.rect.iou(&known.rect) > 0.95, "{:?} for {:?}", face.rect, known.rect);
            for (point, wanted) in face.landmarks.iter().zip(&known.landmarks) {
                let apart = (point.x - wanted.x).hypot(point.y - wanted.y);
                assert!(apart < 0.03 * known.rect.width(), "{point:?} for {wanted:?}");
            }
        }
    }
}

#[test]
fn libfacedetection_finds_most_faces_of_the_reference() {
    let Some(environment) = shared_environment() else { return };
    let model = find_model(ModelSet::Registry, ModelRole::FaceDetector);
    let (Some(library), Some(openmp)) =
        (environment.model_file(model.network_file()), environment.model_file(&model.files[1].name))
    else {
        return;
    };
    let mut detector = Libfacedetection::open(&library, &openmp, 0.6, identity(&model)).unwrap();
    let (mut found, mut known) = (0, 0);
    for picture in ReferencePicture::load_all(&environment.reference) {
        let faces = detector.detect(&[picture.pixels.frame()], LONG_SIDE).unwrap().remove(0);
        found += picture.faces.iter().filter(|face| find_match(face, &faces).is_some()).count();
        known += picture.faces.len();
    }
    assert!(found * 10 >= known * 9, "{found} of {known}");
}

#[test]
fn vectors_match_the_reference() {
    let Some(environment) = shared_environment() else { return };
    for (set, name) in [(ModelSet::Default, "omz"), (ModelSet::Registry, "dlib")] {
        let Some(mut embedder) = load_embedder(environment, set, Calls::Single) else { continue };
        for picture in ReferencePicture::load_all(&environment.reference) {
            for (face, known) in embed_known(&mut embedder, &picture).iter().zip(&picture.faces) {
                let length = face.vector.iter().map(|value| value * value).sum::<f32>().sqrt();
                assert!((length - 1.0).abs() < 1e-4, "length {length}");
                let wanted = known.vector_start(name);
                let near = face.vector.iter().zip(&wanted).all(|(got, wanted)| (got - wanted).abs() < 0.03);
                assert!(near, "{name} {}: {:?} for {wanted:?}", picture.name, &face.vector[..8]);
            }
        }
    }
}

#[test]
fn a_file_that_is_no_bib_gate_is_refused_by_name() {
    let Some(environment) = shared_environment() else { return };
    let folder = tempfile::tempdir().unwrap();
    let gate = find_model(ModelSet::Default, ModelRole::BibGate);
    let load = || {
        let file = gate.locate(folder.path());
        Network::load(environment.runtime, &file, Workload::BibGate, Items::One, Backend::OnnxRuntime)
            .and_then(|network| BibGate::new(&Device::Cpu, network, GateScope::All))
    };
    assert!(load().is_ok(), "the binary's");
    std::fs::write(folder.path().join(gate.network_file()), b"no network").unwrap();
    let error = load().err().expect("damaged").to_string();
    assert!(error.starts_with("model bib_gate.onnx"), "{error}");
    let recogniser = find_model(ModelSet::Default, ModelRole::TextRecogniser);
    let Some(other) = environment.model_file(recogniser.network_file()) else { return };
    std::fs::copy(other, folder.path().join(gate.network_file())).unwrap();
    let error = load().err().expect("another network").to_string();
    assert!(error.starts_with("model bib_gate.onnx: not a bib gate"), "{error}");
}

#[test]
fn the_gate_skips_torsos_without_a_number_and_changes_no_reading() {
    let Some(environment) = shared_environment() else { return };
    let Some(mut detector) = load_yunet(environment) else { return };
    let (Some(mut gated), Some(mut ungated)) =
        (load_bib_reader(environment, Some(GateScope::All)), load_bib_reader(environment, None))
    else {
        return;
    };
    let pattern = BibPattern::new("[A-Z]{0,2}[0-9]{2,5}[A-Z]?").unwrap();
    for picture in ReferencePicture::load_all(&environment.reference) {
        let frame = picture.pixels.frame();
        let faces = detector.detect(&[frame], LONG_SIDE).unwrap().remove(0);
        let bibs = |reader: &mut TorsoBibReader| -> Vec<String> {
            let request = ReadRequest { frame, faces: &faces, pattern: &pattern };
            let texts = reader.read(&[request]).unwrap().remove(0);
            let accepted = texts.into_iter().filter(|text| text.is_bib && text.confidence >= 0.9);
            accepted.map(|text| text.text).collect()
        };
        assert_eq!(bibs(&mut gated), bibs(&mut ungated), "{}", picture.name);
        let (with, without) = (gated.take_counts(), ungated.take_counts());
        assert_eq!(without.no_number, 0);
        let asked = with.read + with.no_number;
        assert!(asked >= without.read, "{asked} torsos: those of small runners too, each once");
        assert!(picture.bibs.is_empty() || with.read > 0, "{}: {with:?}", picture.name);
        // The same people where nothing can be seen.
        let size = frame.size();
        let grey = Picture::new(vec![128; size.area() * 3], size.width, size.height).unwrap();
        let request = ReadRequest { frame: grey.frame(), faces: &faces, pattern: &pattern };
        assert!(gated.read(&[request]).unwrap().remove(0).is_empty(), "{}", picture.name);
        let on_grey = gated.take_counts();
        assert_eq!((on_grey.read, on_grey.no_number), (0, asked), "{}", picture.name);
    }
}

/// As at the far side of a crowd: the photo of the reference, shrunk until the wearer of the bib has a face of 19 pixels.
#[test]
fn the_bib_of_a_small_runner_is_read_where_the_gate_sees_a_number() {
    let Some(environment) = shared_environment() else { return };
    let Some(mut detector) = load_yunet(environment) else { return };
    let (Some(mut reader), Some(mut without_gate)) =
        (load_bib_reader(environment, Some(GateScope::Small)), load_bib_reader(environment, None))
    else {
        return;
    };
    let pattern = BibPattern::new("[A-Z]{0,2}[0-9]{2,5}[A-Z]?").unwrap();
    for picture in ReferencePicture::load_all(&environment.reference).iter().filter(|p| !p.bibs.is_empty()) {
        let (frame, (bib, place)) = (picture.pixels.frame(), &picture.bibs[0]);
        let faces = detector.detect(&[frame], LONG_SIDE).unwrap().remove(0);
        let distance = |face: &&FaceBox| {
            ((face.rect.left + face.rect.right) / 2.0 - place.centre().x)
                .hypot(face.rect.bottom - place.centre().y)
        };
        let above = faces.iter().filter(|face| face.rect.bottom < place.bounds().top);
        let wearer = above.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap().rect;
        let zoom = 19.0 / wearer.width().max(0.8 * wearer.height());
        let side = |pixels: u32| (pixels as f32 * zoom).round() as u32;
        let size = Size { width: side(frame.width()), height: side(frame.height()) };
        let small = Resizer::default().resize_frame(frame, ResizeTarget { size, filter: Filter::Bicubic });
        let shrink = |rect: Rect| Rect {
            left: rect.left * zoom,
            top: rect.top * zoom,
            right: rect.right * zoom,
            bottom: rect.bottom * zoom,
        };
        let faces = [FaceBox { rect: shrink(wearer), ..faces[0] }];
        let request = ReadRequest { frame: small.frame(), faces: &faces, pattern: &pattern };
        let texts = reader.read(&[request]).unwrap().remove(0);
        let is_read = texts.iter().any(|text| text.text == *bib && text.confidence >= 0.9);
        assert!(is_read, "{}: {bib} is not in {texts:?}", picture.name);
        assert_eq!(reader.take_counts().read, 1, "{}", picture.name);
        without_gate.read(&[request]).unwrap();
        assert_eq!(without_gate.take_counts().read, 0, "{}", picture.name);
    }
}

#[test]
fn the_bib_reader_reads_the_bib_of_the_reference_alone_and_in_a_batch() {
    let Some(environment) = shared_environment() else { return };
    let (Some(mut detector), Some(mut reader)) =
        (load_yunet(environment), load_bib_reader(environment, Some(GateScope::All)))
    else {
        return;
    };
    let pictures = ReferencePicture::load_all(&environment.reference);
    let pattern = BibPattern::new("[A-Z]{0,2}[0-9]{2,5}[A-Z]?").unwrap();
    let frames: Vec<_> = pictures.iter().map(|picture| picture.pixels.frame()).collect();
    let faces = detector.detect(&frames, LONG_SIDE).unwrap();
    let requests: Vec<ReadRequest<'_>> = frames
        .iter()
        .zip(&faces)
        .map(|(frame, faces)| ReadRequest { frame: *frame, faces, pattern: &pattern })
        .collect();
    let batched = reader.read(&requests).unwrap();
    for ((request, together), picture) in requests.iter().zip(&batched).zip(&pictures) {
        let alone = reader.read(&[*request]).unwrap().remove(0);
        assert_eq!(&alone, together, "{}", picture.name);
        let bibs: Vec<(&str, &Quad)> = together
            .iter()
            .filter(|text| text.is_bib && text.confidence >= 0.9)
            .map(|text| (text.text.as_str(), &text.quad))
            .collect();
        let wanted: Vec<&str> = picture.bibs.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(bibs.iter().map(|(text, _)| *text).collect::<Vec<_>>(), wanted, "{}", picture.name);
        for ((_, quad), (_, known)) in bibs.iter().zip(&picture.bibs) {
            assert!(quad.bounds().iou(&known.bounds()) > 0.6, "{quad:?} for {known:?}");
        }
    }
}
