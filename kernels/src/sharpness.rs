//! Sharpness of face crops: variance of the Laplacian.

use crate::image::frame::{Frame, Size};
use crate::resize::{ResizeTarget, Resizer};

/// Side that crops are resized to, pixels, so that one threshold fits every embedder's crop size.
const CROP_SIDE: u32 = 112;

/// Measures sharpness; owns the buffers.
#[derive(Default)]
pub struct SharpnessMeter {
    resizer: Resizer,
    pixels: Vec<u8>,
    grey: Vec<f32>,
}

impl SharpnessMeter {
    /// Returns the variance of the Laplacian (four neighbours) of the grey values (0 to 255) of the crop at 112 x 112
    /// pixels, without the outermost pixels: 0 for a flat crop, low for a blurred one.
    pub fn measure(&mut self, crop: Frame<'_>) -> f32 {
        let size = Size { width: CROP_SIDE, height: CROP_SIDE };
        self.resizer.resize(
            crop.as_window(),
            ResizeTarget::for_network_input(crop.size(), size),
            &mut self.pixels,
        );
        self.grey.clear();
        self.grey.extend(
            self.pixels
                .chunks_exact(3)
                .map(|p| 0.299 * f32::from(p[0]) + 0.587 * f32::from(p[1]) + 0.114 * f32::from(p[2])),
        );
        let side = CROP_SIDE as usize;
        let (mut sum, mut squares) = (0.0_f64, 0.0_f64);
        for y in 1..side - 1 {
            let [above, line, below] = [y - 1, y, y + 1].map(|row| &self.grey[row * side..(row + 1) * side]);
            for x in 1..side - 1 {
                let value = f64::from(above[x] + below[x] + line[x - 1] + line[x + 1] - 4.0 * line[x]);
                sum += value;
                squares += value * value;
            }
        }
        let count = ((side - 2) * (side - 2)) as f64;
        (squares / count - (sum / count).powi(2)) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripes(side: u32, period: u32) -> Vec<u8> {
        (0..side * side)
            .flat_map(|i| [if (i % side / period).is_multiple_of(2) { 60 } else { 180 }; 3])
            .collect()
    }

    #[test]
    fn flat_is_zero_and_fine_detail_is_high() {
        let mut sharpness = SharpnessMeter::default();
        let flat = vec![77; 112 * 112 * 3];
        assert!(sharpness.measure(Frame::new(&flat, 112, 112).unwrap()) < 1e-3);
        let mut measure =
            |side, period| sharpness.measure(Frame::new(&stripes(side, period), side, side).unwrap());
        let (fine, coarse) = (measure(112, 2), measure(112, 28));
        assert!(fine > 10.0 * coarse, "{fine} and {coarse}");
    }

    #[test]
    fn stripes_of_known_size_give_the_known_variance() {
        // Columns alternate 60, 60, 180, 180: the Laplacian is +120 or -120 everywhere, its mean zero.
        let got = SharpnessMeter::default().measure(Frame::new(&stripes(112, 2), 112, 112).unwrap());
        assert!((got - 14_400.0).abs() < 1.0, "{got}");
    }

    #[test]
    fn the_side_of_the_crop_matters_little() {
        let mut sharpness = SharpnessMeter::default();
        let at_112 = sharpness.measure(Frame::new(&stripes(112, 14), 112, 112).unwrap());
        let at_224 = sharpness.measure(Frame::new(&stripes(224, 28), 224, 224).unwrap());
        assert!((at_112 / at_224 - 1.0).abs() < 0.05, "{at_112} and {at_224}");
    }
}
