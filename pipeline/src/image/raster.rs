//! Decoding by the crate `image`: PNG and WebP, at full scale, as RGB; transparent pixels are blended onto white.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::{ColorType, ImageDecoder, ImageError, Limits};
use photofinish_kernels::image::frame::Size;
use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::Poison;
use crate::image::color_profile::ColorProfile;
use crate::image::format::Format;
use crate::image::webp::FirstPicture;

/// Bytes that a PNG may decompress beside its pixels: profiles and texts can be decompression bombs too.
const MAX_METADATA_BYTES: u64 = 64 << 20;

/// Peak bytes per pixel of a WebP without transparency: the RGB pixels, and up to 5 in the decoder, which decodes
/// lossless files to RGBA and keeps tables for parts of the picture.
const WEBP_BYTES_PER_PIXEL: usize = 8;

/// Peak bytes per pixel of a WebP with transparency: the RGB and the RGBA pixels, and up to 8 in the decoder (the colour
/// planes, and the alpha channel as an RGBA picture and as a plane). The same for an animation, whose first picture is
/// drawn onto a canvas, both of them RGBA.
const LAYERED_WEBP_BYTES_PER_PIXEL: usize = 15;

/// The header of a file.
pub(crate) struct RasterHeader {
    /// Size of the stored picture.
    pub(crate) size: Size,
    /// Peak memory of decoding, bytes, including the result.
    pub(crate) peak_bytes: usize,
    /// Of a picture in colours.
    pub(crate) color_profile: Option<ColorProfile>,
    color: ColorType,
}

/// Reads the header.
///
/// # Errors
/// When it is damaged or of an unsupported kind.
pub(crate) fn read_header(file: &[u8], format: Format) -> Result<RasterHeader, Poison> {
    let mut decoder = open_decoder(file, format)?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(Poison::new(FailureReason::CorruptImage, "a side of zero pixels"));
    }
    let (size, color) = (Size { width, height }, decoder.color_type());
    let peak_bytes = match format {
        Format::Png => size.area() * peak_bytes_per_pixel(color),
        Format::WebP => size.area() * webp_peak_bytes_per_pixel(file, color)?,
        Format::Jpeg | Format::Heic => return Err(other_decoder()),
    };
    let color_profile = match format {
        Format::WebP => ColorProfile::from_webp(file),
        // Decompressed already, within the limit of metadata; this is a copy for a moment.
        Format::Png if color.has_color() => {
            let profile = decoder.icc_profile().ok().flatten();
            profile.and_then(|profile| ColorProfile::from_bytes(&profile))
        }
        Format::Png | Format::Jpeg | Format::Heic => None,
    };
    Ok(RasterHeader { size, peak_bytes, color_profile, color })
}

/// Peak bytes per pixel: RGB, and beside it the file's own pixel format where that is another one.
fn peak_bytes_per_pixel(color: ColorType) -> usize {
    if color == ColorType::Rgb8 { 3 } else { 3 + usize::from(color.bytes_per_pixel()) }
}

/// Peak bytes per pixel of a WebP whose picture fills its frame. Others are rejected, because their memory is unbounded:
/// a frame of 64 pixels may contain a picture of 268 million.
fn webp_peak_bytes_per_pixel(file: &[u8], color: ColorType) -> Result<usize, Poison> {
    let corrupt = |what: &str| Poison::new(FailureReason::CorruptImage, format!("webp: {what}"));
    let picture = FirstPicture::read(file).ok_or_else(|| corrupt("no picture in the file"))?;
    if picture.stored_size != picture.frame_size {
        return Err(corrupt("the picture and its frame differ in size"));
    }
    let is_layered = picture.is_animated || color != ColorType::Rgb8;
    Ok(if is_layered { LAYERED_WEBP_BYTES_PER_PIXEL } else { WEBP_BYTES_PER_PIXEL })
}

/// Decodes as row-major RGB into `out` and sets its length. The caller has checked the header against the limits.
///
/// # Errors
/// When the file is damaged.
pub(crate) fn decode(
    file: &[u8],
    format: Format,
    header: &RasterHeader,
    out: &mut Vec<u8>,
) -> Result<(), Poison> {
    let decoder = open_decoder(file, format)?;
    let bytes = header.size.area() * usize::from(header.color.bytes_per_pixel());
    if decoder.total_bytes() != bytes as u64 {
        return Err(Poison::new(FailureReason::CorruptImage, "the header changed between two reads"));
    }
    if header.color == ColorType::Rgb8 {
        out.resize(bytes, 0);
        return decoder.read_image_boxed(out).map_err(to_poison);
    }
    let mut stored = vec![0; bytes];
    decoder.read_image_boxed(&mut stored).map_err(to_poison)?;
    out.resize(header.size.area() * 3, 0);
    to_rgb(&stored, header.color, out)
}

fn open_decoder(file: &[u8], format: Format) -> Result<Box<dyn ImageDecoder + '_>, Poison> {
    let reader = Cursor::new(file);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_METADATA_BYTES);
    Ok(match format {
        Format::Png => Box::new(PngDecoder::with_limits(reader, limits).map_err(to_poison)?),
        Format::WebP => Box::new(WebPDecoder::new(reader).map_err(to_poison)?),
        Format::Jpeg | Format::Heic => return Err(other_decoder()),
    })
}

fn other_decoder() -> Poison {
    Poison::new(FailureReason::UnsupportedFormat, "not decoded by the crate image")
}

fn to_rgb(stored: &[u8], color: ColorType, out: &mut [u8]) -> Result<(), Poison> {
    let (target, _) = out.as_chunks_mut::<3>();
    match color {
        ColorType::L8 => convert_pixels(stored, target, |[grey]: [u8; 1]| [grey; 3]),
        ColorType::La8 => {
            convert_pixels(stored, target, |[grey, alpha]: [u8; 2]| blend_on_white([grey; 3], alpha))
        }
        ColorType::Rgba8 => {
            convert_pixels(stored, target, |[r, g, b, alpha]: [u8; 4]| blend_on_white([r, g, b], alpha))
        }
        ColorType::L16 => convert_pixels(stored, target, |bytes: [u8; 2]| [to_eight_bits(&bytes); 3]),
        ColorType::La16 => convert_pixels(stored, target, |bytes: [u8; 4]| {
            blend_on_white([to_eight_bits(&bytes[..2]); 3], to_eight_bits(&bytes[2..]))
        }),
        ColorType::Rgb16 => convert_pixels(stored, target, |bytes: [u8; 6]| {
            [to_eight_bits(&bytes[..2]), to_eight_bits(&bytes[2..4]), to_eight_bits(&bytes[4..])]
        }),
        ColorType::Rgba16 => convert_pixels(stored, target, |bytes: [u8; 8]| {
            let rgb = [to_eight_bits(&bytes[..2]), to_eight_bits(&bytes[2..4]), to_eight_bits(&bytes[4..6])];
            blend_on_white(rgb, to_eight_bits(&bytes[6..]))
        }),
        other => {
            let detail = format!("unsupported pixel format of {} bits", other.bits_per_pixel());
            return Err(Poison::new(FailureReason::UnsupportedFormat, detail));
        }
    }
    Ok(())
}

fn convert_pixels<const N: usize>(stored: &[u8], target: &mut [[u8; 3]], pixel: impl Fn([u8; N]) -> [u8; 3]) {
    let (source, _) = stored.as_chunks::<N>();
    for (rgb, bytes) in target.iter_mut().zip(source) {
        *rgb = pixel(*bytes);
    }
}

/// The nearest 8-bit value of a 16-bit one in native byte order.
fn to_eight_bits(bytes: &[u8]) -> u8 {
    let value = u32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    ((value + 128) / 257) as u8
}

/// Blends a colour onto white; `alpha` 0 is white.
pub(crate) fn blend_on_white(rgb: [u8; 3], alpha: u8) -> [u8; 3] {
    let alpha = u32::from(alpha);
    rgb.map(|value| ((u32::from(value) * alpha + 255 * (255 - alpha) + 127) / 255) as u8)
}

fn to_poison(error: ImageError) -> Poison {
    let reason = match &error {
        ImageError::Limits(_) => FailureReason::TooManyPixels,
        ImageError::Unsupported(_) => FailureReason::UnsupportedFormat,
        _ => FailureReason::CorruptImage,
    };
    Poison::new(reason, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transparent_pixels_are_blended_on_white() {
        assert_eq!(blend_on_white([10, 20, 30], 0), [255; 3]);
        assert_eq!(blend_on_white([10, 20, 30], 255), [10, 20, 30]);
        assert_eq!(blend_on_white([0, 0, 0], 128), [127; 3]);
    }

    #[test]
    fn sixteen_bits_become_the_nearest_eight() {
        for value in 0..=255_u16 {
            assert_eq!(to_eight_bits(&(value * 257).to_ne_bytes()), value as u8);
        }
        assert_eq!(to_eight_bits(&65535_u16.to_ne_bytes()), 255);
    }
}
