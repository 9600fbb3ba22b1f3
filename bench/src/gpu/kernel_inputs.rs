//! What the kernels are given: drawn photos, maps, scores and vectors, the same in each run.

use photofinish_kernels::image::frame::{Picture, Size};
use photofinish_kernels::quantised::{ProbeBatch, QuantisedRow, QuantisedRows};

use super::copies::Call;
use crate::photos::random::SplitMix;

/// Photos of a call, and their size: working frames.
pub const PHOTOS: usize = 4;
pub const FRAME: Size = Size { width: 2048, height: 1365 };
/// The input of the face detector for such a frame.
pub const CANVAS: Size = Size { width: 640, height: 448 };
/// Faces and texts of each photo.
const ITEMS: usize = 4;
/// The canvas of a torso.
pub const TORSO: Size = Size { width: 256, height: 384 };
/// Columns and classes of a strip that is recognised.
pub const COLUMNS: usize = 20;
pub const CLASSES: usize = 63;
/// Vectors of an album, and their components.
pub const VECTORS: usize = 20_000;
pub const COMPONENTS: usize = 256;
/// What is searched in the album.
pub const PROBES: usize = 16;

/// What all kernels are given.
pub struct Inputs {
    pub photos: Vec<Picture>,
    /// Outputs of the face detector: classes, objects, boxes and landmarks of each stride.
    pub levels: Vec<[Vec<f32>; 4]>,
    pub maps: Vec<Vec<f32>>,
    pub probabilities: Vec<f32>,
    pub vectors: Vec<i8>,
    /// The same in half precision, of other numbers.
    pub halves: Vec<u16>,
    /// The vectors at unit length, and the first of them as probes.
    pub rows: QuantisedRows,
    pub probes: ProbeBatch,
}

/// Pixels of a cell of each level.
pub const STRIDES: [u32; 3] = [8, 16, 32];

impl Inputs {
    /// Draws all.
    ///
    /// # Errors
    /// When a photo has no pixels.
    pub fn draw() -> anyhow::Result<Self> {
        let mut random = SplitMix(7);
        let mut numbers = |count: usize, most: f32| -> Vec<f32> {
            (0..count).map(|_| (random.next() >> 40) as f32 / (1_u32 << 24) as f32 * most).collect()
        };
        let levels = STRIDES.map(|stride| {
            let cells = PHOTOS * (CANVAS.width / stride * (CANVAS.height / stride)) as usize;
            let scores =
                |values: Vec<f32>| values.into_iter().map(|v| if v > 0.99 { v } else { 0.1 * v }).collect();
            let classes: Vec<f32> = scores(numbers(cells, 1.0));
            [classes, vec![0.9; cells], numbers(cells * 4, 1.5), numbers(cells * 10, 1.0)]
        });
        let maps = (0..PHOTOS * ITEMS).map(|map| draw_map(map, &numbers(TORSO.area(), 0.2)));
        let maps = maps.collect();
        let probabilities = numbers(PHOTOS * ITEMS * COLUMNS * CLASSES, 1.0);
        let vectors = numbers(VECTORS * COMPONENTS, 255.0).into_iter().map(|value| (value - 127.5) as i8);
        let vectors: Vec<i8> = vectors.collect();
        let units: Vec<Vec<f32>> = vectors.chunks_exact(COMPONENTS).map(to_unit_vector).collect();
        let probes: Vec<&[f32]> = units[..PROBES].iter().map(Vec::as_slice).collect();
        let probes = ProbeBatch::new(&probes);
        let mut rows = QuantisedRows::new(COMPONENTS);
        units.iter().for_each(|unit| rows.push(&QuantisedRow::new(unit)));
        let halves = numbers(VECTORS * COMPONENTS, 65_536.0).into_iter().map(|bits| to_half(bits as u16));
        let halves = halves.collect();
        let photos = (0..PHOTOS).map(draw_photo).collect::<anyhow::Result<_>>()?;
        let levels = levels.into();
        Ok(Self { photos, levels, maps, probabilities, vectors, halves, rows, probes })
    }

    /// Each photo with the index of each of its items.
    pub fn items(&self) -> impl Iterator<Item = (&Picture, usize)> {
        self.photos.iter().flat_map(|photo| (0..ITEMS).map(move |item| (photo, item)))
    }

    /// A call that was given all photos; each number that it wrote has so many bytes.
    pub fn call_on_photos(&self, written: Vec<f32>, bytes: usize) -> Call {
        let photos: usize = self.photos.iter().map(|photo| photo.frame().pixels().len()).sum();
        Call { to_device: photos, from_device: written.len() * bytes, written }
    }
}

fn to_unit_vector(vector: &[i8]) -> Vec<f32> {
    let length = vector.iter().map(|value| f32::from(*value).powi(2)).sum::<f32>().sqrt();
    vector.iter().map(|value| f32::from(*value) / length).collect()
}

/// Noise over a gradient.
fn draw_photo(seed: usize) -> anyhow::Result<Picture> {
    let mut random = SplitMix(seed as u64);
    let pixels = (0..FRAME.area() * 3)
        .map(|index| ((index / 24_000) as u8 / 2).wrapping_add((random.next() >> 58) as u8));
    Ok(Picture::new(pixels.collect(), FRAME.width, FRAME.height)?)
}

/// Two bars of text on noise.
fn draw_map(index: usize, noise: &[f32]) -> Vec<f32> {
    let width = TORSO.width as usize;
    let is_text = |x: usize, y: usize| {
        let bar = |top: usize| (top + x / 16..top + 30 + x / 16).contains(&y);
        (20 + index..width - 40).contains(&x) && (bar(60) || bar(200 + index))
    };
    let value =
        |(at, noise): (usize, &f32)| if is_text(at % width, at / width) { 0.7 + noise } else { *noise };
    noise.iter().enumerate().map(value).collect()
}

/// A number of half precision of size .0625 to 1, by its sign, the lower bits of its exponent and its fraction.
fn to_half(bits: u16) -> u16 {
    (bits & 0x8000) | ((11 << 10) + (bits & 0x0fff))
}

/// The value of such a number.
pub fn half_to_f64(half: u16) -> f64 {
    let (exponent, fraction) = (i32::from((half >> 10) & 0x1f), f64::from(half & 0x3ff));
    let magnitude = (1.0 + fraction / 1024.0) * 2.0_f64.powi(exponent - 15);
    if half & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_numbers_below_one_of_both_signs() {
        let values: Vec<f64> = (0..=u16::MAX).map(|bits| half_to_f64(to_half(bits))).collect();
        assert!(values.iter().all(|value| (0.0625..1.0).contains(&value.abs())), "{values:?}");
        assert!(values.iter().any(|value| *value < 0.0));
        assert_eq!(half_to_f64(0x3555), 0.333_251_953_125);
    }
}
