//! Turns stored pictures upright according to their EXIF orientation (1 to 8).

use crate::image::frame::{Picture, Size};

/// The transform that turns the stored pixels upright.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// EXIF 1: none.
    Upright,
    /// EXIF 2: mirror left and right.
    FlipHorizontal,
    /// EXIF 3: half a turn.
    Rotate180,
    /// EXIF 4: mirror top and bottom.
    FlipVertical,
    /// EXIF 5: mirror along the diagonal from the top left.
    Transpose,
    /// EXIF 6: a quarter turn clockwise.
    Rotate90,
    /// EXIF 7: mirror along the other diagonal.
    Transverse,
    /// EXIF 8: a quarter turn counter-clockwise.
    Rotate270,
}

impl Orientation {
    /// Converts the EXIF value; anything but 2 to 8 is [`Orientation::Upright`].
    pub fn from_exif(value: u32) -> Self {
        match value {
            2 => Self::FlipHorizontal,
            3 => Self::Rotate180,
            4 => Self::FlipVertical,
            5 => Self::Transpose,
            6 => Self::Rotate90,
            7 => Self::Transverse,
            8 => Self::Rotate270,
            _ => Self::Upright,
        }
    }

    /// Returns the size of a picture after the transform. The same function maps the upright size back to the stored
    /// one, as every transform either swaps the sides or keeps them.
    pub fn transform_size(self, size: Size) -> Size {
        if self.swaps_sides() { Size { width: size.height, height: size.width } } else { size }
    }

    /// Returns the transform that does what this one does, and then what `next` does.
    pub fn then(self, next: Self) -> Self {
        let [first, second] = [self.parts(), next.parts()];
        // Mirroring before a transposition is mirroring the other way after it.
        let (horizontal, vertical) = if second.transposes {
            (first.flips_vertically, first.flips_horizontally)
        } else {
            (first.flips_horizontally, first.flips_vertically)
        };
        Self::from_parts(Parts {
            transposes: first.transposes != second.transposes,
            flips_horizontally: horizontal != second.flips_horizontally,
            flips_vertically: vertical != second.flips_vertically,
        })
    }

    fn parts(self) -> Parts {
        let transposes = self.swaps_sides();
        let flips_horizontally =
            matches!(self, Self::FlipHorizontal | Self::Rotate180 | Self::Rotate90 | Self::Transverse);
        let flips_vertically =
            matches!(self, Self::FlipVertical | Self::Rotate180 | Self::Rotate270 | Self::Transverse);
        Parts { transposes, flips_horizontally, flips_vertically }
    }

    fn from_parts(parts: Parts) -> Self {
        let Parts { transposes, flips_horizontally, flips_vertically } = parts;
        match [transposes, flips_horizontally, flips_vertically] {
            [false, false, false] => Self::Upright,
            [false, true, false] => Self::FlipHorizontal,
            [false, true, true] => Self::Rotate180,
            [false, false, true] => Self::FlipVertical,
            [true, false, false] => Self::Transpose,
            [true, true, false] => Self::Rotate90,
            [true, true, true] => Self::Transverse,
            [true, false, true] => Self::Rotate270,
        }
    }

    /// Whether the transform swaps width and height.
    pub fn swaps_sides(self) -> bool {
        matches!(self, Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270)
    }
}

/// A transform as three steps, in this order: along the diagonal from the top left, left and right, top and bottom.
struct Parts {
    transposes: bool,
    flips_horizontally: bool,
    flips_vertically: bool,
}

/// Side of the blocks in which pixels are transposed, so that source and target blocks stay in the L1 cache.
const BLOCK_SIDE: usize = 32;

/// Returns the picture upright. Transforms that do not swap the sides work in place; an upright picture is returned
/// unchanged.
pub fn apply_orientation(picture: Picture, orientation: Orientation) -> Picture {
    let (width, height) = (picture.width(), picture.height());
    if orientation.swaps_sides() {
        let pixels = transpose_pixels(&picture, orientation);
        return Picture::new(pixels, height, width).expect("transposing keeps the number of pixels");
    }
    let mut pixels = picture.into_pixels();
    let stride = width as usize * 3;
    match orientation {
        Orientation::Rotate180 => reverse_pixels(&mut pixels),
        Orientation::FlipHorizontal => pixels.chunks_exact_mut(stride).for_each(reverse_pixels),
        Orientation::FlipVertical => swap_rows(&mut pixels, stride),
        _ => {}
    }
    Picture::new(pixels, width, height).expect("mirroring keeps the number of pixels")
}

fn reverse_pixels(row: &mut [u8]) {
    let (pixels, _) = row.as_chunks_mut::<3>();
    pixels.reverse();
}

fn swap_rows(pixels: &mut [u8], stride: usize) {
    let rows = pixels.len() / stride;
    let (upper, lower) = pixels.split_at_mut(rows / 2 * stride);
    for (above, below) in upper.chunks_exact_mut(stride).zip(lower.chunks_exact_mut(stride).rev()) {
        above.swap_with_slice(below);
    }
}

/// The pixels after a transform that swaps the sides.
fn transpose_pixels(picture: &Picture, orientation: Orientation) -> Vec<u8> {
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    let frame = picture.frame();
    let (source, _) = frame.pixels().as_chunks::<3>();
    let mut out = vec![0; picture.size_bytes()];
    let (target, _) = out.as_chunks_mut::<3>();
    for top in (0..height).step_by(BLOCK_SIDE) {
        for left in (0..width).step_by(BLOCK_SIDE) {
            for x in left..(left + BLOCK_SIDE).min(width) {
                for y in top..(top + BLOCK_SIDE).min(height) {
                    let (row, column) = match orientation {
                        Orientation::Transpose => (x, y),
                        Orientation::Rotate90 => (x, height - 1 - y),
                        Orientation::Transverse => (width - 1 - x, height - 1 - y),
                        _ => (width - 1 - x, y),
                    };
                    target[row * height + column] = source[y * width + x];
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture from rows of letters, one letter a pixel.
    fn picture(rows: &[&str]) -> Picture {
        let pixels = rows.concat().bytes().flat_map(|letter| [letter; 3]).collect();
        Picture::new(pixels, rows[0].len() as u32, rows.len() as u32).unwrap()
    }

    #[test]
    fn every_orientation_becomes_upright() {
        // The same scene, stored in each of the eight EXIF orientations.
        let stored = [
            (1, vec!["abc", "def"]),
            (2, vec!["cba", "fed"]),
            (3, vec!["fed", "cba"]),
            (4, vec!["def", "abc"]),
            (5, vec!["ad", "be", "cf"]),
            (6, vec!["cf", "be", "ad"]),
            (7, vec!["fc", "eb", "da"]),
            (8, vec!["da", "eb", "fc"]),
        ];
        for (exif, rows) in stored {
            let upright = apply_orientation(picture(&rows), Orientation::from_exif(exif));
            assert_eq!(upright, picture(&["abc", "def"]), "orientation {exif}");
        }
    }

    #[test]
    fn four_quarter_turns_cancel_out() {
        let pixels = (0..70 * 45 * 3_u32).map(|i| (i % 251) as u8).collect();
        let start = Picture::new(pixels, 70, 45).unwrap();
        let end = (0..4).fold(start.clone(), |p, _| apply_orientation(p, Orientation::Rotate90));
        assert_eq!(end, start);
        let back = apply_orientation(
            apply_orientation(start.clone(), Orientation::Rotate90),
            Orientation::Rotate270,
        );
        assert_eq!(back, start);
    }

    #[test]
    fn one_transform_then_another_is_what_both_do() {
        let start = picture(&["abc", "def"]);
        for first in (1..=8).map(Orientation::from_exif) {
            for second in (1..=8).map(Orientation::from_exif) {
                let both = apply_orientation(apply_orientation(start.clone(), first), second);
                let at_once = apply_orientation(start.clone(), first.then(second));
                assert_eq!(at_once, both, "{first:?}, then {second:?}");
            }
        }
    }

    #[test]
    fn an_unknown_orientation_is_upright() {
        assert_eq!(Orientation::from_exif(0), Orientation::Upright);
        assert_eq!(Orientation::from_exif(9), Orientation::Upright);
    }
}
