//! Embeds the labelled faces with the networks directly: in race photos the detected face that overlaps the label, in
//! portraits the largest face.

use std::path::Path;

use anyhow::Context as _;
use photofinish_kernels::geometry::Rect;
use photofinish_kernels::image::frame::Picture;
use photofinish_models::traits::{FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelFactory};

use crate::photos::enlarge;
use crate::photos::labels::{LabelledFace, LabelledPortrait};

/// Long side of the pipeline's first face detection, in pixels.
const FACE_LONG_SIDE: u32 = 640;

/// Least intersection over union of a detected face with the label.
const SAME_FACE_IOU: f32 = 0.2;

/// A labelled face with its embedding.
pub struct LabelledVector {
    /// File of its photo.
    pub file: String,
    /// Bib or name of the person.
    pub person: String,
    /// Embedding of length 1.
    pub vector: Vec<f32>,
}

/// Detects and embeds faces.
pub struct Gallery {
    detector: Box<dyn FaceDetector>,
    embedder: Box<dyn FaceEmbedder>,
}

impl Gallery {
    /// Loads the networks.
    ///
    /// # Errors
    /// When they cannot be loaded.
    pub fn new(factory: &dyn ModelFactory) -> anyhow::Result<Self> {
        Ok(Self { detector: factory.create_face_detector()?, embedder: factory.create_face_embedder()? })
    }

    /// Returns the embedder's name and version.
    pub fn embedder_identity(&self) -> String {
        self.embedder.identity().to_string()
    }

    /// Embeds the labelled faces of runners; those not detected are left out.
    ///
    /// # Errors
    /// When a photo cannot be read or a network fails.
    pub fn embed_runners(
        &mut self,
        folder: &Path,
        faces: &[LabelledFace],
    ) -> anyhow::Result<Vec<LabelledVector>> {
        let mut known = Vec::new();
        for face in faces {
            let picture = load_working_frame(&folder.join(&face.file))?;
            let found = self.find_faces(&picture)?;
            let [left, top, right, bottom] = face.face_box.map(|side| side as f32);
            let label = Rect { left, top, right, bottom };
            let overlap = |found: &FaceBox| found.rect.iou(&label);
            let best = found.iter().max_by(|a, b| overlap(a).total_cmp(&overlap(b)));
            let Some(best) = best.filter(|best| overlap(best) >= SAME_FACE_IOU) else { continue };
            known.push(self.embed_labelled(&picture, best, &face.file, &face.bib)?);
        }
        Ok(known)
    }

    /// Embeds the largest face of each portrait; portraits without a face are left out.
    ///
    /// # Errors
    /// When a photo cannot be read or a network fails.
    pub fn embed_portraits(
        &mut self,
        folder: &Path,
        portraits: &[LabelledPortrait],
    ) -> anyhow::Result<Vec<LabelledVector>> {
        let mut known = Vec::new();
        for portrait in portraits {
            let picture = load_working_frame(&folder.join(&portrait.file))?;
            let found = self.find_faces(&picture)?;
            let largest = found.iter().max_by(|a, b| a.rect.area().total_cmp(&b.rect.area()));
            let Some(largest) = largest else { continue };
            known.push(self.embed_labelled(&picture, largest, &portrait.file, &portrait.person)?);
        }
        Ok(known)
    }

    fn find_faces(&mut self, picture: &Picture) -> anyhow::Result<Vec<FaceBox>> {
        let found = self.detector.detect(&[picture.frame()], FACE_LONG_SIDE)?;
        found.into_iter().next().context("the detector returns one result per frame")
    }

    fn embed_labelled(
        &mut self,
        picture: &Picture,
        face: &FaceBox,
        file: &str,
        person: &str,
    ) -> anyhow::Result<LabelledVector> {
        let crop = FaceCrop { frame: picture.frame(), landmarks: face.landmarks };
        let embedded = self.embedder.embed(&[crop])?;
        let vector = embedded.into_iter().next().context("the embedder returns one result per face")?.vector;
        Ok(LabelledVector { file: file.to_owned(), person: person.to_owned(), vector })
    }
}

/// Returns the cosine of two unit vectors.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Loads a photo, shrunk to at most the size of the pipeline's working frame.
///
/// # Errors
/// When it is missing or not a picture.
pub fn load_working_frame(path: &Path) -> anyhow::Result<Picture> {
    const WORKING_LONG_SIDE: u32 = 2048;
    let photo = enlarge::load_picture(path)?;
    let long = photo.width().max(photo.height());
    let photo = if long > WORKING_LONG_SIDE {
        let side =
            |length: u32| (f64::from(length) * f64::from(WORKING_LONG_SIDE) / f64::from(long)).round() as u32;
        enlarge::resample(&photo, side(photo.width()).max(1), side(photo.height()).max(1))?
    } else {
        photo
    };
    let (width, height) = photo.dimensions();
    Ok(Picture::new(photo.into_raw(), width, height)?)
}
