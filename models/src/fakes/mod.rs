//! Fake networks for tests: they read painted marks instead of faces and bibs, so that the code around the real networks
//! runs without model files. They work on pixels, so a mark destroyed by a wrong scale, rotation or crop is not found.
//!
//! [`paint_face`] and [`paint_bib`] paint the marks that [`FakeModels`] reads. A bib with the text [`PANIC_BIB`] makes the
//! reader panic, one with the text [`ABORT_BIB`] ends the process, as a hostile photo could.

mod mark_detector;
mod marks;

use std::time::Duration;

use photofinish_kernels::geometry::{Point, Quad, Rect};
use photofinish_kernels::image::frame::Frame;
use photofinish_kernels::lattice::Lattice;

use crate::traits::{
    BatchSizes, BibReader, BibText, EmbeddedFace, FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelError,
    ModelFactory, ModelIdentity, ReadRequest,
};

pub use marks::{BIB_COLUMNS, BIB_ROWS, FACE_CELLS, paint_bib, paint_face};

/// A bib with this text makes the reader panic.
pub const PANIC_BIB: &str = "PANIC";

/// A bib with this text ends the process, like a crash in native code: nothing can catch it.
pub const ABORT_BIB: &str = "ABORT";

/// Characters that the fake reader is not sure of.
const LOOK_ALIKES: [&str; 3] = ["0O", "1I7", "5S"];

/// Length of a fake embedding: long enough that those of two persons are nearly orthogonal.
const DIMENSIONS: usize = 128;
/// Reported sharpness: above every threshold of a face's quality.
const SHARPNESS: f32 = 1000.0;

/// Positions of the landmarks in a face mark, as parts of its side.
const LANDMARKS: [Point; 5] = [
    Point { x: 0.3, y: 0.4 },
    Point { x: 0.7, y: 0.4 },
    Point { x: 0.5, y: 0.6 },
    Point { x: 0.35, y: 0.8 },
    Point { x: 0.65, y: 0.8 },
];

/// Creates the fake networks.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeModels {
    /// Artificial delay of each call.
    pub delay: Duration,
    /// Further delay of the bib reader per photo. Each photo is read once, so with one reader this sets the throughput of a
    /// worker.
    pub read_delay: Duration,
    /// Batch sizes to report; 1 each when `None`.
    pub batch_sizes: Option<BatchSizes>,
}

struct FakeDetector {
    delay: Duration,
    identity: ModelIdentity,
}

struct FakeEmbedder {
    delay: Duration,
    identity: ModelIdentity,
}

struct FakeReader {
    delay: Duration,
    delay_per_photo: Duration,
    identity: ModelIdentity,
}

impl ModelFactory for FakeModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        Ok(Box::new(FakeDetector { delay: self.delay, identity: identity("fake-detector") }))
    }

    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        Ok(Box::new(FakeEmbedder { delay: self.delay, identity: identity("fake-embedder") }))
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        let (delay, delay_a_photo) = (self.delay, self.read_delay);
        Ok(Box::new(FakeReader { delay, delay_per_photo: delay_a_photo, identity: identity("fake-reader") }))
    }

    fn batch_sizes(&self) -> BatchSizes {
        self.batch_sizes.unwrap_or(BatchSizes { detect: 1, embed: 1, read: 1 })
    }

    fn identities(&self) -> Vec<(&'static str, ModelIdentity)> {
        [("faceDetector", "fake-detector"), ("faceEmbedder", "fake-embedder"), ("bibReader", "fake-reader")]
            .map(|(role, name)| (role, identity(name)))
            .to_vec()
    }
}

fn identity(name: &str) -> ModelIdentity {
    ModelIdentity { name: name.to_owned(), version: 1 }
}

impl FaceDetector for FakeDetector {
    fn detect(&mut self, frames: &[Frame<'_>], _long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        std::thread::sleep(self.delay);
        let face = |(rect, _): (Rect, u16)| FaceBox { rect, landmarks: place_landmarks(rect), score: 0.95 };
        Ok(frames
            .iter()
            .map(|frame| mark_detector::find_faces(*frame).into_iter().map(face).collect())
            .collect())
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

impl FaceEmbedder for FakeEmbedder {
    fn embed(&mut self, faces: &[FaceCrop<'_>]) -> Result<Vec<EmbeddedFace>, ModelError> {
        std::thread::sleep(self.delay);
        let embedded = |face: &FaceCrop<'_>| {
            let person = mark_detector::decode_face(face.frame, rect_from_landmarks(&face.landmarks))
                .unwrap_or_default();
            EmbeddedFace { vector: person_vector(person), sharpness: SHARPNESS }
        };
        Ok(faces.iter().map(embedded).collect())
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

impl BibReader for FakeReader {
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
        let photo_count = u32::try_from(photos.len()).unwrap_or(u32::MAX);
        std::thread::sleep(self.delay + self.delay_per_photo * photo_count);
        Ok(photos.iter().map(read_photo).collect())
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

fn read_photo(photo: &ReadRequest<'_>) -> Vec<BibText> {
    let text = |(rect, text): (Rect, String)| {
        assert!(text != PANIC_BIB, "a bib with the text PANIC makes the fake reader panic");
        if text == ABORT_BIB {
            std::process::abort();
        }
        let is_bib = photo.pattern.matches(&text);
        let lattice = lattice_of(&text);
        BibText { text, quad: quad_from_rect(rect), confidence: 0.99, max_confidence: 1.0, is_bib, lattice }
    };
    mark_detector::find_bibs(photo.frame).into_iter().map(text).collect()
}

/// What a recogniser thinks of a text that it reads well: each character may be one that looks like it.
fn lattice_of(text: &str) -> Lattice {
    let alphabet: Vec<char> = ('0'..='9').chain('A'..='Z').collect();
    let mut columns = Vec::new();
    for character in text.chars() {
        let similar = LOOK_ALIKES.iter().find(|class| class.contains(character)).copied().unwrap_or_default();
        let probability = |other: char| match other {
            other if other == character => 0.9,
            other if similar.contains(other) => 0.04,
            _ => 0.0,
        };
        columns.push(0.02);
        columns.extend(alphabet.iter().copied().map(probability));
        columns.push(1.0);
        columns.extend(alphabet.iter().map(|_| 0.0));
    }
    Lattice::from_probabilities(&columns, &alphabet)
}

fn place_landmarks(rect: Rect) -> [Point; 5] {
    LANDMARKS.map(|part| Point { x: rect.left + part.x * rect.width(), y: rect.top + part.y * rect.height() })
}

/// Returns the bounds of the mark with these landmarks.
fn rect_from_landmarks(landmarks: &[Point; 5]) -> Rect {
    let width = (landmarks[1].x - landmarks[0].x) / (LANDMARKS[1].x - LANDMARKS[0].x);
    let height = (landmarks[3].y - landmarks[0].y) / (LANDMARKS[3].y - LANDMARKS[0].y);
    let left = landmarks[0].x - LANDMARKS[0].x * width;
    let top = landmarks[0].y - LANDMARKS[0].y * height;
    Rect { left, top, right: left + width, bottom: top + height }
}

fn quad_from_rect(rect: Rect) -> Quad {
    let corner = |x, y| Point { x, y };
    Quad([
        corner(rect.left, rect.top),
        corner(rect.right, rect.top),
        corner(rect.right, rect.bottom),
        corner(rect.left, rect.bottom),
    ])
}

/// Returns a person's embedding: always the same, and nearly orthogonal to those of other persons.
pub fn person_vector(person: u16) -> Vec<f32> {
    let mut state = u64::from(person).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let vector: Vec<f32> = (0..DIMENSIONS).map(|_| draw()).collect();
    let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
    vector.iter().map(|v| v / length).collect()
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::image::frame::Picture;
    use photofinish_kernels::resize::{Filter, ResizeTarget, Resizer};

    use super::*;
    use crate::traits::BibPattern;

    fn grey(width: u32, height: u32) -> Picture {
        Picture::new(vec![120; (width * height * 3) as usize], width, height).unwrap()
    }

    #[test]
    fn a_painted_scene_is_read_at_full_and_at_half_size() {
        let mut picture = grey(1200, 800);
        paint_face(&mut picture, 4711, [100, 80, 160]);
        paint_face(&mut picture, 2, [700, 80, 120]);
        paint_bib(&mut picture, "A1204", [100, 400]);
        let size = picture.size().fit_within(600);
        let half =
            Resizer::default().resize_frame(picture.frame(), ResizeTarget { size, filter: Filter::Bicubic });
        for frame in [picture.frame(), half.frame()] {
            let faces = FakeModels::default()
                .create_face_detector()
                .unwrap()
                .detect(&[frame], 640)
                .unwrap()
                .remove(0);
            assert_eq!(faces.len(), 2);
            let crop = |face: &FaceBox| FaceCrop::new(frame, face.landmarks);
            let crops: Vec<FaceCrop<'_>> = faces.iter().map(crop).collect();
            let vectors = FakeModels::default().create_face_embedder().unwrap().embed(&crops).unwrap();
            let mut persons: Vec<bool> = vectors.iter().map(|v| v.vector == person_vector(4711)).collect();
            persons.sort_unstable();
            assert_eq!(persons, [false, true]);
            assert!(vectors.iter().any(|v| v.vector == person_vector(2)));
            let pattern = BibPattern::new("[A-Z]?[0-9]{2,5}").unwrap();
            let request = ReadRequest { frame, faces: &faces, pattern: &pattern };
            let texts =
                FakeModels::default().create_bib_reader().unwrap().read(&[request]).unwrap().remove(0);
            assert_eq!(texts.len(), 1);
            assert_eq!((texts[0].text.as_str(), texts[0].is_bib), ("A1204", true));
        }
    }

    #[test]
    fn the_read_delay_is_per_photo() {
        let picture = grey(64, 64);
        let pattern = BibPattern::new("[0-9]{2,5}").unwrap();
        let request = || ReadRequest { frame: picture.frame(), faces: &[], pattern: &pattern };
        let slow = FakeModels { read_delay: Duration::from_millis(20), ..FakeModels::default() };
        let start = std::time::Instant::now();
        slow.create_bib_reader().unwrap().read(&[request(), request()]).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(40));
    }

    #[test]
    fn a_rotated_mark_is_not_read() {
        let mut picture = grey(400, 400);
        paint_face(&mut picture, 9, [100, 100, 160]);
        let rotated: Vec<u8> =
            picture.frame().pixels().chunks_exact(3).rev().flat_map(|pixel| pixel.to_vec()).collect();
        let rotated = Picture::new(rotated, 400, 400).unwrap();
        assert!(mark_detector::find_faces(rotated.frame()).is_empty());
    }

    #[test]
    fn vectors_of_two_persons_are_nearly_orthogonal() {
        for (a, b) in [(1, 2), (7, 4711), (0, 65535)] {
            let cosine: f32 = person_vector(a).iter().zip(person_vector(b)).map(|(x, y)| x * y).sum();
            assert!(cosine.abs() < 0.35, "{a} and {b}: {cosine}");
        }
    }
}
