//! The labelled race photos: their labels, scores of readings against them, and photos made from them.

pub(crate) mod crowd;
pub(crate) mod damage;
pub(crate) mod enlarge;
pub(crate) mod jitter;
pub(crate) mod labels;
pub(crate) mod random;
pub(crate) mod score;

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{ResizeOptions, Resizer};

/// Resamples to a picture of this size.
///
/// # Errors
/// When what the options crop is not in the picture.
pub(crate) fn resample(
    picture: &image::RgbImage,
    width: u32,
    height: u32,
    options: &ResizeOptions,
) -> anyhow::Result<image::RgbImage> {
    let mut resampled = image::RgbImage::new(width, height);
    // Typed, as in `photofinish_kernels::resize`: it is compiled for these pixels alone.
    let source = TypedImageRef::<U8x3>::from_buffer(picture.width(), picture.height(), picture.as_raw())?;
    let mut target = TypedImage::<U8x3>::from_buffer(width, height, &mut resampled)?;
    Resizer::new().resize_typed(&source, &mut target, options)?;
    Ok(resampled)
}

/// Multiplies the brightness of every pixel.
pub(crate) fn change_brightness(picture: &mut image::RgbImage, factor: f64) {
    for value in picture.iter_mut() {
        *value = (f64::from(*value) * factor).round().min(255.0) as u8;
    }
}

/// Encodes as JPEG with 4:2:0 chroma.
///
/// # Errors
/// When the encoder refuses the picture.
pub(crate) fn encode_jpeg(picture: &image::RgbImage, quality: i32) -> anyhow::Result<Vec<u8>> {
    let mut encoder = turbojpeg::Compressor::new()?;
    encoder.set_quality(quality)?;
    encoder.set_subsamp(turbojpeg::Subsamp::Sub2x2)?;
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    let image = turbojpeg::Image {
        pixels: picture.as_raw().as_slice(),
        width,
        pitch: width * 3,
        height,
        format: turbojpeg::PixelFormat::RGB,
    };
    Ok(encoder.compress_to_vec(image)?)
}
