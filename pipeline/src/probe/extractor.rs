//! Processes one selfie: decodes it like a photo but with a lower limit of pixels, makes it upright, detects faces and
//! embeds the largest one. It knows nothing of requests and queues.

use std::time::Duration;

use photofinish_kernels::image::frame::{Frame, Picture, Size};
use photofinish_kernels::resize::{ResizeTarget, Resizer};
use photofinish_models::traits::{FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelError, ModelFactory};
use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::{Component, Outage, Poison};
use crate::image::decoder::Decoder;
use crate::image::exif::ExifData;
use crate::image::pool::{BufferPool, PooledPicture};
use crate::image::upright_resizer::UprightResizer;
use crate::settings::Limits;
use crate::stages::embed;
use crate::stages::inference::grey_frame;

/// The long side, in pixels, of the frame from which the face is embedded: faces in selfies are large, so more pixels
/// gain nothing.
const FRAME_LONG_SIDE: u32 = 1280;

/// The most pixels of a decoded selfie, unless the limit for photos is lower: 24 megapixels, as phones count them. A
/// JPEG may have more, because it is decoded at a smaller scale. Anyone may send a selfie, and it is decoded in the API's
/// process, without a budget: 64 megapixels of one colour are a PNG of 200 kB and 192 MB of pixels.
const MAX_SELFIE_PIXELS: u64 = 24 << 20;

/// The long sides, in pixels, at which faces are detected, in turn, until one is found. At 640 the detector finds faces
/// from 10 pixels to most of the frame. A face that fills the frame is found at a smaller size, a distant one at a
/// larger.
const DETECTION_LONG_SIDES: [u32; 3] = [640, 256, FRAME_LONG_SIDE];

/// The width of the grey border put around an image in which no face was found, as a fraction of its long side.
/// Detectors need the surroundings of a face, which images cropped to the face do not have.
const BORDER_FRACTION: f64 = 0.5;

/// The smallest long side of an image with its border, in pixels.
const MIN_BORDERED_LONG_SIDE: u32 = 320;

/// The largest face of a selfie.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeFace {
    /// The embedding, of unit length.
    pub vector: Vec<f32>,
    /// The name and version of the model that made it.
    pub model: String,
}

/// The decoder and the models for selfies, one instance per thread.
pub(crate) struct FaceExtractor {
    decoder: Decoder,
    upright_resizer: UprightResizer,
    resizer: Resizer,
    detector: Box<dyn FaceDetector>,
    embedder: Box<dyn FaceEmbedder>,
    model: String,
    limits: Limits,
    pool: BufferPool,
}

/// Why no face was extracted.
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
    /// Loads the models.
    ///
    /// # Errors
    /// When a model cannot be loaded, or libjpeg-turbo has no memory.
    pub(crate) fn new(models: &dyn ModelFactory, limits: Limits) -> Result<Self, Outage> {
        let pool = BufferPool::default();
        let decoder = Decoder::with_max_decoded_pixels(MAX_SELFIE_PIXELS, limits, pool.clone())
            .map_err(|error| Outage::new(Component::Stage("probe"), error.to_string()))?;
        let embedder = models.create_face_embedder()?;
        let model = embedder.identity().to_string();
        let upright_resizer = UprightResizer::new(pool.clone());
        let (resizer, detector) = (Resizer::default(), models.create_face_detector()?);
        Ok(Self { decoder, upright_resizer, resizer, detector, embedder, model, limits, pool })
    }

    /// Runs both networks, on a grey frame.
    ///
    /// # Errors
    /// When one of them does not run.
    pub(crate) fn try_networks(&mut self) -> Result<(), Outage> {
        self.detector.detect(&[grey_frame()], DETECTION_LONG_SIDES[0])?;
        Ok(embed::self_test(self.embedder.as_mut())?)
    }

    /// Frees the buffers that were kept for the next selfie.
    pub(crate) fn free_buffers(&self) {
        self.pool.free_idle_for(Duration::ZERO);
    }

    /// Returns the embedding of the largest face. If none is found, tries again with a border around the image.
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
        if selfie.len() as u64 > self.limits.max_file_bytes {
            return Err(Poison::new(FailureReason::TooLarge, format!("{} bytes", selfie.len())));
        }
        let exif = ExifData::read(selfie);
        let plan = self.decoder.plan(selfie, |_| FRAME_LONG_SIDE)?;
        let stored = self.decoder.decode(selfie, &plan)?;
        let size = exif.orientation.transform_size(plan.stored_size).fit_within(FRAME_LONG_SIDE);
        Ok(self.upright_resizer.resize_upright(stored.frame(), exif.orientation, size))
    }

    /// Returns the largest face at the first of [`DETECTION_LONG_SIDES`] at which any is found.
    fn find_largest_face(&mut self, frame: Frame<'_>) -> Result<Option<FaceBox>, ExtractionError> {
        let mut previous_side: Option<u32> = None;
        for long_side in DETECTION_LONG_SIDES {
            // The detector does not enlarge, so a small frame may be the same at two sizes.
            let effective_side = long_side.min(frame.long_side());
            if previous_side == Some(effective_side) {
                continue;
            }
            previous_side = Some(effective_side);
            let largest = self
                .detect(frame, long_side)?
                .into_iter()
                .max_by(|a, b| a.rect.area().total_cmp(&b.rect.area()));
            if largest.is_some() {
                return Ok(largest);
            }
        }
        Ok(None)
    }

    fn embed_face(&mut self, frame: Frame<'_>, face: &FaceBox) -> Result<ProbeFace, ExtractionError> {
        let mut faces = self.embedder.embed(&[FaceCrop::new(frame, face.landmarks)])?;
        match faces.pop() {
            Some(face) if face.vector.iter().all(|value| value.is_finite()) => {
                Ok(ProbeFace { vector: face.vector, model: self.model.clone() })
            }
            _ => Err(ExtractionError::NoFace),
        }
    }

    /// Detects faces. A failure is the selfie's, for which it is refused for good, if it comes again and the detector works on a
    /// grey frame. A lack of memory never is: others may have it now.
    fn detect(&mut self, frame: Frame<'_>, long_side: u32) -> Result<Vec<FaceBox>, ExtractionError> {
        let failure = match self.detector.detect(&[frame], long_side) {
            Ok(mut faces) => return Ok(faces.pop().unwrap_or_default()),
            Err(failure) => failure,
        };
        if self.detector.detect(&[grey_frame()], DETECTION_LONG_SIDES[0]).is_err() {
            return Err(ExtractionError::from(failure));
        }
        match self.detector.detect(&[frame], long_side) {
            Ok(mut faces) => Ok(faces.pop().unwrap_or_default()),
            Err(failure @ ModelError::OutOfMemory { .. }) => Err(ExtractionError::from(failure)),
            Err(failure) => {
                let poison = Poison::new(FailureReason::ProcessingCrashed, failure.to_string());
                Err(ExtractionError::Unreadable(poison))
            }
        }
    }

    /// Returns the frame in the middle of a larger grey one, scaled so that the whole has a long side between
    /// [`MIN_BORDERED_LONG_SIDE`] and [`FRAME_LONG_SIDE`].
    fn add_border(&mut self, frame: Frame<'_>) -> Picture {
        let border = f64::from(frame.long_side()) * BORDER_FRACTION;
        let whole = f64::from(frame.long_side()) + 2.0 * border;
        let scale =
            (f64::from(MIN_BORDERED_LONG_SIDE) / whole).max(f64::from(FRAME_LONG_SIDE).min(whole) / whole);
        let scaled = |side: f64| ((side * scale).round() as u32).max(1);
        let inner = Size { width: scaled(frame.width().into()), height: scaled(frame.height().into()) };
        let margin = scaled(border);
        let outer = Size { width: inner.width + 2 * margin, height: inner.height + 2 * margin };
        let mut resized = Vec::new();
        let target = ResizeTarget::for_network_input(frame.size(), inner);
        self.resizer.resize(frame.as_window(), target, &mut resized);
        let mut pixels = vec![128; outer.area() * 3];
        let (row_bytes, stride) = (inner.width as usize * 3, outer.width as usize * 3);
        let first_pixel = margin as usize * (stride + 3);
        for (i, row) in resized.chunks_exact(row_bytes).enumerate() {
            pixels[first_pixel + i * stride..][..row_bytes].copy_from_slice(row);
        }
        Picture::new(pixels, outer.width, outer.height).expect("made of width * height * 3 bytes")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use photofinish_models::fakes::FakeModels;
    use photofinish_models::traits::ModelIdentity;

    use super::*;

    /// Fails with these errors, in turn, on frames that are not the grey one.
    struct FailingDetector {
        failures: VecDeque<ModelError>,
        detector: Box<dyn FaceDetector>,
    }

    impl FaceDetector for FailingDetector {
        fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
            if frames[0].size() != grey_frame().size()
                && let Some(failure) = self.failures.pop_front()
            {
                return Err(failure);
            }
            self.detector.detect(frames, long_side)
        }

        fn identity(&self) -> &ModelIdentity {
            self.detector.identity()
        }
    }

    fn no_memory() -> ModelError {
        ModelError::OutOfMemory { name: "detector".into(), detail: "a test".into() }
    }

    fn failed() -> ModelError {
        ModelError::Inference { name: "detector".into(), detail: "a test".into() }
    }

    /// Returns the first bytes of a PNG.
    fn png_header(width: u32, height: u32) -> Vec<u8> {
        let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        file.extend(width.to_be_bytes());
        file.extend(height.to_be_bytes());
        file
    }

    /// Returns the first bytes of a WebP with this canvas.
    fn webp_header(width: u32, height: u32) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0".to_vec();
        file.extend(&(width - 1).to_le_bytes()[..3]);
        file.extend(&(height - 1).to_le_bytes()[..3]);
        file
    }

    /// Encodes a grey JPEG of one colour.
    fn grey_jpeg(width: usize, height: usize) -> Vec<u8> {
        let (pixels, format) = (vec![120_u8; width * height], turbojpeg::PixelFormat::GRAY);
        let image = turbojpeg::Image { pixels: pixels.as_slice(), width, pitch: width, height, format };
        turbojpeg::compress(image, 80, turbojpeg::Subsamp::Gray).unwrap().to_vec()
    }

    /// Returns why a selfie cannot be read.
    fn reason(extractor: &mut FaceExtractor, selfie: &[u8]) -> FailureReason {
        match extractor.extract(selfie) {
            Err(ExtractionError::Unreadable(poison)) => poison.reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_selfie_has_fewer_pixels_than_a_photo_may_have() {
        let limits = Limits { max_file_bytes: 10 << 20, max_pixels: 200_000_000, reads_heic: false };
        let mut extractor = FaceExtractor::new(&FakeModels::default(), limits).unwrap();
        for header in [png_header, webp_header] {
            let too_large = header(6145, 4096);
            assert_eq!(reason(&mut extractor, &too_large), FailureReason::TooManyPixels);
            // This one is within the limit, so it is decoded, and the file ends early.
            assert_eq!(reason(&mut extractor, &header(6144, 4096)), FailureReason::CorruptImage);
        }
    }

    #[test]
    fn a_jpeg_of_more_pixels_is_decoded_at_a_smaller_scale() {
        let limits = Limits { max_file_bytes: 10 << 20, max_pixels: 40_000_000, reads_heic: false };
        let mut extractor = FaceExtractor::new(&FakeModels::default(), limits).unwrap();
        let selfie = grey_jpeg(8000, 4500);
        let decoded = extractor.decode_upright(&selfie).unwrap();
        assert_eq!(decoded.size(), Size { width: 1280, height: 720 });
        assert!(matches!(extractor.extract(&selfie), Err(ExtractionError::NoFace)));
        assert_eq!(reason(&mut extractor, &grey_jpeg(8000, 5001)), FailureReason::TooManyPixels);
    }

    #[test]
    fn a_lower_limit_for_photos_applies_to_selfies_too() {
        let limits = Limits { max_file_bytes: 10 << 20, max_pixels: 1_000_000, reads_heic: false };
        let mut extractor = FaceExtractor::new(&FakeModels::default(), limits).unwrap();
        let Err(ExtractionError::Unreadable(poison)) = extractor.extract(&png_header(1001, 1000)) else {
            panic!("the selfie was accepted");
        };
        assert_eq!(poison.reason, FailureReason::TooManyPixels);
    }

    /// A refusal is for good, and the bytes of the selfie go with it.
    #[test]
    fn only_a_failure_that_comes_again_is_the_selfies() {
        let limits = Limits { max_file_bytes: 10 << 20, max_pixels: 40_000_000, reads_heic: false };
        let cases = [
            (vec![no_memory()], "NoFace"),
            (vec![no_memory(), no_memory()], "Unavailable"),
            (vec![failed()], "NoFace"),
            (vec![failed(), no_memory()], "Unavailable"),
            (vec![failed(), failed()], "Unreadable"),
        ];
        for (failures, expected) in cases {
            let mut extractor = FaceExtractor::new(&FakeModels::default(), limits).unwrap();
            let detector = FakeModels::default().create_face_detector().unwrap();
            extractor.detector = Box::new(FailingDetector { failures: failures.into(), detector });
            let error = extractor.extract(&grey_jpeg(900, 600)).unwrap_err();
            let found = match error {
                ExtractionError::NoFace => "NoFace",
                ExtractionError::Unreadable(_) => "Unreadable",
                ExtractionError::Unavailable(_) => "Unavailable",
            };
            assert_eq!(found, expected, "{error:?}");
        }
    }
}
