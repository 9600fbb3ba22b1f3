//! Scales a picture with transparency, one row after the other, so that neither the scaled picture nor anything of its size
//! is in memory. The pixels are those of `image::imageops::resize` with Catmull-Rom splines.

use image::RgbaImage;
use photofinish_kernels::image::frame::Size;

/// Channels of a pixel.
const CHANNELS: usize = 4;
/// How far a spline reaches, pixels of the smaller of both pictures.
const SUPPORT: f32 = 2.0;

/// A picture that is scaled to one size.
pub(crate) struct RowScaler<'a> {
    picture: &'a RgbaImage,
    height: u32,
    columns: Vec<Taps>,
    /// A row of the scaled picture, as wide as the picture still.
    between: Vec<f32>,
}

impl<'a> RowScaler<'a> {
    /// Scales `picture`, which has pixels, to `size`.
    pub(crate) fn new(picture: &'a RgbaImage, size: Size) -> Self {
        let columns = (0..size.width).map(|x| Taps::new(picture.width(), size.width, x)).collect();
        let between = vec![0.0; picture.width() as usize * CHANNELS];
        Self { picture, height: size.height, columns, between }
    }

    /// Writes row `y` of the scaled picture into `out`, which is as long.
    pub(crate) fn scale_row(&mut self, y: u32, out: &mut [u8]) {
        let rows = Taps::new(self.picture.height(), self.height, y);
        let stored_rows = self.picture.as_raw().chunks_exact(self.between.len());
        self.between.fill(0.0);
        for (row, weight) in stored_rows.skip(rows.first).zip(&rows.weights) {
            for (sum, value) in self.between.iter_mut().zip(row) {
                *sum += f32::from(*value) * weight;
            }
        }
        let (between, _) = self.between.as_chunks::<CHANNELS>();
        let (scaled, _) = out.as_chunks_mut::<CHANNELS>();
        for (target, column) in scaled.iter_mut().zip(&self.columns) {
            let mut sums = [0.0_f32; CHANNELS];
            for (pixel, weight) in between[column.first..].iter().zip(&column.weights) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += value * weight;
                }
            }
            *target = sums.map(|sum| sum.clamp(0.0, 255.0).round() as u8);
        }
    }
}

/// The pixels of a line that one of the scaled line is made of, and how much of each.
struct Taps {
    first: usize,
    weights: Vec<f32>,
}

impl Taps {
    /// Computes those of the pixel at `position` of a line of `scaled` pixels, which is made of one of `length`.
    fn new(length: u32, scaled: u32, position: u32) -> Self {
        let ratio = length as f32 / scaled as f32;
        let stretch = ratio.max(1.0);
        let centre = (position as f32 + 0.5) * ratio;
        let length = i64::from(length);
        let first = ((centre - SUPPORT * stretch).floor() as i64).clamp(0, length - 1);
        let end = ((centre + SUPPORT * stretch).ceil() as i64).clamp(first + 1, length);
        let centre = centre - 0.5;
        let mut weights: Vec<f32> =
            (first..end).map(|i| catmull_rom((i as f32 - centre) / stretch)).collect();
        let sum: f32 = weights.iter().sum();
        for weight in &mut weights {
            *weight /= sum;
        }
        Self { first: first as usize, weights }
    }
}

/// The spline at this distance from its centre.
fn catmull_rom(distance: f32) -> f32 {
    let x = distance.abs();
    let (square, cube) = (x * x, x * x * x);
    let sixths = if x < 1.0 {
        9.0 * cube - 15.0 * square + 6.0
    } else if x < 2.0 {
        -3.0 * cube + 15.0 * square - 24.0 * x + 12.0
    } else {
        0.0
    };
    sixths / 6.0
}

#[cfg(test)]
mod tests {
    use image::Rgba;
    use image::imageops::{FilterType, resize};

    use super::*;

    #[test]
    fn the_pixels_are_those_of_a_scaler_that_has_the_whole_picture() {
        let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8;
        for [width, height] in [[40, 20], [1, 7], [33, 1], [13, 90]] {
            let picture = RgbaImage::from_fn(width, height, |x, y| {
                Rgba([0, 1, 2, 3].map(|channel| noise((y * width + x) * 4 + channel)))
            });
            for [width, height] in [[40, 20], [30, 15], [97, 61], [7, 3], [1, 1], [13, 200], [64, 1]] {
                let mut scaler = RowScaler::new(&picture, Size { width, height });
                let mut row = vec![0; width as usize * CHANNELS];
                let mut scaled = Vec::new();
                for y in 0..height {
                    scaler.scale_row(y, &mut row);
                    scaled.extend_from_slice(&row);
                }
                let expected = resize(&picture, width, height, FilterType::CatmullRom);
                assert!(scaled == expected.into_raw(), "{:?} to {width} x {height}", picture.dimensions());
            }
        }
    }
}
