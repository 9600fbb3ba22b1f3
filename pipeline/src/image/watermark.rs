//! Draws the watermark of an album over a preview. What is drawn is a PNG of any size, scaled to a part of the preview's
//! width, once or again and again.

use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use image::imageops::{FilterType, resize};
use image::{ImageFormat, ImageReader, Limits, RgbaImage};
use photofinish_kernels::image::frame::Size;
use photofinish_store::model::watermark::{Watermark, WatermarkPlacement, WatermarkPosition};

use crate::engine::sync::lock;

/// Longest side of a watermark, pixels.
const MAX_SIDE: u32 = 2000;
/// Memory that decoding one may take.
const MAX_DECODER_BYTES: u64 = 64 << 20;
/// Scaled pictures that are kept: previews of an album have few widths.
const KEPT_STAMPS: usize = 4;
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
    /// Scaled and made transparent, the latest last.
    stamps: Mutex<Vec<Arc<RgbaImage>>>,
    /// What these take, bytes. Beside them, because whoever scales one holds their lock.
    stamp_bytes: AtomicUsize,
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
        Ok(Self { version, placement, picture, stamps: Mutex::default(), stamp_bytes: AtomicUsize::new(0) })
    }

    /// The version of the watermark.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The memory that its pixels take, bytes: more once it was drawn, because what was scaled is kept.
    pub(crate) fn size_bytes(&self) -> usize {
        self.picture.as_raw().len() + self.stamp_bytes.load(Ordering::Relaxed)
    }

    /// Draws it over the RGB pixels of a picture of this size.
    pub(crate) fn draw(&self, pixels: &mut [u8], size: Size) {
        let stamp = self.stamp(size);
        for place in self.places(size, &stamp) {
            blend(pixels, size, &stamp, place);
        }
    }

    /// Returns the watermark as large and as transparent as it is drawn on a picture of this size.
    fn stamp(&self, size: Size) -> Arc<RgbaImage> {
        let scaled = self.stamp_size(size);
        let mut stamps = lock(&self.stamps);
        if let Some(stamp) = stamps.iter().find(|stamp| stamp.dimensions() == (scaled.width, scaled.height)) {
            return Arc::clone(stamp);
        }
        let mut stamp = resize(&self.picture, scaled.width, scaled.height, FilterType::CatmullRom);
        let opacity = (self.placement.opacity.clamp(0.0, 1.0) * 255.0).round() as u8;
        for value in stamp.iter_mut() {
            *value = multiply(*value, opacity);
        }
        let stamp = Arc::new(stamp);
        if stamps.len() >= KEPT_STAMPS {
            stamps.remove(0);
        }
        stamps.push(Arc::clone(&stamp));
        let bytes: usize = stamps.iter().map(|stamp| stamp.as_raw().len()).sum();
        self.stamp_bytes.store(bytes, Ordering::Relaxed);
        stamp
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
    fn places(&self, size: Size, stamp: &RgbaImage) -> Vec<Place> {
        let (free_x, free_y) = (
            i64::from(size.width) - i64::from(stamp.width()),
            i64::from(size.height) - i64::from(stamp.height()),
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
fn tiles(size: Size, stamp: &RgbaImage) -> Vec<Place> {
    let (width, height) = (i64::from(stamp.width()), i64::from(stamp.height()));
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

/// Draws the part of a stamp that lies within the picture. The formula of premultiplied alpha: colour + background x (1 -
/// alpha).
fn blend(pixels: &mut [u8], size: Size, stamp: &RgbaImage, place: Place) {
    let visible = |place: i64, length: u32, limit: u32| {
        let first = (-place).clamp(0, i64::from(length));
        let end = (i64::from(limit) - place).clamp(first, i64::from(length));
        (first as usize, end as usize)
    };
    let (left, right) = visible(place.x, stamp.width(), size.width);
    let (top, bottom) = visible(place.y, stamp.height(), size.height);
    let (stride, stamp_stride) = (size.width as usize * 3, stamp.width() as usize * 4);
    for row in top..bottom {
        let y = (place.y + row as i64) as usize;
        let x = (place.x + left as i64) as usize;
        let below = &mut pixels[y * stride + x * 3..][..(right - left) * 3];
        let above = &stamp.as_raw()[row * stamp_stride + left * 4..][..(right - left) * 4];
        for (below, above) in below.chunks_exact_mut(3).zip(above.chunks_exact(4)) {
            let rest = 255 - above[3];
            for (below, above) in below.iter_mut().zip(above) {
                *below = multiply(*below, rest).saturating_add(*above);
            }
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
