//! The face detector of the registry set: adapts the library libfacedetection to [`FaceDetector`].

use std::path::Path;

use photofinish_kernels::geometry::{Point, Rect};
use photofinish_kernels::image::frame::Frame;
use photofinish_kernels::resize::{ResizeTarget, Resizer};
use photofinish_libfacedetection::{FaceDetectCnn, RawFace};

use crate::traits::{FaceBox, FaceDetector, ModelError, ModelIdentity};

/// The library's static tables end at about 960 px; larger pictures fail silently.
const MAX_LONG_SIDE: u32 = 960;

/// The libfacedetection detector. Keeps its buffers between calls.
pub struct Libfacedetection {
    library: FaceDetectCnn,
    score_threshold: f32,
    identity: ModelIdentity,
    resizer: Resizer,
    pixels: Vec<u8>,
}

impl Libfacedetection {
    /// Loads `library` and its OpenMP runtime. Faces with a score below `score_threshold` (0 to 1) are dropped.
    ///
    /// # Errors
    /// `File` when one of them cannot be loaded.
    pub fn open(
        library: &Path,
        openmp: &Path,
        score_threshold: f32,
        identity: ModelIdentity,
    ) -> Result<Self, ModelError> {
        let library = FaceDetectCnn::open(library, openmp)
            .map_err(|error| ModelError::File { name: identity.name.clone(), detail: error.to_string() })?;
        let resizer = Resizer::default();
        Ok(Self { library, score_threshold, identity, resizer, pixels: Vec::new() })
    }

    fn detect_one(&mut self, frame: Frame<'_>, long_side: u32) -> Result<Vec<FaceBox>, ModelError> {
        let size = frame.size().fit_within(long_side.min(MAX_LONG_SIDE));
        let target = ResizeTarget::for_network_input(frame.size(), size);
        self.resizer.resize(frame.as_window(), target, &mut self.pixels);
        self.pixels.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2));
        let found = self.library.detect(&mut self.pixels, size.width, size.height).map_err(|error| {
            ModelError::Inference { name: self.identity.name.clone(), detail: error.to_string() }
        })?;
        let scale = Point {
            x: frame.width() as f32 / size.width as f32,
            y: frame.height() as f32 / size.height as f32,
        };
        let mut faces: Vec<FaceBox> = found
            .iter()
            .map(|face| to_face_box(face, scale))
            .filter(|face| face.score >= self.score_threshold)
            .collect();
        faces.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(faces)
    }
}

impl FaceDetector for Libfacedetection {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        frames.iter().map(|frame| self.detect_one(*frame, long_side)).collect()
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

fn to_face_box(face: &RawFace, scale: Point) -> FaceBox {
    let to_frame = |x: i16, y: i16| Point { x: f32::from(x) * scale.x, y: f32::from(y) * scale.y };
    let [left, top, width, height] = face.bounding_box;
    let top_left = to_frame(left, top);
    let bottom_right = to_frame(left.saturating_add(width), top.saturating_add(height));
    FaceBox {
        rect: Rect { left: top_left.x, top: top_left.y, right: bottom_right.x, bottom: bottom_right.y },
        landmarks: face.landmarks.map(|[x, y]| to_frame(x, y)),
        score: f32::from(face.confidence) / 100.0,
    }
}
