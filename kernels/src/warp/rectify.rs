//! Rectification: warps a rotated line of text into a horizontal strip of fixed height for a text recogniser.

use crate::device::Device;
use crate::geometry::{Point, Quad};
use crate::image::frame::{Frame, Size};
use crate::image::tensor::Slot;
use crate::resize::area::AreaShrinker;
use crate::warp::{Border, Homography, Sampler};

/// A box at least this many times as high as wide is a vertical line of text: it is rotated by a quarter before reading.
const VERTICAL_TEXT_RATIO: f32 = 1.5;

/// Text larger than the strip is sampled at up to this many times the strip's resolution and then averaged.
const MAX_OVERSAMPLING: u32 = 4;

/// Rectifies lines of text; owns the buffers.
pub struct Rectifier {
    area: AreaShrinker,
    large: Vec<u8>,
    strip: Vec<u8>,
}

impl Quad {
    /// Returns the quad extended at both ends, in the direction of its upper side, by `fraction` of its height. A quad
    /// that is higher than wide is returned unchanged.
    pub fn lengthened(&self, fraction: f32) -> Self {
        let (width, height) = self.size();
        if width < height {
            return *self;
        }
        let [tl, tr, br, bl] = self.0;
        let step = height * fraction / width.max(1e-6);
        let (dx, dy) = ((tr.x - tl.x) * step, (tr.y - tl.y) * step);
        let moved = |point: Point, sign: f32| Point { x: point.x + sign * dx, y: point.y + sign * dy };
        Self([moved(tl, -1.0), moved(tr, 1.0), moved(br, 1.0), moved(bl, -1.0)])
    }
}

/// How a text becomes a strip.
pub(crate) struct StripPlan {
    /// What is text, at the left of the item.
    pub(crate) strip: Size,
    /// Samples of a pixel along each side.
    pub(crate) oversampling: u32,
    quad: Quad,
}

impl StripPlan {
    pub(crate) fn new(quad: &Quad, item: Size) -> Self {
        let (mut quad, (mut width, mut height)) = (*quad, quad.size());
        if height / width.max(1e-6) >= VERTICAL_TEXT_RATIO {
            let [tl, tr, br, bl] = quad.0;
            quad = Quad([tr, br, bl, tl]);
            (width, height) = (height, width);
        }
        let rows = item.height as f32;
        let columns = (rows * width / height.max(1.0)).ceil().clamp(1.0, item.width as f32) as u32;
        let oversampling = ((height / rows) as u32).clamp(1, MAX_OVERSAMPLING);
        Self { strip: Size { width: columns, height: item.height }, oversampling, quad }
    }

    /// The transform from the strip, with its oversampling, to the frame.
    pub(crate) fn homography(&self) -> Homography {
        let Self { strip, oversampling, quad } = self;
        homography_to_quad(
            quad,
            Size { width: strip.width * oversampling, height: strip.height * oversampling },
        )
    }
}

impl Rectifier {
    /// Creates a rectifier on this device.
    pub fn new(device: &Device) -> Self {
        match device {
            Device::Cpu | Device::Gpu(_) => {
                Self { area: AreaShrinker::default(), large: Vec::new(), strip: Vec::new() }
            }
        }
    }

    /// Warps the quad into the left of the slot: all rows of the item, the width that keeps the aspect ratio, squeezed
    /// where that is wider than the item. A quad at least 1.5 times as high as wide is rotated by a quarter first.
    /// Samples bilinearly, outside the frame its nearest pixel. A quad of at least twice the item's height is sampled
    /// at a whole multiple of the item's resolution and averaged.
    ///
    /// # Panics
    /// When the tensor has no such item.
    pub fn place(&mut self, frame: Frame<'_>, quad: &Quad, slot: Slot<'_>) {
        let StripPlan { strip, oversampling, quad } = StripPlan::new(quad, slot.tensor.item_size());
        let large = Size { width: strip.width * oversampling, height: strip.height * oversampling };
        warp_quad(frame, &quad, large, &mut self.large);
        let pixels = if oversampling == 1 {
            &self.large
        } else {
            self.strip.resize(strip.area() * 3, 0);
            let source = Frame::new(&self.large, large.width, large.height)
                .expect("warp_quad writes width * height * 3 bytes");
            self.area.shrink(source.as_window(), strip, &mut self.strip);
            &self.strip
        };
        let stride = strip.width as usize * 3;
        slot.write_rows(strip, |y| &pixels[y as usize * stride..][..stride]);
    }
}

fn warp_quad(frame: Frame<'_>, quad: &Quad, size: Size, out: &mut Vec<u8>) {
    let sampler = Sampler { frame, border: Border::Nearest, homography: homography_to_quad(quad, size) };
    out.resize(size.area() * 3, 0);
    for (y, line) in out.chunks_exact_mut(size.width as usize * 3).enumerate() {
        sampler.sample_row(y as f32, line);
    }
}

/// The homography that maps the corners (0, 0), (width, 0), (width, height), (0, height) to those of the quad, by
/// Heckbert's closed form for a unit square ("Fundamentals of Texture Mapping and Image Warping", 1989).
fn homography_to_quad(quad: &Quad, size: Size) -> Homography {
    let [tl, tr, br, bl] = quad.0.map(|point| (f64::from(point.x), f64::from(point.y)));
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let skew = (tl.0 - tr.0 + br.0 - bl.0, tl.1 - tr.1 + br.1 - bl.1);
    let (right, down) = ((tr.0 - br.0, tr.1 - br.1), (bl.0 - br.0, bl.1 - br.1));
    let area = right.0 * down.1 - right.1 * down.0;
    let parallel = skew.0.abs() < 1e-3 && skew.1.abs() < 1e-3 || area.abs() < 1e-9;
    let (g, h) = if parallel {
        (0.0, 0.0)
    } else {
        ((skew.0 * down.1 - skew.1 * down.0) / area, (right.0 * skew.1 - right.1 * skew.0) / area)
    };
    let row = |tl: f64, tr: f64, bl: f64| {
        [((tr - tl + g * tr) / width) as f32, ((bl - tl + h * bl) / height) as f32, tl as f32]
    };
    Homography {
        x: row(tl.0, tr.0, bl.0),
        y: row(tl.1, tr.1, bl.1),
        w: [(g / width) as f32, (h / height) as f32],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tensor::{Channels, Normalisation, Tensor};

    fn quad(corners: [(f32, f32); 4]) -> Quad {
        Quad(corners.map(|(x, y)| Point { x, y }))
    }

    fn map_point(homography: &Homography, x: f32, y: f32) -> (f32, f32) {
        let w = homography.w[0] * x + homography.w[1] * y + 1.0;
        let line = |row: [f32; 3]| (row[0] * x + row[1] * y + row[2]) / w;
        (line(homography.x), line(homography.y))
    }

    #[test]
    fn corners_go_to_corners_in_perspective() {
        let corners = [(10.0, 20.0), (110.0, 30.0), (90.0, 80.0), (5.0, 60.0)];
        let homography = homography_to_quad(&quad(corners), Size { width: 100, height: 48 });
        for ((x, y), expected) in
            [(0.0, 0.0), (100.0, 0.0), (100.0, 48.0), (0.0, 48.0)].into_iter().zip(corners)
        {
            let got = map_point(&homography, x, y);
            assert!(
                (got.0 - expected.0).abs() < 1e-3 && (got.1 - expected.1).abs() < 1e-3,
                "{got:?}, expected {expected:?}"
            );
        }
    }

    #[test]
    fn lengthening_moves_both_ends_along_the_baseline() {
        let long = quad([(0.0, 0.0), (30.0, 40.0), (22.0, 46.0), (-8.0, 6.0)]).lengthened(0.5);
        let expected = quad([(-3.0, -4.0), (33.0, 44.0), (25.0, 50.0), (-11.0, 2.0)]);
        for (got, expected) in long.0.iter().zip(&expected.0) {
            assert!(
                (got.x - expected.x).abs() < 1e-3 && (got.y - expected.y).abs() < 1e-3,
                "{got:?}, expected {expected:?}"
            );
        }
        let tall = quad([(0.0, 0.0), (5.0, 0.0), (5.0, 20.0), (0.0, 20.0)]);
        assert_eq!(tall.lengthened(0.5), tall);
    }

    fn rectify_quad(frame: Frame<'_>, quad: &Quad) -> Tensor {
        let normalisation = Normalisation { padding: -5.0, ..Normalisation::raw(Channels::Rgb) };
        let mut tensor = Tensor::default();
        tensor.reshape([1, 3, 48, 160]);
        let slot = Slot { tensor: &mut tensor, item: 0, normalisation: &normalisation };
        Rectifier::new(&Device::Cpu).place(frame, quad, slot);
        tensor
    }

    #[test]
    fn an_upright_box_of_the_strips_height_is_copied() {
        let pixels: Vec<u8> =
            (0..200 * 60 * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let frame = Frame::new(&pixels, 200, 60).unwrap();
        let tensor = rectify_quad(frame, &quad([(20.0, 5.0), (120.0, 5.0), (120.0, 53.0), (20.0, 53.0)]));
        for (y, x) in (0..48).flat_map(|y| (0..160).map(move |x| (y, x))) {
            let expected = if x < 100 { f32::from(pixels[((y + 5) * 200 + x + 20) * 3]) } else { -5.0 };
            assert_eq!(tensor.data()[y * 160 + x], expected, "{x} {y}");
        }
    }

    #[test]
    fn a_tall_box_is_rotated_and_a_large_one_averaged() {
        // Four times the strip's height, vertical text: left half dark, right half bright.
        let pixels: Vec<u8> = (0..400 * 300).flat_map(|i| [if i % 400 < 96 { 40 } else { 200 }; 3]).collect();
        let frame = Frame::new(&pixels, 400, 300).unwrap();
        let tensor = rectify_quad(frame, &quad([(0.0, 0.0), (192.0, 0.0), (192.0, 300.0), (0.0, 300.0)]));
        // The first corner is the former top-right one, so the strip's upper half is the bright one.
        assert_eq!(tensor.data()[5 * 160 + 10], 200.0);
        assert_eq!(tensor.data()[40 * 160 + 10], 40.0);
        assert_eq!(tensor.data()[5 * 160 + 100], -5.0);
    }
}
