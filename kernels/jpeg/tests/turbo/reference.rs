//! What libjpeg-turbo makes of a file.

use photofinish_jpeg::{Header, Scale};
use turbojpeg::{Decompressor, Image, PixelFormat, ScalingFactor};

/// Decodes as libjpeg-turbo does.
///
/// # Errors
/// Its first error or warning.
pub fn decode(file: &[u8], header: &Header<'_>, scale: Scale) -> Result<Vec<u8>, String> {
    let mut turbo = Decompressor::new().expect("libjpeg-turbo has memory");
    turbo.set_scaling_factor(ScalingFactor::new(scale.eighths(), 8)).expect("libjpeg-turbo knows the scale");
    let size = header.scaled_size(scale);
    let mut pixels = vec![0; header.rgb_bytes(scale)];
    let (width, height) = (size.width, size.height);
    let image = Image { pixels: &mut pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
    turbo.decompress(file, image).map_err(|error| error.to_string())?;
    Ok(pixels)
}
