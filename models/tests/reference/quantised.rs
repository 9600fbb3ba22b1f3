//! Networks with 8-bit integers find what those of floats find, on processors with VNNI instructions. On others sums overflow,
//! faces have other vectors, and the service refuses them.

use std::sync::Arc;

use photofinish_models::factory::ZooModels;
use photofinish_models::onnx::runtime::Precision;
use photofinish_models::reading::GateScope;
use photofinish_models::traits::{BibPattern, BibReader, FaceCrop, FaceDetector, ModelFactory, ReadRequest};
use photofinish_models::tuning::PrecisionChoice;
use photofinish_zoo::ModelSet;

use crate::environment::{TestEnvironment, shared_environment};
use crate::pictures::ReferencePicture;
use crate::{Calls, LONG_SIDE, cosine, embed_known, load_bib_reader_for, load_embedder, load_yunet};

/// Least cosine of a face's vectors by the two: .994 for 95 of 100 faces of race photos, .988 for the worst of 200.
const MIN_COSINE: f32 = 0.98;

/// The environment, where OpenVINO and the processor compute integers; prints which test is skipped where not.
fn environment_with_integers(test: &str) -> Option<&'static TestEnvironment> {
    let environment = shared_environment()?;
    environment.computes_integers(test).then_some(environment)
}

#[test]
fn quantised_vectors_are_those_of_floats() {
    const TEST: &str = "quantised_vectors_are_those_of_floats";
    let Some(environment) = environment_with_integers(TEST) else { return };
    let load = |calls| load_embedder(environment, ModelSet::Default, calls);
    let (Some(mut quantised), Some(mut floats)) = (load(Calls::Quantised), load(Calls::Single)) else {
        return;
    };
    for picture in ReferencePicture::load_all(&environment.reference) {
        let pairs = embed_known(&mut quantised, &picture).into_iter().zip(embed_known(&mut floats, &picture));
        for (quantised, wanted) in pairs {
            let cosine = cosine(&quantised.vector, &wanted.vector);
            assert!(cosine > MIN_COSINE, "{}: {cosine}", picture.name);
            assert!(quantised.vector != wanted.vector, "both are the same network");
        }
    }
}

#[test]
fn the_configured_precision_takes_the_quantised_file() {
    const TEST: &str = "the_configured_precision_takes_the_quantised_file";
    let Some(environment) = environment_with_integers(TEST) else { return };
    let Some(file) = environment.model_file("omz_face_reid_0095_int8.onnx") else { return };
    let folder = file.parent().unwrap();
    let vector = |precision| {
        let runtime = Arc::new(environment.runtime.on_device(0));
        let networks = ZooModels::open(runtime, folder.to_owned()).unwrap();
        let networks = networks.with_precision(PrecisionChoice::Always(precision), None).unwrap();
        let picture = &ReferencePicture::load_all(&environment.reference)[0];
        let crop = FaceCrop::new(picture.pixels.frame(), picture.faces[0].landmarks);
        networks.create_face_embedder().unwrap().embed(&[crop]).unwrap().remove(0).vector
    };
    let (quantised, floats) = (vector(Precision::Int8), vector(Precision::F32));
    assert!(quantised != floats && cosine(&quantised, &floats) > MIN_COSINE);
}

#[test]
fn quantised_networks_read_the_bibs_of_the_reference() {
    const TEST: &str = "quantised_networks_read_the_bibs_of_the_reference";
    let Some(environment) = environment_with_integers(TEST) else { return };
    let (Some(mut detector), Some(mut reader)) =
        (load_yunet(environment), load_bib_reader_for(environment, Some(GateScope::Small), Calls::Quantised))
    else {
        return;
    };
    let pattern = BibPattern::new("[A-Z]{0,2}[0-9]{2,5}[A-Z]?").unwrap();
    for picture in ReferencePicture::load_all(&environment.reference) {
        let frame = picture.pixels.frame();
        let faces = detector.detect(&[frame], LONG_SIDE).unwrap().remove(0);
        let request = ReadRequest { frame, faces: &faces, pattern: &pattern };
        let texts = reader.read(&[request]).unwrap().remove(0);
        let accepted = texts.iter().filter(|text| text.is_bib && text.confidence >= 0.9);
        let read: Vec<&str> = accepted.map(|text| text.text.as_str()).collect();
        let wanted: Vec<&str> = picture.bibs.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(read, wanted, "{}", picture.name);
    }
}
