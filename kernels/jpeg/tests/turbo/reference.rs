//! What libjpeg-turbo makes of a file.

use std::ops::Range;

use photofinish_jpeg::{Header, Scale};
use turbojpeg::{Decompressor, Image, PixelFormat, ScalingFactor};

/// The marker of a scan header.
const SCAN: u8 = 0xda;

/// The marker of segments that may have a colour profile.
const APP2: u8 = 0xe2;

/// What such a segment begins with.
const PROFILE_NAME: &[u8] = b"ICC_PROFILE\0";

/// What stands at the end of a scan header that has all coefficients with all their bits.
const USUAL_PARAMETERS: [u8; 3] = [0, 63, 0];

/// A segment of a header.
struct Segment {
    marker: u8,
    /// With its marker, and fill bytes before that.
    whole: Range<usize>,
    /// Behind its length.
    body: Range<usize>,
}

/// The segments of a file whose header is read here, up to the scan header.
fn header_segments(file: &[u8]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut start = 2;
    loop {
        let mut offset = start;
        // Any number of fill bytes stands before a marker.
        while file[offset] == 0xff {
            offset += 1;
        }
        let (marker, begin) = (file[offset], offset + 1);
        let end = begin + usize::from(u16::from_be_bytes([file[begin], file[begin + 1]]));
        segments.push(Segment { marker, whole: start..end, body: begin + 2..end });
        if marker == SCAN {
            return segments;
        }
        start = end;
    }
}

/// A copy of a file whose header is read here, with these bytes at the end of its scan header.
pub fn with_scan_parameters(file: &[u8], parameters: [u8; 3]) -> Vec<u8> {
    let mut copy = file.to_vec();
    for segment in header_segments(file).iter().filter(|segment| segment.marker == SCAN) {
        let end = segment.body.end;
        copy[end - parameters.len()..end].copy_from_slice(&parameters);
    }
    copy
}

/// A copy of a file whose header is read here, without its colour profile.
fn without_profile(file: &[u8]) -> Vec<u8> {
    let mut copy = file.to_vec();
    // From the last, so that those before stay where they are.
    for segment in header_segments(file).into_iter().rev() {
        if segment.marker == APP2 && file[segment.body].starts_with(PROFILE_NAME) {
            copy.drain(segment.whole);
        }
    }
    copy
}

/// Decodes as libjpeg-turbo does, with the usual bytes at the end of the scan header and without a colour profile: it warns of
/// other bytes, and of a profile whose segments are numbered wrongly, and then of nothing else.
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
    let usual = with_scan_parameters(&without_profile(file), USUAL_PARAMETERS);
    turbo.decompress(&usual, image).map_err(|error| error.to_string())?;
    Ok(pixels)
}
