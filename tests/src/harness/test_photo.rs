//! Photos whose faces and bibs are painted marks, which the fake models read without weights.
//!
//! A [`TestPhoto`] is a scene; its methods `to_jpeg`, `to_png16` and so on encode it as cameras and editors do.

use image::{DynamicImage, ImageFormat, RgbImage, imageops};
use photofinish_models::fakes::{paint_bib, paint_face};

/// A scene: marks for faces and bibs on a sky over a road.
#[derive(Clone, Debug)]
pub struct TestPhoto {
    pixels: RgbImage,
}

/// The EXIF fields that the service reads.
#[derive(Clone, Copy, Debug)]
pub struct Exif {
    /// 1 to 8: how the stored pixels must be rotated or mirrored to be upright.
    pub orientation: u8,
    /// `YYYY:MM:DD hh:mm:ss`.
    pub taken_at: &'static str,
    /// `+hh:mm`.
    pub offset: &'static str,
}

impl Exif {
    /// Taken on 10 May 2026 at 09:31:27 +02:00, with this orientation.
    pub fn with_orientation(orientation: u8) -> Self {
        Self { orientation, taken_at: "2026:05:10 09:31:27", offset: "+02:00" }
    }
}

impl TestPhoto {
    /// An empty scene of this size in pixels.
    pub fn new(width: u32, height: u32) -> Self {
        let horizon = height * 2 / 5;
        let pixels = RgbImage::from_fn(width, height, |x, y| {
            // A little texture, so that files have realistic sizes and flat areas hide no errors.
            let grain = ((x * 7 + y * 13) % 9) as u8;
            if y < horizon {
                image::Rgb([150 + grain, 180 + grain, 210 + grain])
            } else {
                image::Rgb([110 + grain, 108 + grain, 104 + grain])
            }
        });
        Self { pixels }
    }

    /// A scene of these pixels, such as those of a real photo.
    pub fn from_pixels(pixels: RgbImage) -> Self {
        Self { pixels }
    }

    /// A selfie: one person who fills the frame.
    pub fn selfie(person: u16) -> Self {
        Self::new(640, 640).with_face(person, [200, 160, 240])
    }

    /// Adds the face of a person, a square: left, top and side in pixels.
    #[must_use]
    pub fn with_face(self, person: u16, square: [u32; 3]) -> Self {
        self.paint(|canvas| paint_face(canvas, person, square))
    }

    /// Adds a bib of 128 x 40 pixels: left and top in pixels.
    #[must_use]
    pub fn with_bib(self, text: &str, left_top: [u32; 2]) -> Self {
        self.paint(|canvas| paint_bib(canvas, text, left_top))
    }

    fn paint(self, paint: impl FnOnce(&mut photofinish_kernels::image::frame::Picture)) -> Self {
        let (width, height) = self.pixels.dimensions();
        let mut canvas =
            photofinish_kernels::image::frame::Picture::new(self.pixels.into_raw(), width, height)
                .expect("a picture has three bytes a pixel");
        paint(&mut canvas);
        let pixels =
            RgbImage::from_raw(width, height, canvas.into_pixels()).expect("painting keeps the size");
        Self { pixels }
    }

    /// The pixels.
    pub fn pixels(&self) -> &RgbImage {
        &self.pixels
    }

    /// A baseline JPEG.
    pub fn to_jpeg(&self) -> Vec<u8> {
        encode_jpeg(&self.pixels)
    }

    /// A JPEG with EXIF, whose pixels are stored as a camera in that orientation stores them.
    pub fn to_jpeg_with_exif(&self, exif: Exif) -> Vec<u8> {
        let stored = match exif.orientation {
            2 => imageops::flip_horizontal(&self.pixels),
            3 => imageops::rotate180(&self.pixels),
            4 => imageops::flip_vertical(&self.pixels),
            5 => imageops::flip_horizontal(&imageops::rotate90(&self.pixels)),
            6 => imageops::rotate270(&self.pixels),
            7 => imageops::flip_horizontal(&imageops::rotate270(&self.pixels)),
            8 => imageops::rotate90(&self.pixels),
            _ => self.pixels.clone(),
        };
        let mut jpeg = encode_jpeg(&stored);
        jpeg.splice(2..2, exif_segment(exif));
        jpeg
    }

    /// A grey JPEG.
    pub fn to_grey_jpeg(&self) -> Vec<u8> {
        let grey = imageops::grayscale(&self.pixels);
        compress_pixels(new_compressor(), grey.as_raw(), grey.dimensions(), turbojpeg::PixelFormat::GRAY)
    }

    /// A progressive JPEG.
    ///
    /// # Panics
    /// When libjpeg-turbo fails, which it has no reason to.
    pub fn to_progressive_jpeg(&self) -> Vec<u8> {
        let mut compressor = new_compressor();
        compressor.set_progressive(true).expect("progressive is built in");
        compress_pixels(
            compressor,
            self.pixels.as_raw(),
            self.pixels.dimensions(),
            turbojpeg::PixelFormat::RGB,
        )
    }

    /// A CMYK JPEG with inverted values, as Adobe programs write them.
    ///
    /// # Panics
    /// When libjpeg-turbo fails, which it has no reason to.
    pub fn to_cmyk_jpeg(&self) -> Vec<u8> {
        let inverted: Vec<u8> = self.pixels.pixels().flat_map(|p| [p[0], p[1], p[2], 255]).collect();
        compress_pixels(new_compressor(), &inverted, self.pixels.dimensions(), turbojpeg::PixelFormat::CMYK)
    }

    /// A PNG of 8 bits a channel.
    pub fn to_png(&self) -> Vec<u8> {
        encode_image(&self.pixels.clone().into(), ImageFormat::Png)
    }

    /// A PNG of 16 bits a channel.
    pub fn to_png16(&self) -> Vec<u8> {
        encode_image(&DynamicImage::from(self.pixels.clone()).to_rgb16().into(), ImageFormat::Png)
    }

    /// A PNG with an alpha channel.
    pub fn to_png_with_alpha(&self) -> Vec<u8> {
        encode_image(&DynamicImage::from(self.pixels.clone()).to_rgba8().into(), ImageFormat::Png)
    }

    /// A lossless WebP.
    pub fn to_webp(&self) -> Vec<u8> {
        encode_image(&self.pixels.clone().into(), ImageFormat::WebP)
    }
}

/// The pixels of a JPEG, as stored.
///
/// # Panics
/// When it is no JPEG.
pub fn decode_jpeg(jpeg: &[u8]) -> RgbImage {
    image::load_from_memory_with_format(jpeg, ImageFormat::Jpeg).expect("a JPEG").to_rgb8()
}

/// A PNG that claims 65535 x 65535 pixels and has none.
pub fn png_of_four_gigapixels() -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = b"IHDR".to_vec();
    header.extend_from_slice(&65_535_u32.to_be_bytes());
    header.extend_from_slice(&65_535_u32.to_be_bytes());
    header.extend_from_slice(&[8, 2, 0, 0, 0]);
    for chunk in [header, b"IDAT".to_vec(), b"IEND".to_vec()] {
        png.extend_from_slice(&u32::try_from(chunk.len() - 4).expect("a small chunk").to_be_bytes());
        png.extend_from_slice(&chunk);
        png.extend_from_slice(&crc32(&chunk).to_be_bytes());
    }
    png
}

/// A JPEG whose header claims 65535 x 65535 pixels and whose scan is that of a small one.
pub fn jpeg_of_four_gigapixels() -> Vec<u8> {
    let mut jpeg = TestPhoto::new(64, 64).to_jpeg();
    let frame = jpeg.windows(2).position(|two| two == [0xff, 0xc0]).expect("a frame header");
    jpeg[frame + 5..frame + 9].fill(0xff);
    jpeg
}

fn encode_image(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    image.write_to(&mut file, format).expect("an image in memory can be encoded");
    file.into_inner()
}

/// A JPEG as most cameras write it: baseline, chroma at half the width and height.
fn encode_jpeg(pixels: &RgbImage) -> Vec<u8> {
    compress_pixels(new_compressor(), pixels.as_raw(), pixels.dimensions(), turbojpeg::PixelFormat::RGB)
}

fn new_compressor() -> turbojpeg::Compressor {
    let mut compressor = turbojpeg::Compressor::new().expect("a compressor");
    compressor.set_subsamp(turbojpeg::Subsamp::Sub2x2).expect("every build can halve chroma");
    compressor
}

fn compress_pixels(
    mut compressor: turbojpeg::Compressor,
    pixels: &[u8],
    (width, height): (u32, u32),
    format: turbojpeg::PixelFormat,
) -> Vec<u8> {
    let (width, height) = (width as usize, height as usize);
    let image = turbojpeg::Image { pixels, width, pitch: width * format.size(), height, format };
    if format == turbojpeg::PixelFormat::GRAY {
        compressor.set_subsamp(turbojpeg::Subsamp::Gray).expect("grey has no chroma");
    }
    compressor.set_quality(92).expect("a quality below 100");
    compressor.compress_to_vec(image).expect("pixels can be compressed")
}

/// The APP1 segment with EXIF as a small TIFF: make, model and orientation; time and its offset.
fn exif_segment(exif: Exif) -> Vec<u8> {
    const SHORT: u16 = 3;
    const ASCII: u16 = 2;
    const LONG: u16 = 4;
    let texts: [&[u8]; 4] =
        [b"Harbour\0", b"Field 7\0", &nul_terminated(exif.taken_at), &nul_terminated(exif.offset)];
    // Two directories of 4 and 2 entries, each with its count and the offset of the next; the texts follow.
    let second = 8 + 2 + 4 * 12 + 4;
    let mut text_offset = second + 2 + 2 * 12 + 4;
    let mut next_offset = |text: &[u8]| {
        let offset = text_offset;
        text_offset += u32::try_from(text.len()).expect("a short text");
        offset
    };
    let entry = |tag: u16, kind: u16, count: usize, value: u32| {
        let mut entry = Vec::with_capacity(12);
        entry.extend_from_slice(&tag.to_le_bytes());
        entry.extend_from_slice(&kind.to_le_bytes());
        entry.extend_from_slice(&u32::try_from(count).expect("a short text").to_le_bytes());
        entry.extend_from_slice(&value.to_le_bytes());
        entry
    };
    let mut tiff = b"Exif\0\0II*\0\x08\0\0\0".to_vec();
    tiff.extend_from_slice(&4_u16.to_le_bytes());
    tiff.extend(entry(0x010f, ASCII, texts[0].len(), next_offset(texts[0])));
    tiff.extend(entry(0x0110, ASCII, texts[1].len(), next_offset(texts[1])));
    tiff.extend(entry(0x0112, SHORT, 1, u32::from(exif.orientation)));
    tiff.extend(entry(0x8769, LONG, 1, second));
    tiff.extend_from_slice(&[0; 4]);
    tiff.extend_from_slice(&2_u16.to_le_bytes());
    tiff.extend(entry(0x9003, ASCII, texts[2].len(), next_offset(texts[2])));
    tiff.extend(entry(0x9011, ASCII, texts[3].len(), next_offset(texts[3])));
    tiff.extend_from_slice(&[0; 4]);
    tiff.extend(texts.concat());
    let mut segment = vec![0xff, 0xe1];
    segment.extend_from_slice(&u16::try_from(tiff.len() + 2).expect("a short segment").to_be_bytes());
    segment.extend(tiff);
    segment
}

fn nul_terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// The checksum of PNG chunks.
fn crc32(bytes: &[u8]) -> u32 {
    let folded = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    });
    !folded
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use image::{ImageDecoder, ImageReader};

    use super::*;

    fn test_photo() -> TestPhoto {
        TestPhoto::new(160, 96).with_face(1, [16, 16, 48])
    }

    fn mean_difference(one: &RgbImage, other: &RgbImage) -> f64 {
        assert_eq!(one.dimensions(), other.dimensions());
        let sum: u64 = one.as_raw().iter().zip(other.as_raw()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        sum as f64 / one.as_raw().len() as f64
    }

    #[test]
    fn a_rotated_photo_is_upright_after_applying_its_orientation() {
        for orientation in 1..=8 {
            let jpeg = test_photo().to_jpeg_with_exif(Exif::with_orientation(orientation));
            let mut decoder =
                ImageReader::with_format(Cursor::new(jpeg), ImageFormat::Jpeg).into_decoder().unwrap();
            let orientation_tag = decoder.orientation().unwrap();
            assert_eq!(orientation_tag.to_exif(), orientation);
            let mut image = DynamicImage::from_decoder(decoder).unwrap();
            image.apply_orientation(orientation_tag);
            let difference = mean_difference(&image.to_rgb8(), &test_photo().pixels);
            assert!(difference < 4.0, "orientation {orientation}: {difference}");
        }
    }

    #[test]
    fn every_encoding_decodes_to_the_same_image() {
        let scene = test_photo();
        let files = [
            scene.to_jpeg(),
            scene.to_progressive_jpeg(),
            scene.to_cmyk_jpeg(),
            scene.to_png(),
            scene.to_png16(),
            scene.to_png_with_alpha(),
            scene.to_webp(),
        ];
        for (number, file) in files.iter().enumerate() {
            let decoded =
                ImageReader::new(Cursor::new(file)).with_guessed_format().unwrap().decode().unwrap();
            let decoded = decoded.to_rgb8();
            let difference = mean_difference(&decoded, &scene.pixels);
            assert!(difference < 4.0, "file {number}: {difference}");
        }
    }

    #[test]
    fn the_decompression_bombs_claim_their_size() {
        for giant in [png_of_four_gigapixels(), jpeg_of_four_gigapixels()] {
            let reader = ImageReader::new(Cursor::new(giant)).with_guessed_format().unwrap();
            assert_eq!(reader.into_dimensions().unwrap(), (65_535, 65_535));
        }
    }
}
