//! What libjpeg-turbo makes of a file.

use photofinish_jpeg::{Header, Scale};
use turbojpeg::{Decompressor, Image, PixelFormat, ScalingFactor};

/// The marker of a scan header.
const SCAN: u8 = 0xda;

/// What stands at the end of a scan header that has all coefficients with all their bits.
const USUAL_PARAMETERS: [u8; 3] = [0, 63, 0];

/// A copy of a file whose header is read here, with these bytes at the end of its scan header.
pub fn with_scan_parameters(file: &[u8], parameters: [u8; 3]) -> Vec<u8> {
    let mut copy = file.to_vec();
    let mut offset = 2;
    loop {
        // Any number of fill bytes stands before a marker.
        while copy[offset] == 0xff {
            offset += 1;
        }
        let (marker, begin) = (copy[offset], offset + 1);
        let end = begin + usize::from(u16::from_be_bytes([copy[begin], copy[begin + 1]]));
        if marker == SCAN {
            copy[end - parameters.len()..end].copy_from_slice(&parameters);
            return copy;
        }
        offset = end;
    }
}

/// Decodes as libjpeg-turbo does, with the usual bytes at the end of the scan header: it warns of others, and then of nothing
/// else.
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
    let usual = with_scan_parameters(file, USUAL_PARAMETERS);
    turbo.decompress(&usual, image).map_err(|error| error.to_string())?;
    Ok(pixels)
}
