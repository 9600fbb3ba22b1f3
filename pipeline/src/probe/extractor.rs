//! What is done with a selfie: decoded like a photo, within the same limits but for fewer pixels, turned upright,
//! searched for faces; the largest becomes a vector. Knows nothing of who waits for it.

use photofinish_kernels::frame::{Frame, Picture, Size};
use photofinish_kernels::resize::{ResizeTarget, Resizer};
use photofinish_models::traits::{FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelError, ModelFactory};

use crate::engine::fault::{Component, Outage, Poison};
use crate::image::decoder::Decoder;
use crate::image::exif::ExifData;
use crate::image::pool::{PixelPool, PooledPicture};
use crate::image::upright_resizer::UprightResizer;
use crate::settings::Limits;
use crate::stages::inference::grey_frame;

/// The long side of the frame that the vector is made from: a selfie's face is large, more pixels gain nothing.
const FRAME_LONG_SIDE: u32 = 1280;

/// Most pixels of a selfie, unless photos may have fewer still: what phones call 64 megapixels, which is up to 9248 x
/// 6936. Any runner may send one, and it is decoded in the process of the API, without a budget.
const MAX_SELFIE_PIXELS: u64 = 64 << 20;

/// Long sides at which faces are looked for, in turn, until there is one. At 640 the detector finds faces from 10
/// pixels to most of the frame; one that fills it is found when everything is smaller, one far away when it is larger.
const DETECTION_LONG_SIDES: [u32; 3] = [640, 256, FRAME_LONG_SIDE];

/// A picture that is little more than a face, as cut out by an app or a person, has no surroundings, which detectors
/// count on: so much of its long side is put around it as grey.
const BORDER_FRACTION: f64 = 0.5;

/// And it is brought to at least this long side with its border.
const MIN_BORDERED_LONG_SIDE: u32 = 320;

/// A selfie's largest face.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeFace {
    /// Unit length.
    pub vector: Vec<f32>,
    /// Name and version of the network that made it.
    pub model: String,
}

/// Owns what selfies need; one a thread.
pub(crate) struct FaceExtractor {
    decoder: Decoder,
    shrinker: UprightResizer,
    resizer: Resizer,
    detector: Box<dyn FaceDetector>,
    embedder: Box<dyn FaceEmbedder>,
    model: String,
    limits: Limits,
}

/// Why a selfie has no vector.
#[derive(Debug)]
pub(crate) enum ExtractionError {
    NoFace,
    Unreadable(Poison),
    Unavailable(Outage),
}

impl From<Poison> for ExtractionError {
    fn from(poison: Poison) -> Self {
        Self::Unreadable(poison)
    }
}

impl From<ModelError> for ExtractionError {
    fn from(error: ModelError) -> Self {
        Self::Unavailable(Outage::from(error))
    }
}

impl FaceExtractor {
    /// # Errors
    /// When the networks do not serve.
    pub(crate) fn new(models: &dyn ModelFactory, limits: Limits) -> Result<Self, Outage> {
        let limits = Limits { max_pixels: limits.max_pixels.min(MAX_SELFIE_PIXELS), ..limits };
        let pool = PixelPool::default();
        let decoder = Decoder::new(limits, pool.clone())
            .map_err(|error| Outage::new(Component::Stage("probe"), error.to_string()))?;
        let embedder = models.create_face_embedder()?;
        let model = embedder.identity().to_string();
        let shrinker = UprightResizer::new(pool);
        let detector = models.create_face_detector()?;
        Ok(Self { decoder, shrinker, resizer: Resizer::default(), detector, embedder, model, limits })
    }

    /// The vector of the largest face.
    pub(crate) fn extract(&mut self, selfie: &[u8]) -> Result<ProbeFace, ExtractionError> {
        let frame = self.decode_upright(selfie)?;
        if let Some(face) = self.find_largest_face(frame.frame())? {
            return self.embed_face(frame.frame(), &face);
        }
        let bordered = self.add_border(frame.frame());
        match self.find_largest_face(bordered.frame())? {
            Some(face) => self.embed_face(bordered.frame(), &face),
            None => Err(ExtractionError::NoFace),
        }
    }

    fn decode_upright(&mut self, selfie: &[u8]) -> Result<PooledPicture, Poison> {
        use photofinish_store::model::photo::FailureReason;
        if selfie.len() as u64 > self.limits.max_file_bytes {
            return Err(Poison::new(FailureReason::TooLarge, format!("{} bytes", selfie.len())));
        }
        let notes = ExifData::read(selfie);
        let plan = self.decoder.plan(selfie, |_| FRAME_LONG_SIDE)?;
        let stored = self.decoder.decode(selfie, &plan)?;
        let size = notes.orientation.transform_size(plan.stored_size).fit_within(FRAME_LONG_SIDE);
        Ok(self.shrinker.resize_upright(stored.frame(), notes.orientation, size))
    }

    /// The largest face, by the first look that shows any.
    fn find_largest_face(&mut self, frame: Frame<'_>) -> Result<Option<FaceBox>, ExtractionError> {
        let mut looked_at: Option<u32> = None;
        for look in DETECTION_LONG_SIDES {
            let seen_at = look.min(frame.long_side());
            if looked_at == Some(seen_at) {
                continue;
            }
            looked_at = Some(seen_at);
            let faces = match self.detector.detect(&[frame], look) {
                Ok(mut faces) => faces.pop().unwrap_or_default(),
                Err(error) => return Err(self.classify_failure(error)),
            };
            let largest = faces.into_iter().max_by(|a, b| a.rect.area().total_cmp(&b.rect.area()));
            if largest.is_some() {
                return Ok(largest);
            }
        }
        Ok(None)
    }

    fn embed_face(&mut self, frame: Frame<'_>, face: &FaceBox) -> Result<ProbeFace, ExtractionError> {
        let mut faces = self.embedder.embed(&[FaceCrop { frame, landmarks: face.landmarks }])?;
        match faces.pop() {
            Some(face) if face.vector.iter().all(|value| value.is_finite()) => {
                Ok(ProbeFace { vector: face.vector, model: self.model.clone() })
            }
            _ => Err(ExtractionError::NoFace),
        }
    }

    /// The selfie's fault, when the detector is sound.
    fn classify_failure(&mut self, error: ModelError) -> ExtractionError {
        use photofinish_store::model::photo::FailureReason;
        match self.detector.detect(&[grey_frame()], DETECTION_LONG_SIDES[0]) {
            Ok(_) => {
                ExtractionError::Unreadable(Poison::new(FailureReason::ProcessingCrashed, error.to_string()))
            }
            Err(_) => ExtractionError::from(error),
        }
    }

    /// The frame in the middle of a grey one.
    fn add_border(&mut self, frame: Frame<'_>) -> Picture {
        let border = f64::from(frame.long_side()) * BORDER_FRACTION;
        let whole = f64::from(frame.long_side()) + 2.0 * border;
        let scale =
            (f64::from(MIN_BORDERED_LONG_SIDE) / whole).max(f64::from(FRAME_LONG_SIDE).min(whole) / whole);
        let scaled = |side: f64| ((side * scale).round() as u32).max(1);
        let inner = Size { width: scaled(frame.width().into()), height: scaled(frame.height().into()) };
        let margin = scaled(border);
        let outer = Size { width: inner.width + 2 * margin, height: inner.height + 2 * margin };
        let mut shrunk = Vec::new();
        self.resizer.resize(
            frame.as_window(),
            ResizeTarget::for_network_input(frame.size(), inner),
            &mut shrunk,
        );
        let mut pixels = vec![128; outer.area() * 3];
        let (row_bytes, stride) = (inner.width as usize * 3, outer.width as usize * 3);
        let begin = margin as usize * (stride + 3);
        for (i, row) in shrunk.chunks_exact(row_bytes).enumerate() {
            pixels[begin + i * stride..][..row_bytes].copy_from_slice(row);
        }
        Picture::new(pixels, outer.width, outer.height).expect("made of width * height * 3 bytes")
    }
}

#[cfg(test)]
mod tests {
    use photofinish_models::fakes::FakeModels;
    use photofinish_store::model::photo::FailureReason;

    use super::*;

    /// The first bytes of a PNG.
    fn png_header(width: u32, height: u32) -> Vec<u8> {
        let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        file.extend(width.to_be_bytes());
        file.extend(height.to_be_bytes());
        file
    }

    #[test]
    fn a_selfie_has_fewer_pixels_than_a_photo_may_have() {
        let limits = Limits { max_file_bytes: 10 << 20, max_pixels: 200_000_000 };
        let mut examiner = FaceExtractor::new(&FakeModels::default(), limits).unwrap();
        let mut reason = |width, height| match examiner.extract(&png_header(width, height)) {
            Err(ExtractionError::Unreadable(poison)) => poison.reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(9249, 9249), FailureReason::TooManyPixels);
        // It is decoded, and ends early.
        assert_eq!(reason(9248, 6936), FailureReason::CorruptImage);
    }

    #[test]
    fn a_lower_limit_for_photos_applies_to_selfies_too() {
        let limits = Limits { max_file_bytes: 10 << 20, max_pixels: 1_000_000 };
        let mut examiner = FaceExtractor::new(&FakeModels::default(), limits).unwrap();
        let Err(ExtractionError::Unreadable(poison)) = examiner.extract(&png_header(1001, 1000)) else {
            panic!("it was read");
        };
        assert_eq!(poison.reason, FailureReason::TooManyPixels);
    }
}
