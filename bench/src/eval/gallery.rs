//! Embeds the faces of the labelled photos with the networks directly: in race photos all detected faces, in portraits the
//! largest face.

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

/// A face with its embedding.
#[derive(Clone, Debug)]
pub struct EmbeddedFace {
    /// File of its photo.
    pub file: String,
    /// Bib or name of the person; `None` where nobody knows.
    pub person: Option<String>,
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

    /// Embeds all faces of a photo. The one that overlaps a label most gets its bib.
    ///
    /// # Errors
    /// When the photo cannot be read or a network fails.
    pub fn embed_photo(
        &mut self,
        folder: &Path,
        file: &str,
        labels: &[LabelledFace],
    ) -> anyhow::Result<Vec<EmbeddedFace>> {
        let picture = load_working_frame(&folder.join(file))?;
        let found = self.find_faces(&picture)?;
        let mut persons: Vec<Option<String>> = vec![None; found.len()];
        for label in labels.iter().filter(|label| label.file == file) {
            let [left, top, right, bottom] = label.face_box.map(|side| side as f32);
            let place = Rect { left, top, right, bottom };
            let overlaps = found.iter().enumerate().map(|(index, face)| (index, face.rect.iou(&place)));
            if let Some((index, overlap)) = overlaps.max_by(|a, b| a.1.total_cmp(&b.1))
                && overlap >= SAME_FACE_IOU
            {
                persons[index] = Some(label.bib.clone());
            }
        }
        let faces = found.iter().zip(persons);
        faces
            .map(|(face, person)| {
                Ok(EmbeddedFace { file: file.to_owned(), person, vector: self.embed(&picture, face)? })
            })
            .collect()
    }

    /// Embeds the largest face of a portrait, after shrinking it so that the face has this width in pixels. `None` when
    /// no face is found.
    ///
    /// # Errors
    /// When the photo cannot be read or a network fails.
    pub fn embed_portrait(
        &mut self,
        folder: &Path,
        portrait: &LabelledPortrait,
        face_width: Option<f64>,
    ) -> anyhow::Result<Option<EmbeddedFace>> {
        let mut picture = load_working_frame(&folder.join(&portrait.file))?;
        let mut largest = largest_face(self.find_faces(&picture)?);
        if let (Some(width), Some(face)) = (face_width, &largest) {
            let frame = picture.frame();
            let zoom = (width / f64::from(face.rect.right - face.rect.left)).min(1.0);
            let shrunk = |length: u32| ((f64::from(length) * zoom).round() as u32).max(1);
            let photo = load_photo(&folder.join(&portrait.file), frame.width().max(frame.height()))?;
            let small = enlarge::resample(&photo, shrunk(photo.width()), shrunk(photo.height()))?;
            let (width, height) = small.dimensions();
            picture = Picture::new(small.into_raw(), width, height)?;
            largest = largest_face(self.find_faces(&picture)?);
        }
        let Some(face) = largest else { return Ok(None) };
        let vector = self.embed(&picture, &face)?;
        Ok(Some(EmbeddedFace { file: portrait.file.clone(), person: Some(portrait.person.clone()), vector }))
    }

    fn find_faces(&mut self, picture: &Picture) -> anyhow::Result<Vec<FaceBox>> {
        let found = self.detector.detect(&[picture.frame()], FACE_LONG_SIDE)?;
        found.into_iter().next().context("the detector returns one result per frame")
    }

    fn embed(&mut self, picture: &Picture, face: &FaceBox) -> anyhow::Result<Vec<f32>> {
        let crop = FaceCrop::new(picture.frame(), face.landmarks);
        let embedded = self.embedder.embed(&[crop])?;
        Ok(embedded.into_iter().next().context("the embedder returns one result per face")?.vector)
    }
}

fn largest_face(found: Vec<FaceBox>) -> Option<FaceBox> {
    found.into_iter().max_by(|a, b| a.rect.area().total_cmp(&b.rect.area()))
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
    let photo = load_photo(path, WORKING_LONG_SIDE)?;
    let (width, height) = photo.dimensions();
    Ok(Picture::new(photo.into_raw(), width, height)?)
}

/// Loads a photo, shrunk until its long side has at most this many pixels.
fn load_photo(path: &Path, long_side: u32) -> anyhow::Result<image::RgbImage> {
    let photo = enlarge::load_picture(path)?;
    let long = photo.width().max(photo.height());
    if long <= long_side {
        return Ok(photo);
    }
    let side = |length: u32| (f64::from(length) * f64::from(long_side) / f64::from(long)).round() as u32;
    enlarge::resample(&photo, side(photo.width()).max(1), side(photo.height()).max(1))
}
