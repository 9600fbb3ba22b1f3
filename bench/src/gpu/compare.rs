//! Whether two sets of networks say the same of the same photos.

use std::collections::BTreeSet;

use photofinish_kernels::frame::Picture;
use photofinish_models::traits::{BibPattern, BibText, FaceBox, FaceCrop, ModelFactory, ReadRequest};

use crate::report::Table;

/// As the pipeline's defaults.
const FACE_LONG_SIDE: u32 = 640;
const PATTERN: &str = "[A-Z]{0,2}[0-9]{2,5}[A-Z]?";

/// A text from here on is an answer; below it is a guess, and guesses may differ.
const ACCEPT: f32 = 0.9;

/// Boxes that overlap so are of the same face.
const SAME_FACE: f32 = 0.5;

/// How well two devices agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// Faces that either found.
    pub faces: usize,
    /// Of these, found by both.
    pub faces_both: usize,
    /// Least intersection over union of such a pair.
    pub least_overlap: f64,
    /// Largest difference of their scores.
    pub score_difference: f64,
    /// Least cosine between the vectors of the same landmarks.
    pub least_cosine: f64,
    /// Accepted texts that either read, by photo.
    pub texts: usize,
    /// Of these, read by both.
    pub texts_both: usize,
}

impl Agreement {
    /// 0 to 1; 1 when there is nothing.
    pub fn faces_shared(&self) -> f64 {
        share(self.faces_both, self.faces)
    }

    /// 0 to 1; 1 when there is nothing.
    pub fn texts_shared(&self) -> f64 {
        share(self.texts_both, self.texts)
    }

    /// As a table.
    pub fn table(&self) -> Table {
        let mut table = Table::new("Agreement", &["what", "figure"]);
        table.row([
            "faces found by both, of all".to_owned(),
            format!("{} of {}", self.faces_both, self.faces),
        ]);
        table.row(["least overlap of their boxes".to_owned(), format!("{:.4}", self.least_overlap)]);
        table.row(["largest difference of score".to_owned(), format!("{:.5}", self.score_difference)]);
        table.row(["least cosine of vectors".to_owned(), format!("{:.6}", self.least_cosine)]);
        table.row([
            "accepted texts read by both, of all".to_owned(),
            format!("{} of {}", self.texts_both, self.texts),
        ]);
        table
    }
}

fn share(both: usize, all: usize) -> f64 {
    if all == 0 { 1.0 } else { both as f64 / all as f64 }
}

/// Reads every picture with both. Batches are as large as each device likes them.
///
/// # Errors
/// When a network fails.
pub fn compare(
    one: &dyn ModelFactory,
    two: &dyn ModelFactory,
    pictures: &[Picture],
) -> anyhow::Result<Agreement> {
    let mut agreement = Agreement {
        faces: 0,
        faces_both: 0,
        least_overlap: 1.0,
        score_difference: 0.0,
        least_cosine: 1.0,
        texts: 0,
        texts_both: 0,
    };
    let (faces, others) = (detect(one, pictures)?, detect(two, pictures)?);
    for (faces, others) in faces.iter().zip(&others) {
        agreement.count_faces(faces, others);
    }
    // Both embed the same landmarks and read under the same faces: each network is compared alone.
    let (vectors, other_vectors) = (embed(one, pictures, &faces)?, embed(two, pictures, &faces)?);
    for (a, b) in vectors.iter().zip(&other_vectors) {
        let cosine = crate::eval::gallery::cosine(a, b);
        agreement.least_cosine = agreement.least_cosine.min(cosine);
    }
    let (texts, other_texts) = (read(one, pictures, &faces)?, read(two, pictures, &faces)?);
    for (a, b) in texts.iter().zip(&other_texts) {
        let (a, b) = (accepted(a), accepted(b));
        agreement.texts += a.union(&b).count();
        agreement.texts_both += a.intersection(&b).count();
    }
    Ok(agreement)
}

impl Agreement {
    fn count_faces(&mut self, faces: &[FaceBox], others: &[FaceBox]) {
        let mut both = 0;
        for face in faces {
            let best = others.iter().max_by(|a, b| a.rect.iou(&face.rect).total_cmp(&b.rect.iou(&face.rect)));
            let Some(best) = best.filter(|best| best.rect.iou(&face.rect) >= SAME_FACE) else { continue };
            both += 1;
            self.least_overlap = self.least_overlap.min(f64::from(best.rect.iou(&face.rect)));
            self.score_difference = self.score_difference.max(f64::from((best.score - face.score).abs()));
        }
        self.faces += faces.len() + others.len() - both;
        self.faces_both += both;
    }
}

fn detect(models: &dyn ModelFactory, pictures: &[Picture]) -> anyhow::Result<Vec<Vec<FaceBox>>> {
    let mut detector = models.face_detector()?;
    let mut faces = Vec::new();
    for batch in pictures.chunks(models.batch_sizes().detect.max(1)) {
        let frames: Vec<_> = batch.iter().map(Picture::frame).collect();
        faces.extend(detector.detect(&frames, FACE_LONG_SIDE)?);
    }
    Ok(faces)
}

fn embed(
    models: &dyn ModelFactory,
    pictures: &[Picture],
    faces: &[Vec<FaceBox>],
) -> anyhow::Result<Vec<Vec<f32>>> {
    let mut embedder = models.face_embedder()?;
    let mut crops = Vec::new();
    for (picture, faces) in pictures.iter().zip(faces) {
        crops.extend(faces.iter().map(|face| FaceCrop { frame: picture.frame(), landmarks: face.landmarks }));
    }
    let mut vectors = Vec::new();
    for batch in crops.chunks(models.batch_sizes().embed.max(1)) {
        vectors.extend(embedder.embed(batch)?.into_iter().map(|face| face.vector));
    }
    Ok(vectors)
}

fn read(
    models: &dyn ModelFactory,
    pictures: &[Picture],
    faces: &[Vec<FaceBox>],
) -> anyhow::Result<Vec<Vec<BibText>>> {
    let mut reader = models.bib_reader()?;
    let pattern = BibPattern::new(PATTERN)?;
    let mut requests = Vec::new();
    for (picture, faces) in pictures.iter().zip(faces) {
        requests.push(ReadRequest { frame: picture.frame(), faces, pattern: &pattern });
    }
    let mut texts = Vec::new();
    for batch in requests.chunks(models.batch_sizes().read.max(1)) {
        texts.extend(reader.read(batch)?);
    }
    Ok(texts)
}

fn accepted(texts: &[BibText]) -> BTreeSet<&str> {
    texts
        .iter()
        .filter(|text| text.is_bib && text.confidence >= ACCEPT)
        .map(|text| text.text.as_str())
        .collect()
}
