//! Compares the results of two devices on the same photos.

use std::collections::BTreeSet;

use photofinish_store::model::photo::{DetectedFace, TextIndexState};

use super::observe::{DeviceReadings, ObservedFace, ObservedText};
use super::pipeline::Found;
use crate::eval::gallery::cosine;
use crate::report::Table;

/// Least confidence of an accepted text; texts below may differ between devices.
const ACCEPT_CONFIDENCE: f32 = 0.9;

/// Least intersection over union of boxes of the same face.
const SAME_FACE_IOU: f32 = 0.5;

/// Agreement of two devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// Faces detected by at least one.
    pub faces: usize,
    /// Faces detected by both.
    pub faces_both: usize,
    /// Least intersection over union of such a pair.
    pub least_overlap: f64,
    /// Largest difference of their scores.
    pub score_difference: f64,
    /// Least cosine between the vectors of the same landmarks.
    pub least_cosine: f64,
    /// Accepted texts read by at least one, counted per photo.
    pub texts: usize,
    /// Accepted texts read by both.
    pub texts_both: usize,
}

impl Agreement {
    /// Returns the part of the faces detected by both, 0 to 1; 1 without faces.
    pub fn faces_shared(&self) -> f64 {
        shared_part(self.faces_both, self.faces)
    }

    /// Returns the part of the accepted texts read by both, 0 to 1; 1 without texts.
    pub fn texts_shared(&self) -> f64 {
        shared_part(self.texts_both, self.texts)
    }

    /// Formats it as a table.
    pub fn to_table(&self, caption: &str) -> Table {
        let mut table = Table::new(caption, &["what", "figure"]);
        table.add_row([
            "faces found by both, of all".to_owned(),
            format!("{} of {}", self.faces_both, self.faces),
        ]);
        table.add_row(["least overlap of their boxes".to_owned(), format!("{:.4}", self.least_overlap)]);
        table.add_row(["largest difference of score".to_owned(), format!("{:.5}", self.score_difference)]);
        table.add_row(["least cosine of vectors".to_owned(), format!("{:.6}", self.least_cosine)]);
        table.add_row([
            "accepted texts read by both, of all".to_owned(),
            format!("{} of {}", self.texts_both, self.texts),
        ]);
        table
    }
}

/// Infinite for a difference that is not a number, which `f64::max` would drop: a device that writes such would meet every
/// goal.
pub fn known_difference(difference: f32) -> f64 {
    if difference.is_nan() { f64::INFINITY } else { f64::from(difference) }
}

fn shared_part(both: usize, all: usize) -> f64 {
    if all == 0 { 1.0 } else { both as f64 / all as f64 }
}

/// Compares the readings of two devices; `two` was observed with `one` as the readings before it.
pub fn compare_readings(one: &DeviceReadings, two: &DeviceReadings) -> Agreement {
    let mut agreement = Agreement::default();
    for (faces, others) in one.faces.iter().zip(&two.faces) {
        agreement.count_faces(faces, others);
    }
    for (a, b) in one.vectors.iter().zip(&two.vectors) {
        agreement.count_cosine(cosine(a, b));
    }
    for (a, b) in one.texts.iter().zip(&two.texts) {
        agreement.count_texts(&accepted_texts(a), &accepted_texts(b));
    }
    agreement
}

/// Compares what the whole pipeline found on two devices in the same photos. Vectors are those of the same faces, as each
/// device found them; texts are those that searches return.
pub fn compare_found(one: &[Found], two: &[Found]) -> Agreement {
    let mut agreement = Agreement::default();
    for (one, two) in one.iter().zip(two) {
        let faces = |found: &Found| found.faces.iter().map(to_observed).collect::<Vec<_>>();
        let (of_one, of_two) = (faces(one), faces(two));
        agreement.count_faces(&of_one, &of_two);
        for (face, observed) in one.faces.iter().zip(&of_one) {
            let other = find_same(observed, &of_two).map(|index| &two.faces[index]);
            if let Some((a, b)) =
                face.embedding.as_ref().zip(other.and_then(|other| other.embedding.as_ref()))
            {
                agreement.count_cosine(cosine(&a.vector, &b.vector));
            }
        }
        agreement.count_texts(&searched_texts(one), &searched_texts(two));
    }
    agreement
}

/// A face of the pipeline, whose box is in parts of the photo and which has no landmarks any more.
fn to_observed(face: &DetectedFace) -> ObservedFace {
    let area = face.bounding_box;
    let sides = [area.left, area.top, area.left + area.width, area.top + area.height].map(|side| side as f32);
    ObservedFace { sides, landmarks: [[0.0; 2]; 5], score: face.confidence as f32 }
}

fn searched_texts(found: &Found) -> BTreeSet<&str> {
    let searched = found.texts.iter().filter(|text| text.index_state == TextIndexState::Indexed);
    searched.map(|text| text.text.as_str()).collect()
}

/// Index of the face that overlaps this one most, if it is the same.
fn find_same(face: &ObservedFace, others: &[ObservedFace]) -> Option<usize> {
    let overlap = |other: &ObservedFace| other.rect().iou(&face.rect());
    let best = others.iter().enumerate().max_by(|(_, a), (_, b)| overlap(a).total_cmp(&overlap(b)));
    best.filter(|(_, best)| overlap(best) >= SAME_FACE_IOU).map(|(index, _)| index)
}

impl Default for Agreement {
    /// That of two devices before the first photo.
    fn default() -> Self {
        Self {
            faces: 0,
            faces_both: 0,
            least_overlap: 1.0,
            score_difference: 0.0,
            least_cosine: 1.0,
            texts: 0,
            texts_both: 0,
        }
    }
}

impl Agreement {
    fn count_texts(&mut self, one: &BTreeSet<&str>, two: &BTreeSet<&str>) {
        self.texts += one.union(two).count();
        self.texts_both += one.intersection(two).count();
    }

    /// A cosine that is not a number is as bad as any can be: `f64::min` would drop it.
    fn count_cosine(&mut self, cosine: f64) {
        self.least_cosine = self.least_cosine.min(if cosine.is_nan() { -1.0 } else { cosine });
    }

    fn count_faces(&mut self, faces: &[ObservedFace], others: &[ObservedFace]) {
        let mut both = 0;
        for face in faces {
            let Some(best) = find_same(face, others).map(|index| &others[index]) else { continue };
            both += 1;
            self.least_overlap = self.least_overlap.min(f64::from(best.rect().iou(&face.rect())));
            let difference = known_difference((best.score - face.score).abs());
            self.score_difference = self.score_difference.max(difference);
        }
        self.faces += faces.len() + others.len() - both;
        self.faces_both += both;
    }
}

fn accepted_texts(texts: &[ObservedText]) -> BTreeSet<&str> {
    texts
        .iter()
        .filter(|text| text.is_bib && text.confidence >= ACCEPT_CONFIDENCE)
        .map(|text| text.text.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::image::frame::Picture;
    use photofinish_models::fakes::FakeModels;
    use photofinish_store::model::photo::{BoundingBox, DetectedText, Embedding};
    use photofinish_tests::harness::test_photo::TestPhoto as Scene;

    use super::*;
    use crate::gpu::observe::observe_pictures;

    fn face(left: f32, score: f32) -> ObservedFace {
        ObservedFace { sides: [left, 0.0, left + 100.0, 100.0], landmarks: [[0.0; 2]; 5], score }
    }

    #[test]
    fn the_same_networks_agree_with_themselves() {
        let scene = Scene::new(640, 480).with_face(7, [100, 60, 96]).with_bib("1234", [300, 300]);
        let (width, height) = scene.pixels().dimensions();
        let picture = Picture::new(scene.pixels().as_raw().clone(), width, height).unwrap();
        let one = observe_pictures(&FakeModels::default(), std::slice::from_ref(&picture), None).unwrap();
        let two = observe_pictures(&FakeModels::default(), &[picture], Some(&one)).unwrap();
        let agreement = compare_readings(&one, &two);
        assert_eq!((agreement.faces, agreement.texts), (1, 1));
        assert_eq!((agreement.faces_shared(), agreement.texts_shared()), (1.0, 1.0));
        assert!(agreement.least_cosine > 0.9999);
    }

    #[test]
    fn a_face_that_one_device_misses_and_a_score_that_differs_are_reported() {
        let of =
            |faces: Vec<ObservedFace>| DeviceReadings { faces: vec![faces], ..DeviceReadings::default() };
        let agreement =
            compare_readings(&of(vec![face(0.0, 0.9), face(500.0, 0.8)]), &of(vec![face(10.0, 0.7)]));
        assert_eq!((agreement.faces, agreement.faces_both), (2, 1));
        assert!((agreement.least_overlap - 90.0 / 110.0).abs() < 1e-6);
        assert!((agreement.score_difference - 0.2).abs() < 1e-6);
    }

    #[test]
    fn what_two_pipelines_found_is_compared_by_photo() {
        let found = |left: f64, vector: [f32; 2], bib: &str| Found {
            faces: vec![DetectedFace {
                bounding_box: BoundingBox { left, top: 0.2, width: 0.1, height: 0.1 },
                confidence: 0.9,
                unindexed: None,
                embedding: Some(Embedding { model: "test@1".into(), vector: vector.to_vec() }),
            }],
            texts: vec![DetectedText {
                text: bib.to_owned(),
                bounding_box: BoundingBox { left, top: 0.4, width: 0.1, height: 0.1 },
                confidence: 0.95,
                max_confidence: 1.0,
                index_state: TextIndexState::Indexed,
                read: None,
                lattice: None,
            }],
        };
        let one = [found(0.1, [1.0, 0.0], "12"), found(0.5, [1.0, 0.0], "34")];
        let two = [found(0.1, [0.8, 0.6], "12"), found(0.7, [1.0, 0.0], "35")];
        let agreement = compare_found(&one, &two);
        assert_eq!((agreement.faces, agreement.faces_both), (3, 1));
        assert_eq!((agreement.texts, agreement.texts_both), (3, 1));
        assert!((agreement.least_cosine - 0.8).abs() < 1e-6, "only faces that are the same are compared");
    }

    #[test]
    fn a_score_and_a_vector_that_are_not_numbers_meet_no_goal() {
        let of = |score: f32, vector: [f32; 2]| DeviceReadings {
            faces: vec![vec![face(0.0, score), face(500.0, 0.8)]],
            vectors: vec![vector.to_vec(), vec![1.0, 0.0]],
            ..DeviceReadings::default()
        };
        let agreement = compare_readings(&of(0.9, [1.0, 0.0]), &of(f32::NAN, [f32::NAN, 0.0]));
        assert_eq!((agreement.faces_both, agreement.score_difference), (2, f64::INFINITY));
        assert_eq!(agreement.least_cosine, -1.0);
    }

    #[test]
    fn a_text_accepted_on_one_device_alone_is_counted_and_guesses_are_not() {
        let text = |text: &str, confidence| ObservedText { text: text.to_owned(), confidence, is_bib: true };
        let of =
            |texts: Vec<ObservedText>| DeviceReadings { texts: vec![texts], ..DeviceReadings::default() };
        let agreement = compare_readings(
            &of(vec![text("12", 0.99), text("34", 0.95)]),
            &of(vec![text("12", 0.98), text("5", 0.6)]),
        );
        assert_eq!((agreement.texts, agreement.texts_both), (2, 1));
    }
}
