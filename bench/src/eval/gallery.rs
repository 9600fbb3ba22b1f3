//! Vectors of the labelled faces, made by the networks directly: for the race photos, of the found face that overlaps
//! the label; for a portrait, of its largest face.

use std::path::Path;

use anyhow::Context as _;
use photofinish_kernels::frame::Picture;
use photofinish_kernels::geometry::Rect;
use photofinish_models::traits::{FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelFactory};

use crate::photos::enlarge;
use crate::photos::labels::{LabelledFace, LabelledPortrait};

/// The long side at which the pipeline looks for faces first.
const FACE_LONG_SIDE: u32 = 640;

/// A found face is the labelled one when the boxes share this part of their union.
const SAME_FACE_IOU: f32 = 0.2;

/// A labelled face and its vector.
pub struct LabelledVector {
    /// Its photo.
    pub file: String,
    /// A bib or a person's name.
    pub person: String,
    /// Unit length.
    pub vector: Vec<f32>,
}

/// Finds and embeds faces.
pub struct Gallery {
    detector: Box<dyn FaceDetector>,
    embedder: Box<dyn FaceEmbedder>,
}

impl Gallery {
    /// Loads the networks.
    ///
    /// # Errors
    /// When they do not serve.
    pub fn new(factory: &dyn ModelFactory) -> anyhow::Result<Self> {
        Ok(Self { detector: factory.create_face_detector()?, embedder: factory.create_face_embedder()? })
    }

    /// The embedder's name and version.
    pub fn embedder_identity(&self) -> String {
        self.embedder.identity().to_string()
    }

    /// The labelled faces that were found.
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
            known.push(self.embed_labelled(&picture, best, (&face.file, &face.bib))?);
        }
        Ok(known)
    }

    /// The largest face of each portrait that has one.
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
            known.push(self.embed_labelled(&picture, largest, (&portrait.file, &portrait.person))?);
        }
        Ok(known)
    }

    fn find_faces(&mut self, picture: &Picture) -> anyhow::Result<Vec<FaceBox>> {
        let found = self.detector.detect(&[picture.frame()], FACE_LONG_SIDE)?;
        found.into_iter().next().context("the detector answers every frame")
    }

    fn embed_labelled(
        &mut self,
        picture: &Picture,
        face: &FaceBox,
        whose: (&str, &str),
    ) -> anyhow::Result<LabelledVector> {
        let crop = FaceCrop { frame: picture.frame(), landmarks: face.landmarks };
        let embedded = self.embedder.embed(&[crop])?;
        let vector = embedded.into_iter().next().context("the embedder answers every face")?.vector;
        Ok(LabelledVector { file: whose.0.to_owned(), person: whose.1.to_owned(), vector })
    }
}

/// The cosine of two unit vectors.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// A photo in memory, at the size of the pipeline's working frame at most.
///
/// # Errors
/// When it is not there or no picture.
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
