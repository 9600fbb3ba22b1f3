//! Samples a frame through a homography.

pub mod align;
pub mod rectify;

use crate::image::frame::Frame;

/// Maps a point of the result to the source: `x' = (a x + b y + c) / w`, `y' = (d x + e y + f) / w`,
/// `w = g x + h y + 1`, with `x: [a, b, c]`, `y: [d, e, f]`, `w: [g, h]`. Pixel centres have whole coordinates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Homography {
    pub(crate) x: [f32; 3],
    pub(crate) y: [f32; 3],
    pub(crate) w: [f32; 2],
}

/// The colour of pixels outside the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Border {
    Black,
    Nearest,
}

/// Samples a frame through a homography.
pub(crate) struct Sampler<'a> {
    pub(crate) frame: Frame<'a>,
    pub(crate) border: Border,
    pub(crate) homography: Homography,
}

impl Sampler<'_> {
    /// Writes row `y` of the result, interpolated bilinearly.
    pub(crate) fn sample_row(&self, y: f32, line: &mut [u8]) {
        let map = &self.homography;
        // Affine: no division per pixel.
        let is_affine = map.w == [0.0; 2];
        let start = [map.x[1] * y + map.x[2], map.y[1] * y + map.y[2], map.w[1] * y + 1.0];
        for (index, pixel) in line.chunks_exact_mut(3).enumerate() {
            let x = index as f32;
            let mut source = (map.x[0] * x + start[0], map.y[0] * x + start[1]);
            if !is_affine {
                let w = map.w[0] * x + start[2];
                source = (source.0 / w, source.1 / w);
            }
            pixel.copy_from_slice(&sample(self.frame, self.border, source));
        }
    }
}

#[inline]
fn sample(frame: Frame<'_>, border: Border, (x, y): (f32, f32)) -> [u8; 3] {
    let (width, height) = (frame.width() as i32, frame.height() as i32);
    // A point far outside the frame reads what is just outside it; this keeps the arithmetic below in range.
    let (x, y) = (x.clamp(-2.0, width as f32 + 1.0), y.clamp(-2.0, height as f32 + 1.0));
    let (left, top) = (x.floor(), y.floor());
    let (fx, fy) = (x - left, y - top);
    let (left, top) = (left as i32, top as i32);
    let corners = if left >= 0 && top >= 0 && left + 1 < width && top + 1 < height {
        let stride = frame.width() as usize * 3;
        let upper = &frame.pixels()[top as usize * stride + left as usize * 3..];
        let lower = &upper[stride..];
        [
            [upper[0], upper[1], upper[2]],
            [upper[3], upper[4], upper[5]],
            [lower[0], lower[1], lower[2]],
            [lower[3], lower[4], lower[5]],
        ]
    } else {
        [(left, top), (left + 1, top), (left, top + 1), (left + 1, top + 1)]
            .map(|corner| border_pixel(frame, border, corner))
    };
    std::array::from_fn(|channel| {
        let [tl, tr, bl, br] = corners.map(|corner| f32::from(corner[channel]));
        let upper = tl + (tr - tl) * fx;
        let lower = bl + (br - bl) * fx;
        (upper + (lower - upper) * fy + 0.5) as u8
    })
}

#[cold]
fn border_pixel(frame: Frame<'_>, border: Border, (x, y): (i32, i32)) -> [u8; 3] {
    let (right, bottom) = (frame.width() as i32 - 1, frame.height() as i32 - 1);
    let inside = (x.clamp(0, right), y.clamp(0, bottom));
    if border == Border::Black && inside != (x, y) {
        return [0; 3];
    }
    let start = (inside.1 as usize * frame.width() as usize + inside.0 as usize) * 3;
    let pixel = &frame.pixels()[start..start + 3];
    [pixel[0], pixel[1], pixel[2]]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: Homography = Homography { x: [1.0, 0.0, 0.0], y: [0.0, 1.0, 0.0], w: [0.0; 2] };

    #[test]
    fn half_a_pixel_offset_is_the_mean_of_neighbours() {
        let pixels = [0, 0, 0, 100, 50, 10, 200, 100, 20];
        let frame = Frame::new(&pixels, 3, 1).unwrap();
        let homography = Homography { x: [1.0, 0.0, 0.5], ..SAME };
        let mut line = [0; 9];
        Sampler { frame, border: Border::Nearest, homography }.sample_row(0.0, &mut line);
        assert_eq!(line, [50, 25, 5, 150, 75, 15, 200, 100, 20]);
        Sampler { frame, border: Border::Black, homography }.sample_row(0.0, &mut line);
        assert_eq!(line, [50, 25, 5, 150, 75, 15, 100, 50, 10]);
    }

    #[test]
    fn points_far_outside_read_the_border() {
        let pixels = [9; 3];
        let frame = Frame::new(&pixels, 1, 1).unwrap();
        let mut line = [1; 3];
        for far in [-1e9, 1e9, f32::NAN] {
            let homography = Homography { x: [0.0, 0.0, far], ..SAME };
            Sampler { frame, border: Border::Black, homography }.sample_row(0.0, &mut line);
            assert!(line == [0; 3] || far.is_nan(), "{far}: {line:?}");
        }
    }
}
