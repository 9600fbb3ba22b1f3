//! Samples a frame through a homography.

pub mod align;
pub mod rectify;

use crate::image::frame::Frame;
use crate::vectors::{whole_byte, whole_number};

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

/// Pixels that are computed together, as vectors.
const GROUP: usize = 16;

/// Where the pixels of a group are in the frame: the frame's pixel at or before each place, and the fractions of a pixel from
/// there to the right and down.
struct Places {
    left: [i32; GROUP],
    top: [i32; GROUP],
    part_right: [f32; GROUP],
    part_down: [f32; GROUP],
}

/// The pixels around each place of a group, in two rows of two, as bytes from the lowest on: red, green and blue of the left
/// pixel and red of the right one, then green and blue of that.
struct Neighbours {
    upper: [u32; GROUP],
    upper_rest: [u32; GROUP],
    lower: [u32; GROUP],
    lower_rest: [u32; GROUP],
}

/// One row to sample.
struct SampleRow<'s, 'a, 'l> {
    sampler: &'s Sampler<'a>,
    y: f32,
    line: &'l mut [u8],
}

impl pulp::NullaryFnOnce for SampleRow<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.sampler.sample_pixels(self.y, self.line);
    }
}

impl Sampler<'_> {
    /// Writes row `y` of the result, interpolated bilinearly.
    pub(crate) fn sample_row(&self, y: f32, line: &mut [u8]) {
        debug_assert!(self.frame.size().long_side() < 1 << 22, "`whole_number` gives places up to there");
        pulp::Arch::new().dispatch(SampleRow { sampler: self, y, line });
    }

    #[inline(always)]
    fn sample_pixels(&self, y: f32, line: &mut [u8]) {
        let width = line.len() / 3;
        for first in (0..width).step_by(GROUP) {
            let places = self.places(first, y);
            let mixed = mix(&self.neighbours(&places), &places);
            for (index, pixel) in mixed.into_iter().enumerate().take(width - first) {
                let (target, pixel) = (&mut line[(first + index) * 3..], pixel.to_le_bytes());
                // The fourth byte goes where the next pixel will: one store for a pixel.
                match target.first_chunk_mut() {
                    Some(four) => *four = pixel,
                    None => target.copy_from_slice(&pixel[..3]),
                }
            }
        }
    }

    /// The places of the pixels from `first` on of row `y`.
    #[inline(always)]
    fn places(&self, first: usize, y: f32) -> Places {
        let map = &self.homography;
        let (width, height) = (self.frame.width() as f32, self.frame.height() as f32);
        let start = [map.x[1] * y + map.x[2], map.y[1] * y + map.y[2], map.w[1] * y + 1.0];
        // Affine: no division.
        let is_affine = map.w == [0.0; 2];
        let mut places =
            Places { left: [0; GROUP], top: [0; GROUP], part_right: [0.0; GROUP], part_down: [0.0; GROUP] };
        for index in 0..GROUP {
            // AVX2 converts 32-bit integers with a sign alone.
            let x = (first as i32 + index as i32) as f32;
            let (mut right, mut down) = (map.x[0] * x + start[0], map.y[0] * x + start[1]);
            if !is_affine {
                let w = map.w[0] * x + start[2];
                (right, down) = (right / w, down / w);
            }
            // A point far outside the frame reads what is just outside it; this keeps the arithmetic below in range.
            let (right, down) = (right.clamp(-2.0, width + 1.0), down.clamp(-2.0, height + 1.0));
            let (left, top) = (right.floor(), down.floor());
            places.left[index] = whole_number(left);
            places.top[index] = whole_number(top);
            places.part_right[index] = right - left;
            places.part_down[index] = down - top;
        }
        places
    }

    #[inline(always)]
    fn neighbours(&self, places: &Places) -> Neighbours {
        let mut found = Neighbours {
            upper: [0; GROUP],
            upper_rest: [0; GROUP],
            lower: [0; GROUP],
            lower_rest: [0; GROUP],
        };
        for index in 0..GROUP {
            let (left, top) = (places.left[index], places.top[index]);
            let [upper, lower] =
                self.pairs_inside(left, top).unwrap_or_else(|| self.pairs_at_border(left, top));
            (found.upper[index], found.upper_rest[index]) = (upper as u32, (upper >> 32) as u32);
            (found.lower[index], found.lower_rest[index]) = (lower as u32, (lower >> 32) as u32);
        }
        found
    }

    /// A pixel and the one to its right, and the two below, where all are within the frame and two bytes follow: eight are
    /// loaded of six.
    #[inline(always)]
    fn pairs_inside(&self, left: i32, top: i32) -> Option<[u64; 2]> {
        let (left, top) = (usize::try_from(left).ok()?, usize::try_from(top).ok()?);
        let (width, height) = (self.frame.width() as usize, self.frame.height() as usize);
        if left + 1 >= width || top + 1 >= height {
            return None;
        }
        let upper = (top * width + left) * 3;
        let pair = |start: usize| {
            let bytes = self.frame.pixels().get(start..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*bytes))
        };
        Some([pair(upper)?, pair(upper + width * 3)?])
    }

    #[cold]
    fn pairs_at_border(&self, left: i32, top: i32) -> [u64; 2] {
        [top, top + 1].map(|row| {
            let [a, b, c] = border_pixel(self.frame, self.border, (left, row));
            let [d, e, f] = border_pixel(self.frame, self.border, (left + 1, row));
            u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
        })
    }
}

/// Interpolates; red, green and blue of each pixel from the lowest byte on.
#[inline(always)]
fn mix(neighbours: &Neighbours, places: &Places) -> [u32; GROUP] {
    let mut mixed = [0; GROUP];
    for (index, pixel) in mixed.iter_mut().enumerate() {
        let (part_right, part_down) = (places.part_right[index], places.part_down[index]);
        let upper = (neighbours.upper[index], neighbours.upper_rest[index]);
        let lower = (neighbours.lower[index], neighbours.lower_rest[index]);
        let value = |left: u32, right: u32| {
            let (left, right) = ((left & 0xff) as i32 as f32, (right & 0xff) as i32 as f32);
            left + (right - left) * part_right
        };
        let channel =
            |upper: f32, lower: f32| u32::from(whole_byte(upper + (lower - upper) * part_down + 0.5));
        let red = channel(value(upper.0, upper.0 >> 24), value(lower.0, lower.0 >> 24));
        let green = channel(value(upper.0 >> 8, upper.1), value(lower.0 >> 8, lower.1));
        let blue = channel(value(upper.0 >> 16, upper.1 >> 8), value(lower.0 >> 16, lower.1 >> 8));
        *pixel = red | green << 8 | blue << 16;
    }
    mixed
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

    /// The definition, value by value.
    fn reference(sampler: &Sampler<'_>, x: usize, y: f32) -> [u8; 3] {
        let Homography { x: [a, b, c], y: [d, e, f], w: [g, h] } = sampler.homography;
        let column = x as f32;
        let w = g * column + (h * y + 1.0);
        let (mut right, mut down) = (a * column + (b * y + c), d * column + (e * y + f));
        if [g, h] != [0.0; 2] {
            (right, down) = (right / w, down / w);
        }
        let (width, height) = (sampler.frame.width() as f32, sampler.frame.height() as f32);
        let (right, down) = (right.clamp(-2.0, width + 1.0), down.clamp(-2.0, height + 1.0));
        let (left, top) = (right.floor() as i32, down.floor() as i32);
        let (fx, fy) = (right - right.floor(), down - down.floor());
        let corners = [(left, top), (left + 1, top), (left, top + 1), (left + 1, top + 1)]
            .map(|corner| border_pixel(sampler.frame, sampler.border, corner));
        std::array::from_fn(|channel| {
            let [tl, tr, bl, br] = corners.map(|corner| f32::from(corner[channel]));
            let (upper, lower) = (tl + (tr - tl) * fx, bl + (br - bl) * fx);
            (upper + (lower - upper) * fy + 0.5) as u8
        })
    }

    #[test]
    fn vectors_compute_what_single_values_do_to_the_last_bit() {
        for (width, height) in [(31, 23), (1, 1), (1, 7), (7, 1), (2, 2)] {
            let pixels: Vec<u8> =
                (0..width * height * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            check_lines(Frame::new(&pixels, width, height).unwrap());
        }
    }

    fn check_lines(frame: Frame<'_>) {
        let homographies = [
            SAME,
            // Rotated, over the frame's edges on all sides.
            Homography { x: [0.61, -0.37, -3.2], y: [0.37, 0.61, -4.9], w: [0.0; 2] },
            // A corner of the frame alone, enlarged: its last bytes too.
            Homography { x: [0.05, 0.0, 28.7], y: [0.0, 0.05, 20.6], w: [0.0; 2] },
            Homography { x: [1.1, 0.2, -2.0], y: [0.1, 0.9, 1.5], w: [0.004, -0.003] },
            // Beyond its horizon, and on it at the tenth pixel.
            Homography { x: [1.0, 0.0, 0.5], y: [0.0, 1.0, 0.5], w: [-0.1, 0.0] },
        ];
        for homography in homographies {
            for border in [Border::Black, Border::Nearest] {
                let sampler = Sampler { frame, border, homography };
                // Lines of all lengths of a last group.
                for width in 1..=2 * GROUP + 1 {
                    let y = width as f32;
                    let mut line = vec![77; width * 3];
                    sampler.sample_row(y, &mut line);
                    for (x, pixel) in line.chunks_exact(3).enumerate() {
                        assert_eq!(pixel, reference(&sampler, x, y), "{homography:?} {border:?} {x} {y}");
                    }
                }
            }
        }
    }

    #[test]
    fn points_far_outside_read_the_border() {
        let pixels = [9; 3];
        let frame = Frame::new(&pixels, 1, 1).unwrap();
        let mut line = [1; 3];
        for far in [-1e9, 1e9, f32::NAN] {
            let homography = Homography { x: [0.0, 0.0, far], ..SAME };
            Sampler { frame, border: Border::Black, homography }.sample_row(0.0, &mut line);
            assert_eq!(line, [0; 3], "{far}");
        }
    }
}
