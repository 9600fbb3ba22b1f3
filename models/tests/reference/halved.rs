//! Networks with floats of 16 bits find what those of 32 find, and one whose numbers exceed their range is refused. A processor
//! converts and computes in 32 bits: what is rounded here are weights, inputs and outputs.

use photofinish_models::onnx::runtime::Backend;
use photofinish_models::onnx::session::Workload;
use photofinish_models::reading::GateScope;
use photofinish_models::traits::{BibPattern, BibReader, FaceDetector, ReadRequest};
use photofinish_models::tuning::{self, Candidate};
use photofinish_zoo::{ConvertedFile, ModelSet, NetworkFile};

use crate::environment::shared_environment;
use crate::pictures::ReferencePicture;
use crate::{Calls, LONG_SIDE, cosine, embed_known, load_bib_reader_for, load_embedder, load_yunet};

/// Least cosine of a face's vectors by the two, as of those that a GPU and the processor give.
const MIN_COSINE: f32 = 0.999;

/// A minimal ONNX file, as that of `models/src/onnx/probe.rs`: `y = x + x` for one plane of two numbers.
const SUM: [u8; 87] = *b"\
    \x08\x08\
    \x3a\x4d\
        \x0a\x0e\x0a\x01x\x0a\x01x\x12\x01y\x22\x03Add\
        \x12\x01g\
        \x5a\x1b\x0a\x01x\x12\x16\x0a\x14\x08\x01\x12\x10\
            \x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x02\
        \x62\x1b\x0a\x01y\x12\x16\x0a\x14\x08\x01\x12\x10\
            \x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x02\
    \x42\x04\x0a\x00\x10\x0d";

/// The same, with the sum converted to 16 bits (10) and back (1).
const HALVED_SUM: [u8; 137] = *b"\
    \x08\x08\
    \x3a\x7f\
        \x0a\x0e\x0a\x01x\x0a\x01x\x12\x01s\x22\x03Add\
        \x0a\x17\x0a\x01s\x12\x01a\x22\x04Cast\x2a\x09\x0a\x02to\x18\x0a\xa0\x01\x02\
        \x0a\x17\x0a\x01a\x12\x01y\x22\x04Cast\x2a\x09\x0a\x02to\x18\x01\xa0\x01\x02\
        \x12\x01g\
        \x5a\x1b\x0a\x01x\x12\x16\x0a\x14\x08\x01\x12\x10\
            \x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x02\
        \x62\x1b\x0a\x01y\x12\x16\x0a\x14\x08\x01\x12\x10\
            \x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x01\x0a\x02\x08\x02\
    \x42\x04\x0a\x00\x10\x0d";

#[test]
fn halved_vectors_are_those_of_floats() {
    let Some(environment) = shared_environment() else { return };
    let load = |calls| load_embedder(environment, ModelSet::Default, calls);
    let (Some(mut halved), Some(mut floats)) = (load(Calls::Halved), load(Calls::Single)) else {
        return;
    };
    for picture in ReferencePicture::load_all(&environment.reference) {
        let pairs = embed_known(&mut halved, &picture).into_iter().zip(embed_known(&mut floats, &picture));
        for (halved, wanted) in pairs {
            let cosine = cosine(&halved.vector, &wanted.vector);
            assert!(cosine > MIN_COSINE, "{}: {cosine}", picture.name);
            assert!(halved.vector != wanted.vector, "both are the same network");
        }
    }
}

#[test]
fn halved_networks_read_the_bibs_of_the_reference() {
    let Some(environment) = shared_environment() else { return };
    let (Some(mut detector), Some(mut reader)) =
        (load_yunet(environment), load_bib_reader_for(environment, Some(GateScope::Small), Calls::Halved))
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

/// 65504 is the largest number of 16 bits; the lighter of the two pixels has .9 of the value of white.
#[test]
fn a_network_whose_sums_exceed_the_range_is_refused() {
    let Some(environment) = shared_environment() else { return };
    let measure = |white: f32| {
        let halved = NetworkFile::CompiledIn { name: "sum_f16.onnx", bytes: &HALVED_SUM };
        let candidate = Candidate {
            identity: "sum".into(),
            file: NetworkFile::CompiledIn { name: "sum.onnx", bytes: &SUM },
            quantised: None,
            halved: Some(ConvertedFile { file: halved, sha256: "0".repeat(64) }),
            workload: Workload::BibGate,
            input_shape: [1, 1, 1, 2],
            black_and_white: [0.0, white],
        };
        let measurements = tuning::measure_or_load(environment.runtime, &[candidate], None).unwrap();
        let lines = measurements.lines();
        let line = lines.into_iter().find(|line| line.contains("ONNX Runtime f16")).unwrap();
        (line, measurements.fastest("sum"))
    };
    let (line, _) = measure(100.0);
    assert!(line.contains("cosine 1.0000"), "{line}");
    let (line, chosen) = measure(60_000.0);
    assert!(line.contains("cosine 0.0000"), "{line}");
    assert_ne!(chosen, Backend::OnnxRuntimeF16);
}
