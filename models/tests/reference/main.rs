//! The real networks against answers that another program got from the same pictures: boxes, landmarks, vectors and
//! text of `../shared/models/reference`. What is missing on a machine is skipped loudly, or fails where
//! `REQUIRE_SHARED=1`.

#![expect(clippy::unwrap_used, reason = "a test binary: what cannot be read fails the test")]

mod environment;
mod pictures;

use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::Quad;
use photofinish_models::faces::embedder::AlignedEmbedder;
use photofinish_models::faces::libfacedetection::Libfacedetection;
use photofinish_models::faces::yunet::{Yunet, YunetThresholds};
use photofinish_models::onnx::session::{Network, Workload};
use photofinish_models::reading::{self, ReaderNetworks, SharedTextDetector, TorsoBibReader};
use photofinish_models::traits::{
    BibPattern, BibReader, EmbeddedFace, FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelIdentity,
    ReadRequest,
};
use photofinish_zoo::{Contract, Model, ModelRole, ModelSet, Zoo};

use environment::{TestEnvironment, shared_environment};
use pictures::{ReferenceFace, ReferencePicture};

/// The long side at which the answers were got.
const LONG_SIDE: u32 = 640;

fn find_model(set: ModelSet, role: ModelRole) -> Model {
    Zoo::embedded().model(set, role).unwrap().clone()
}

fn identity(model: &Model) -> ModelIdentity {
    ModelIdentity { name: model.name.clone(), version: model.version }
}

fn load_network(place: &TestEnvironment, model: &Model, workload: Workload) -> Option<Network> {
    let file = place.model_file(model.network_file())?;
    Some(Network::load(place.runtime, &file, workload).unwrap())
}

fn load_yunet(place: &TestEnvironment) -> Option<Yunet> {
    let model = find_model(ModelSet::Default, ModelRole::FaceDetector);
    let Contract::Yunet { score_threshold, iou_threshold } = model.contract else { panic!("not yunet") };
    let thresholds = YunetThresholds { score: score_threshold, iou: iou_threshold };
    Some(Yunet::new(load_network(place, &model, Workload::FaceDetection)?, thresholds, identity(&model)))
}

fn load_embedder(place: &TestEnvironment, set: ModelSet) -> Option<AlignedEmbedder> {
    let model = find_model(set, ModelRole::FaceEmbedder);
    let network = load_network(place, &model, Workload::Embedding)?;
    let Contract::Embedder(contract) = &model.contract else { panic!("not an embedder") };
    Some(AlignedEmbedder::new(network, contract, identity(&model), 1))
}

fn load_bib_reader(place: &TestEnvironment) -> Option<TorsoBibReader> {
    let (detector, recogniser) = (
        find_model(ModelSet::Default, ModelRole::TextDetector),
        find_model(ModelSet::Default, ModelRole::TextRecogniser),
    );
    let Contract::TextRecogniser { characters } = &recogniser.contract else { panic!("not a recogniser") };
    let networks = ReaderNetworks {
        first_pass: load_network(place, &detector, reading::FIRST_PASS_WORKLOAD)?,
        second_pass: load_network(place, &detector, reading::SECOND_PASS_WORKLOAD)?,
        full_frame: SharedTextDetector::new(
            &Device::Cpu,
            load_network(place, &detector, Workload::DynamicTextDetection)?,
        ),
        recogniser: load_network(place, &recogniser, reading::RECOGNISER_WORKLOAD)?,
        characters: characters.clone(),
    };
    Some(TorsoBibReader::new(&Device::Cpu, networks, identity(&detector)))
}

/// The found face of each known one, by overlap.
fn find_match<'f>(known: &ReferenceFace, found: &'f [FaceBox]) -> Option<&'f FaceBox> {
    let overlap = |face: &&FaceBox| face.rect.iou(&known.rect);
    found.iter().max_by(|a, b| overlap(a).total_cmp(&overlap(b))).filter(|face| overlap(face) > 0.4)
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn embed_known(embedder: &mut AlignedEmbedder, answers: &ReferencePicture) -> Vec<EmbeddedFace> {
    let frame = answers.picture.frame();
    let crops: Vec<FaceCrop<'_>> =
        answers.faces.iter().map(|face| FaceCrop { frame, landmarks: face.landmarks }).collect();
    embedder.embed(&crops).unwrap()
}

#[test]
fn yunet_finds_the_faces_of_the_reference() {
    let Some(place) = shared_environment() else { return };
    let Some(mut detector) = load_yunet(place) else { return };
    for answers in ReferencePicture::load_all(&place.reference) {
        let found = detector.detect(&[answers.picture.frame()], LONG_SIDE).unwrap().remove(0);
        assert_eq!(found.len(), answers.faces.len(), "{}: {found:?}", answers.name);
        for known in &answers.faces {
            let face = find_match(known, &found).expect("each face of the reference is found");
            // Two JPEG decoders differ by a grey level or two, and the network is shown every second pixel.
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
    let Some(place) = shared_environment() else { return };
    let model = find_model(ModelSet::Registry, ModelRole::FaceDetector);
    let (Some(library), Some(openmp)) =
        (place.model_file(model.network_file()), place.model_file(&model.files[1].name))
    else {
        return;
    };
    let mut detector = Libfacedetection::open(&library, &openmp, 0.6, identity(&model)).unwrap();
    let (mut found, mut known) = (0, 0);
    for answers in ReferencePicture::load_all(&place.reference) {
        let faces = detector.detect(&[answers.picture.frame()], LONG_SIDE).unwrap().remove(0);
        found += answers.faces.iter().filter(|face| find_match(face, &faces).is_some()).count();
        known += answers.faces.len();
    }
    assert!(found * 10 >= known * 9, "{found} of {known}");
}

#[test]
fn vectors_match_the_reference() {
    let Some(place) = shared_environment() else { return };
    for (set, name) in [(ModelSet::Default, "omz"), (ModelSet::Registry, "dlib")] {
        let Some(mut embedder) = load_embedder(place, set) else { continue };
        for answers in ReferencePicture::load_all(&place.reference) {
            for (face, known) in embed_known(&mut embedder, &answers).iter().zip(&answers.faces) {
                let length = face.vector.iter().map(|value| value * value).sum::<f32>().sqrt();
                assert!((length - 1.0).abs() < 1e-4, "length {length}");
                let wanted = known.vector_start(name);
                let near = face.vector.iter().zip(&wanted).all(|(got, wanted)| (got - wanted).abs() < 0.03);
                assert!(near, "{name} {}: {:?} for {wanted:?}", answers.name, &face.vector[..8]);
            }
        }
    }
}

#[test]
fn a_batch_of_faces_gives_the_vectors_of_each_alone() {
    let Some(place) = shared_environment() else { return };
    let Some(mut embedder) = load_embedder(place, ModelSet::Default) else { return };
    for answers in ReferencePicture::load_all(&place.reference) {
        let batched = embed_known(&mut embedder, &answers);
        for (face, known) in batched.iter().zip(&answers.faces) {
            let crop = FaceCrop { frame: answers.picture.frame(), landmarks: known.landmarks };
            let alone = embedder.embed(&[crop]).unwrap().remove(0);
            assert!(cosine(&alone.vector, &face.vector) > 0.99999);
            assert_eq!(alone.sharpness, face.sharpness);
        }
    }
}

#[test]
fn a_batch_of_photos_gives_the_faces_of_each_alone() {
    let Some(place) = shared_environment() else { return };
    let Some(mut detector) = load_yunet(place) else { return };
    let answers = ReferencePicture::load_all(&place.reference);
    let frames: Vec<_> = answers.iter().chain(&answers).map(|answers| answers.picture.frame()).collect();
    let batched = detector.detect(&frames, LONG_SIDE).unwrap();
    assert_eq!(batched.len(), frames.len());
    for (frame, together) in frames.iter().zip(&batched) {
        let alone = detector.detect(&[*frame], LONG_SIDE).unwrap().remove(0);
        assert_eq!(alone.len(), together.len());
        for (alone, together) in alone.iter().zip(together) {
            assert!(alone.rect.iou(&together.rect) > 0.999 && (alone.score - together.score).abs() < 1e-4);
        }
    }
}

#[test]
fn the_bib_reader_reads_the_bib_of_the_reference_alone_and_in_a_batch() {
    let Some(place) = shared_environment() else { return };
    let (Some(mut detector), Some(mut reader)) = (load_yunet(place), load_bib_reader(place)) else { return };
    let answers = ReferencePicture::load_all(&place.reference);
    let pattern = BibPattern::new("[A-Z]{0,2}[0-9]{2,5}[A-Z]?").unwrap();
    let frames: Vec<_> = answers.iter().map(|answers| answers.picture.frame()).collect();
    let faces = detector.detect(&frames, LONG_SIDE).unwrap();
    let requests: Vec<ReadRequest<'_>> = frames
        .iter()
        .zip(&faces)
        .map(|(frame, faces)| ReadRequest { frame: *frame, faces, pattern: &pattern })
        .collect();
    let batched = reader.read(&requests).unwrap();
    for ((request, together), answers) in requests.iter().zip(&batched).zip(&answers) {
        let alone = reader.read(&[*request]).unwrap().remove(0);
        assert_eq!(&alone, together, "{}", answers.name);
        let bibs: Vec<(&str, &Quad)> = together
            .iter()
            .filter(|text| text.is_bib && text.confidence >= 0.9)
            .map(|text| (text.text.as_str(), &text.quad))
            .collect();
        let wanted: Vec<&str> = answers.bibs.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(bibs.iter().map(|(text, _)| *text).collect::<Vec<_>>(), wanted, "{}", answers.name);
        for ((_, quad), (_, known)) in bibs.iter().zip(&answers.bibs) {
            assert!(quad.bounds().iou(&known.bounds()) > 0.6, "{quad:?} for {known:?}");
        }
    }
}
