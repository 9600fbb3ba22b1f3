//! Draws the watermark of an album over a preview. What is drawn is a PNG of any size, scaled to a part of the preview's
//! width, once or again and again.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use image::{ImageFormat, ImageReader, Limits, RgbaImage};
use photofinish_kernels::image::frame::Size;
use photofinish_store::model::watermark::{Watermark, WatermarkPlacement, WatermarkPosition};

use crate::engine::sync::lock;
use crate::image::row_scaler::RowScaler;

/// Longest side of a watermark, pixels.
const MAX_SIDE: u32 = 2000;
/// Memory that decoding one may take.
const MAX_DECODER_BYTES: u64 = 64 << 20;
/// Scaled pictures that are kept: previews of an album have few widths.
const KEPT_STAMPS: usize = 4;
/// What these may take together, bytes: enough for previews of 2048 pixels, upright and not, that are covered.
const MAX_STAMP_BYTES: usize = 16 << 20;
/// The distance to the edges of the preview, as a part of its shorter side.
const MARGIN: f64 = 0.02;

/// Why a file is no watermark.
#[derive(Debug, thiserror::Error)]
pub enum WatermarkError {
    /// Not a PNG, damaged, or too large.
    #[error("not a PNG of at most {MAX_SIDE} pixels a side: {0}")]
    Unreadable(#[from] image::ImageError),
    /// Nothing of it would be seen.
    #[error("every pixel is transparent")]
    Invisible,
}

/// A watermark that can be drawn. Its colours are multiplied with its alpha, which scaling needs.
#[derive(Debug)]
pub struct WatermarkPicture {
    version: i64,
    placement: WatermarkPlacement,
    picture: RgbaImage,
    /// The latest last. Nobody scales while this is locked.
    stamps: Mutex<Vec<Arc<Stamp>>>,
    /// What these may take together, bytes.
    max_stamp_bytes: usize,
}

/// A watermark as large and as transparent as it is drawn on some pictures: RGBA, row-major.
#[derive(Debug)]
struct Stamp {
    size: Size,
    pixels: Vec<u8>,
}

impl WatermarkPicture {
    /// Decodes the picture of a watermark.
    ///
    /// # Errors
    /// When it is not a PNG, is damaged or too large, or is transparent everywhere.
    pub fn open(watermark: &Watermark) -> Result<Self, WatermarkError> {
        let mut reader = ImageReader::with_format(Cursor::new(&watermark.picture), ImageFormat::Png);
        let mut limits = Limits::default();
        limits.max_image_width = Some(MAX_SIDE);
        limits.max_image_height = Some(MAX_SIDE);
        limits.max_alloc = Some(MAX_DECODER_BYTES);
        reader.limits(limits);
        let mut picture = reader.decode()?.into_rgba8();
        if picture.pixels().all(|pixel| pixel.0[3] == 0) {
            return Err(WatermarkError::Invisible);
        }
        for pixel in picture.pixels_mut() {
            let [red, green, blue, alpha] = pixel.0;
            pixel.0 = [multiply(red, alpha), multiply(green, alpha), multiply(blue, alpha), alpha];
        }
        let (version, placement) = (watermark.version, watermark.placement);
        let (stamps, max_stamp_bytes) = (Mutex::default(), MAX_STAMP_BYTES);
        Ok(Self { version, placement, picture, stamps, max_stamp_bytes })
    }

    /// The version of the watermark.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The memory that its pixels take, bytes: more once it was drawn, because what was scaled is kept.
    pub(crate) fn size_bytes(&self) -> usize {
        self.picture.as_raw().len() + count_bytes(&lock(&self.stamps))
    }

    /// Draws it over the RGB pixels of a picture of this size.
    pub(crate) fn draw(&self, pixels: &mut [u8], size: Size) {
        let stamp_size = self.stamp_size(size);
        let places = self.places(size, stamp_size);
        let mut draw_row = |y: u32, row: &[u8]| {
            for place in &places {
                blend_row(pixels, size, row, Place { x: place.x, y: place.y + i64::from(y) });
            }
        };
        if let Some(stamp) = self.stamp(stamp_size) {
            for (y, row) in (0..).zip(stamp.pixels.chunks_exact(stamp_size.width as usize * 4)) {
                draw_row(y, row);
            }
        } else {
            self.scale(stamp_size, draw_row);
        }
    }

    /// Returns the stamp of this size, which is kept then; `None` if it is too large for that.
    fn stamp(&self, size: Size) -> Option<Arc<Stamp>> {
        let bytes = size.area() * 4;
        if bytes > self.max_stamp_bytes {
            return None;
        }
        let kept = lock(&self.stamps).iter().find(|stamp| stamp.size == size).cloned();
        if kept.is_some() {
            return kept;
        }
        // Two threads may scale the same: each has a share of the cores, which it would hold while it waits.
        let mut pixels = Vec::with_capacity(bytes);
        self.scale(size, |_, row| pixels.extend_from_slice(row));
        let stamp = Arc::new(Stamp { size, pixels });
        self.keep(Arc::clone(&stamp));
        Some(stamp)
    }

    fn keep(&self, stamp: Arc<Stamp>) {
        let mut stamps = lock(&self.stamps);
        stamps.retain(|kept| kept.size != stamp.size);
        stamps.push(stamp);
        while stamps.len() > KEPT_STAMPS || count_bytes(&stamps) > self.max_stamp_bytes {
            stamps.remove(0);
        }
    }

    /// Scales it and makes it as transparent as it is drawn, a row at a time. `use_row` gets each with its number.
    fn scale(&self, size: Size, mut use_row: impl FnMut(u32, &[u8])) {
        let opacity = (self.placement.opacity.clamp(0.0, 1.0) * 255.0).round() as u8;
        let mut scaler = RowScaler::new(&self.picture, size);
        let mut row = vec![0; size.width as usize * 4];
        for y in 0..size.height {
            scaler.scale_row(y, &mut row);
            for value in &mut row {
                *value = multiply(*value, opacity);
            }
            use_row(y, &row);
        }
    }

    /// The share of the picture's width that was asked for; less where it would be higher than the picture.
    fn stamp_size(&self, size: Size) -> Size {
        let (width, height) = (f64::from(self.picture.width()), f64::from(self.picture.height()));
        let by_width = f64::from(size.width) * self.placement.scale / width;
        let factor = by_width.min(f64::from(size.height) / height);
        let side = |length: f64| ((length * factor).round() as u32).max(1);
        Size { width: side(width), height: side(height) }
    }

    /// Where the upper left corner of each stamp is. Tiles may be cut off by the edges of the picture.
    fn places(&self, size: Size, stamp: Size) -> Vec<Place> {
        let (free_x, free_y) = (
            i64::from(size.width) - i64::from(stamp.width),
            i64::from(size.height) - i64::from(stamp.height),
        );
        let margin = (f64::from(size.width.min(size.height)) * MARGIN).round() as i64;
        let (left, top) = (margin.min(free_x), margin.min(free_y));
        let one = |x, y| vec![Place { x, y }];
        match self.placement.position {
            WatermarkPosition::Tile => tiles(size, stamp),
            WatermarkPosition::Center => one(free_x / 2, free_y / 2),
            WatermarkPosition::TopLeft => one(left, top),
            WatermarkPosition::TopRight => one(free_x - left, top),
            WatermarkPosition::BottomLeft => one(left, free_y - top),
            WatermarkPosition::BottomRight => one(free_x - left, free_y - top),
        }
    }
}

/// A place of a stamp, pixels from the upper left corner of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    x: i64,
    y: i64,
}

/// Rows of stamps with half a stamp between them; each second row begins half a step further left, so that no straight
/// strip of the picture stays free.
fn tiles(size: Size, stamp: Size) -> Vec<Place> {
    let (width, height) = (i64::from(stamp.width), i64::from(stamp.height));
    let (step_x, step_y) = ((width + width / 2).max(2), (height + height / 2).max(2));
    let mut places = Vec::new();
    let mut y = -height / 4;
    let mut is_odd = false;
    while y < i64::from(size.height) {
        let mut x = if is_odd { -width / 4 - step_x / 2 } else { -width / 4 };
        while x < i64::from(size.width) {
            places.push(Place { x, y });
            x += step_x;
        }
        y += step_y;
        is_odd = !is_odd;
    }
    places
}

/// What these stamps take, bytes.
fn count_bytes(stamps: &[Arc<Stamp>]) -> usize {
    stamps.iter().map(|stamp| stamp.pixels.len()).sum()
}

/// Draws the part of a stamp's row that lies within the picture. The formula of premultiplied alpha: colour + background x (1 -
/// alpha).
fn blend_row(pixels: &mut [u8], size: Size, row: &[u8], place: Place) {
    let length = (row.len() / 4) as i64;
    let left = (-place.x).clamp(0, length);
    let right = (i64::from(size.width) - place.x).clamp(left, length);
    if left == right || !(0..i64::from(size.height)).contains(&place.y) {
        return;
    }
    let begin = place.y as usize * size.width as usize + (place.x + left) as usize;
    let above = &row[left as usize * 4..right as usize * 4];
    for (below, above) in pixels[begin * 3..].chunks_exact_mut(3).zip(above.chunks_exact(4)) {
        let rest = 255 - above[3];
        for (below, above) in below.iter_mut().zip(above) {
            *below = multiply(*below, rest).saturating_add(*above);
        }
    }
}

/// The product of two fractions of 255, rounded.
fn multiply(a: u8, b: u8) -> u8 {
    ((u32::from(a) * u32::from(b) + 127) / 255) as u8
}

#[cfg(test)]
mod tests {
    use image::Rgba;

    use super::*;

    const SIZE: Size = Size { width: 60, height: 40 };

    fn png(picture: &RgbaImage) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        picture.write_to(&mut file, ImageFormat::Png).unwrap();
        file.into_inner()
    }

    /// A watermark of one colour.
    fn open(position: WatermarkPosition, colour: [u8; 4]) -> WatermarkPicture {
        let picture = png(&RgbaImage::from_pixel(40, 20, Rgba(colour)));
        let placement = WatermarkPlacement { position, opacity: 1.0, scale: 0.5 };
        WatermarkPicture::open(&Watermark { version: 3, picture: picture.into(), placement }).unwrap()
    }

    fn draw(watermark: &WatermarkPicture) -> Vec<u8> {
        let mut pixels = vec![100; SIZE.area() * 3];
        watermark.draw(&mut pixels, SIZE);
        pixels
    }

    /// The columns and rows of the pixels that were changed: first and last.
    fn changed(pixels: &[u8]) -> [usize; 4] {
        let width = SIZE.width as usize;
        let places = pixels.chunks(3).enumerate().filter(|(_, pixel)| **pixel != [100; 3]);
        places.fold([usize::MAX, 0, usize::MAX, 0], |[left, right, top, bottom], (at, _)| {
            let (x, y) = (at % width, at / width);
            [left.min(x), right.max(x), top.min(y), bottom.max(y)]
        })
    }

    #[test]
    fn it_is_where_it_is_asked_for() {
        for (position, expected) in [
            (WatermarkPosition::Center, [15, 44, 12, 26]),
            (WatermarkPosition::TopLeft, [1, 30, 1, 15]),
            (WatermarkPosition::TopRight, [29, 58, 1, 15]),
            (WatermarkPosition::BottomLeft, [1, 30, 24, 38]),
            (WatermarkPosition::BottomRight, [29, 58, 24, 38]),
        ] {
            assert_eq!(changed(&draw(&open(position, [255, 0, 0, 255]))), expected, "{position:?}");
        }
    }

    #[test]
    fn its_size_includes_what_was_scaled() {
        let watermark = open(WatermarkPosition::Center, [255, 0, 0, 255]);
        assert_eq!(watermark.size_bytes(), 40 * 20 * 4);
        draw(&watermark);
        draw(&watermark);
        assert_eq!(watermark.size_bytes(), 40 * 20 * 4 + 30 * 15 * 4);
    }

    #[test]
    fn what_is_kept_of_it_is_bounded_and_what_is_larger_is_drawn_alike() {
        // Half as wide as a picture: one of these fits, or two of the smaller ones.
        let max_stamp_bytes = 60 * 30 * 4;
        for position in [WatermarkPosition::Tile, WatermarkPosition::BottomRight] {
            let with_bound = |bytes: usize| {
                let mut watermark = open(position, [200, 100, 50, 128]);
                watermark.picture.put_pixel(7, 5, Rgba([0, 0, 0, 255]));
                watermark.placement.opacity = 0.7;
                watermark.max_stamp_bytes = bytes;
                watermark
            };
            let (keeping, bounded, drawing) =
                (with_bound(usize::MAX), with_bound(max_stamp_bytes), with_bound(0));
            for width in [120, 122, 90, 70, 64, 120, 300] {
                let size = Size { width, height: 160 };
                let [expected, pixels, others] = [&keeping, &bounded, &drawing].map(|watermark| {
                    let mut pixels: Vec<u8> = (0..size.area() * 3).map(|i| (i % 251) as u8).collect();
                    watermark.draw(&mut pixels, size);
                    pixels
                });
                assert!(pixels == expected && others == expected, "{position:?} on {width} pixels");
                assert!(
                    bounded.size_bytes() <= 40 * 20 * 4 + max_stamp_bytes,
                    "{position:?} on {width} pixels"
                );
                assert_eq!(drawing.size_bytes(), 40 * 20 * 4);
            }
            assert_eq!(lock(&keeping.stamps).len(), KEPT_STAMPS);
            let sizes: Vec<u32> = lock(&bounded.stamps).iter().map(|stamp| stamp.size.width).collect();
            assert_eq!(sizes, [60], "the latest that is not too large");
        }
    }

    #[test]
    fn tiles_are_in_every_part_of_the_picture() {
        let pixels = draw(&open(WatermarkPosition::Tile, [255, 0, 0, 255]));
        for quarter in pixels.chunks(pixels.len() / 4) {
            let marked = quarter.chunks(3).filter(|pixel| **pixel == [255, 0, 0]).count();
            assert!(marked * 3 > quarter.len() / 6, "{marked} of {}", quarter.len() / 3);
        }
        assert!(pixels.chunks(3).any(|pixel| *pixel == [100; 3]), "and the picture is still seen");
    }

    #[test]
    fn alpha_and_opacity_are_multiplied() {
        let mut watermark = open(WatermarkPosition::Center, [200, 200, 200, 128]);
        let middle = (20 * 60 + 30) * 3;
        assert_eq!(draw(&watermark)[middle], 150);
        watermark = open(WatermarkPosition::Center, [200, 200, 200, 128]);
        watermark.placement.opacity = 0.5;
        assert_eq!(draw(&watermark)[middle], 125);
    }

    #[test]
    fn one_that_is_higher_than_the_picture_is_made_smaller() {
        let picture = png(&RgbaImage::from_pixel(10, 90, Rgba([9, 9, 9, 255])));
        let placement = WatermarkPlacement { position: WatermarkPosition::Center, opacity: 1.0, scale: 1.0 };
        let watermark = Watermark { version: 1, picture: picture.into(), placement };
        let watermark = WatermarkPicture::open(&watermark).unwrap();
        assert_eq!(watermark.stamp_size(SIZE), Size { width: 4, height: 40 });
        assert_eq!(changed(&draw(&watermark)), [28, 31, 0, 39]);
    }

    #[test]
    fn no_watermark_is_made_of_other_files() {
        let open = |picture: Vec<u8>| {
            let placement = WatermarkPlacement::default();
            WatermarkPicture::open(&Watermark { version: 1, picture: picture.into(), placement })
        };
        let good = png(&RgbaImage::from_pixel(40, 20, Rgba([1, 2, 3, 4])));
        assert!(open(good.clone()).is_ok());
        for end in 0..good.len() - 16 {
            assert!(open(good[..end].to_vec()).is_err(), "cut off after {end} bytes");
        }
        let clear = open(png(&RgbaImage::new(40, 20)));
        assert!(matches!(clear, Err(WatermarkError::Invisible)));
        assert!(open(png(&RgbaImage::from_pixel(2001, 1, Rgba([1, 2, 3, 4])))).is_err());
        assert!(open(b"GIF89a".to_vec()).is_err());
    }
}
