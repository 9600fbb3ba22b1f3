//! Resizes pictures. One [`Resizer`] per thread: it keeps its weight tables and buffers for the next picture.

pub(crate) mod area;
pub(crate) mod bilinear;
#[cfg(target_arch = "x86_64")]
mod columns;
pub mod letterbox;
pub(crate) mod weights;

use fast_image_resize as fir;
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;

use crate::image::frame::{Frame, Picture, Size, Window};
use crate::resize::area::AreaShrinker;
use crate::resize::bilinear::Bilinear;

/// Bytes of buffers that [`Filter::Bicubic`] keeps for the next picture: of one picture it needs the width of the source times
/// the height of the target. A photo of 24 megapixels needs 9 MB; without a limit, the buffers of one very large photo would
/// stay allocated as long as the thread runs.
pub const MAX_KEPT_BYTES: usize = 24 << 20;

/// From this factor on a thumbnail is made of the means of the areas that its pixels cover. The bicubic filter looks at areas
/// four times as wide and as high, and takes 1.7 times as long from a preview (`bench reading`, an EPYC).
const MEAN_FROM_FACTOR: u32 = 3;

/// The interpolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Bicubic convolution with a = -0.5 (Keys: "Cubic convolution interpolation for digital image processing", 1981), over a
    /// wider area where a side shrinks: sharp, for previews, for frames that networks look at, and for thumbnails that are
    /// little smaller than what they are made from. Near the edges of a window it also samples the frame around it.
    Bicubic,
    /// The mean of the covered area: for network inputs that shrink, and thumbnails. Falls back to [`Filter::Bilinear`] where
    /// a side grows.
    Area,
    /// Bilinear between pixel centres, without a prefilter: for network inputs that grow.
    Bilinear,
}

/// Size and interpolation of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeTarget {
    /// Size of the result; neither side is zero.
    pub size: Size,
    /// The interpolation.
    pub filter: Filter,
}

impl ResizeTarget {
    /// The target for network inputs: [`Filter::Area`] where the width shrinks, else [`Filter::Bilinear`].
    pub fn for_network_input(from: Size, size: Size) -> Self {
        Self { size, filter: if size.width < from.width { Filter::Area } else { Filter::Bilinear } }
    }

    /// The target for thumbnails: [`Filter::Area`] where both sides shrink to a third or less, else [`Filter::Bicubic`].
    pub fn for_thumbnail(from: Size, size: Size) -> Self {
        let is_far_smaller = |side: u32, of: u32| side.saturating_mul(MEAN_FROM_FACTOR) <= of;
        let both = is_far_smaller(size.width, from.width) && is_far_smaller(size.height, from.height);
        Self { size, filter: if both { Filter::Area } else { Filter::Bicubic } }
    }
}

/// Resizes pictures; owns the buffers.
#[derive(Default)]
pub struct Resizer {
    /// Has a buffer of its own only for windows of which both sides change.
    bicubic: fir::Resizer,
    /// For the widths of the last whole picture.
    #[cfg(target_arch = "x86_64")]
    columns: Option<columns::ColumnResizer>,
    /// For a picture of the source's width and the target's height, between the two passes of a whole picture.
    rows: Vec<u8>,
    area: AreaShrinker,
    bilinear: Bilinear,
}

impl Resizer {
    /// Resizes `source` into `out` as row-major RGB and sets its length to `size.area() * 3`. Copies when the size is the
    /// same.
    ///
    /// # Panics
    /// When a side of the target is zero.
    pub fn resize(&mut self, source: Window<'_>, target: ResizeTarget, out: &mut Vec<u8>) {
        let ResizeTarget { size, filter } = target;
        assert!(size.width > 0 && size.height > 0, "the target has a side of zero pixels");
        let from = source.size();
        if from == size {
            out.clear();
            (0..size.height).for_each(|y| out.extend_from_slice(source.row(y)));
            return;
        }
        out.resize(size.area() * 3, 0);
        match filter {
            Filter::Bicubic => self.resize_bicubic(source, size, out),
            Filter::Area if size.width <= from.width && size.height <= from.height => {
                self.area.shrink(source, size, out);
            }
            Filter::Area | Filter::Bilinear => self.bilinear.resize(source, size, out),
        }
    }

    /// Resizes a frame into a new picture.
    ///
    /// # Panics
    /// When a side of the target is zero.
    pub fn resize_frame(&mut self, frame: Frame<'_>, target: ResizeTarget) -> Picture {
        let size = target.size;
        let mut pixels = Vec::with_capacity(size.area() * 3);
        self.resize(frame.as_window(), target, &mut pixels);
        Picture::new(pixels, size.width, size.height).expect("resize writes width * height * 3 bytes")
    }

    fn resize_bicubic(&mut self, source: Window<'_>, size: Size, out: &mut [u8]) {
        let (from, frame) = (source.size(), source.frame());
        if from != frame.size() || from.width == size.width {
            // The library looks around a window, and keeps the rows of one itself. One pass alone has none.
            resize_by_library(&mut self.bicubic, source, size, out);
        } else if from.height == size.height {
            self.resize_widths(frame, size, out);
        } else {
            let between = Size { width: from.width, height: size.height };
            let length = between.area() * 3;
            let mut rows = std::mem::take(&mut self.rows);
            if rows.len() < length {
                // Not grown: that would copy what is in it, and might take twice as much.
                drop(rows);
                rows = vec![0; length];
            }
            resize_by_library(&mut self.bicubic, source, between, &mut rows[..length]);
            let picture = Frame::new(&rows[..length], between.width, between.height)
                .expect("the rows have width * height * 3 bytes");
            self.resize_widths(picture, size, out);
            self.rows = rows;
        }
        self.free_surplus();
    }

    /// Resizes a picture to another width, by `columns` or else by the library.
    fn resize_widths(&mut self, source: Frame<'_>, size: Size, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        {
            if !self.columns.as_ref().is_some_and(|columns| columns.is_for(source.width(), size.width)) {
                self.columns = columns::ColumnResizer::new(source.width(), size.width);
            }
            if let Some(columns) = &self.columns {
                columns.resize(source.pixels(), out);
                return;
            }
        }
        resize_by_library(&mut self.bicubic, source.as_window(), size, out);
    }

    /// Keeps no more than [`MAX_KEPT_BYTES`], first of all for whole pictures: photos are.
    fn free_surplus(&mut self) {
        if self.rows.capacity() > MAX_KEPT_BYTES {
            self.rows = Vec::new();
        }
        if self.rows.capacity() + self.bicubic.size_of_internal_buffers() > MAX_KEPT_BYTES {
            self.bicubic.reset_internal_buffers();
        }
    }
}

fn resize_by_library(resizer: &mut fir::Resizer, source: Window<'_>, size: Size, out: &mut [u8]) {
    let frame = source.frame();
    // Typed: the function for any type of pixel is compiled for all of them, which takes minutes.
    let view = TypedImageRef::<U8x3>::from_buffer(frame.width(), frame.height(), frame.pixels())
        .expect("a frame has width * height * 3 bytes");
    let mut target = TypedImage::<U8x3>::from_buffer(size.width, size.height, out)
        .expect("the buffer has width * height * 3 bytes");
    let crop = source.size();
    let options = fir::ResizeOptions::new()
        .resize_alg(fir::ResizeAlg::Convolution(fir::FilterType::CatmullRom))
        .crop(source.left().into(), source.top().into(), crop.width.into(), crop.height.into());
    resizer.resize_typed(&view, &mut target, &options).expect("a window is within its frame");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(width: u32, height: u32) -> Picture {
        let pixels = (0..width * height * 3).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        Picture::new(pixels, width, height).unwrap()
    }

    #[test]
    fn a_window_resizes_like_a_copy_of_it() {
        let picture = noise(50, 40);
        let window = picture.frame().window(7, 5, Size { width: 31, height: 22 }).unwrap();
        let copied: Vec<u8> = (0..22).flat_map(|y| window.row(y).to_vec()).collect();
        let copy = Frame::new(&copied, 31, 22).unwrap();
        let mut resizer = Resizer::default();
        for filter in [Filter::Area, Filter::Bilinear] {
            let target = ResizeTarget { size: Size { width: 17, height: 9 }, filter };
            let (mut from_window, mut from_copy) = (Vec::new(), Vec::new());
            resizer.resize(window, target, &mut from_window);
            resizer.resize(copy.as_window(), target, &mut from_copy);
            assert_eq!(from_window, from_copy, "{filter:?}");
        }
    }

    #[test]
    fn a_flat_picture_stays_flat() {
        let flat = Picture::new(vec![93; 64 * 48 * 3], 64, 48).unwrap();
        let mut resizer = Resizer::default();
        for filter in [Filter::Bicubic, Filter::Area, Filter::Bilinear] {
            for size in [Size { width: 13, height: 11 }, Size { width: 100, height: 70 }] {
                let resized = resizer.resize_frame(flat.frame(), ResizeTarget { size, filter });
                assert!(resized.frame().pixels().iter().all(|&value| value == 93), "{filter:?} {size:?}");
            }
        }
    }

    #[test]
    fn the_buffers_of_a_very_large_picture_are_not_kept() {
        let mut resizer = Resizer::default();
        let mut kept_after = |from: Size, size: Size| {
            let picture = noise(from.width, from.height);
            resizer.resize_frame(picture.frame(), ResizeTarget { size, filter: Filter::Bicubic });
            resizer.bicubic.size_of_internal_buffers() + resizer.rows.capacity()
        };
        // Columns are resized first: the rows in between have the source's width and the target's height.
        let ordinary = kept_after(Size { width: 400, height: 300 }, Size { width: 200, height: 150 });
        assert!((400 * 150 * 3..MAX_KEPT_BYTES).contains(&ordinary), "{ordinary} bytes");
        assert_eq!(kept_after(Size { width: 4000, height: 2 }, Size { width: 2000, height: 2200 }), 0);
    }

    #[test]
    fn all_buffers_together_are_within_the_limit() {
        let mut resizer = Resizer::default();
        let mut resize = |source: Window<'_>, width: u32, height: u32| {
            let target = ResizeTarget { size: Size { width, height }, filter: Filter::Bicubic };
            resizer.resize(source, target, &mut Vec::new());
            #[cfg(target_arch = "x86_64")]
            let has_columns = resizer.columns.is_some();
            #[cfg(not(target_arch = "x86_64"))]
            let has_columns = false;
            let (rows, inner) = (resizer.rows.capacity(), resizer.bicubic.size_of_internal_buffers());
            assert!(rows + inner <= MAX_KEPT_BYTES, "{rows} and {inner} bytes");
            (has_columns, rows)
        };
        // A photo of 24 megapixels shrinks too much for columns; a photo that was decoded at half of its size does not.
        let (large, half) = (noise(6000, 2), noise(3000, 2));
        let (has_columns, kept) = resize(large.frame().as_window(), 2048, 1365);
        assert!(!has_columns && kept >= 6000 * 1365 * 3, "{kept} bytes");
        let (has_columns, kept_next) = resize(half.frame().as_window(), 2048, 400);
        if !has_columns {
            eprintln!("tested less: without AVX-512 the library makes both passes of each picture");
        }
        assert_eq!(kept_next, kept, "one buffer for both");
        // The library keeps the rows of a window itself.
        let window = half.frame().window(1, 0, Size { width: 2900, height: 2 }).unwrap();
        assert_eq!(resize(window, 2048, 400).1, kept);
    }

    #[test]
    fn whole_pictures_are_those_of_the_library() {
        let mut resizer = Resizer::default();
        for (width, height, size) in [
            (90, 40, Size { width: 47, height: 33 }),
            (64, 30, Size { width: 6, height: 11 }),
            (22, 20, Size { width: 40, height: 30 }),
            (50, 40, Size { width: 50, height: 20 }),
            (50, 40, Size { width: 30, height: 40 }),
            (300, 20, Size { width: 10, height: 20 }),
        ] {
            let picture = noise(width, height);
            let mut expected = vec![0; size.area() * 3];
            let source = picture.frame().as_window();
            resize_by_library(&mut fir::Resizer::new(), source, size, &mut expected);
            let resized =
                resizer.resize_frame(picture.frame(), ResizeTarget { size, filter: Filter::Bicubic });
            assert!(resized.frame().pixels() == expected, "{width} x {height} to {size:?}");
        }
    }

    #[test]
    fn a_thumbnail_is_the_mean_where_both_sides_are_a_third_or_less() {
        let from = Size { width: 300, height: 150 };
        for (width, height, filter) in [
            (100, 50, Filter::Area),
            (30, 15, Filter::Area),
            (101, 50, Filter::Bicubic),
            (100, 51, Filter::Bicubic),
        ] {
            let size = Size { width, height };
            assert_eq!(ResizeTarget::for_thumbnail(from, size), ResizeTarget { size, filter });
        }
    }

    #[test]
    fn the_same_size_is_a_copy() {
        let picture = noise(9, 7);
        let target = ResizeTarget { size: picture.size(), filter: Filter::Bicubic };
        let copy = Resizer::default().resize_frame(picture.frame(), target);
        assert_eq!(copy, picture);
    }
}
