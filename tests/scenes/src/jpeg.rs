//! JPEG files as cameras write them: with a camera's name, the capture time and the orientation as EXIF.

use std::io::Cursor;

use anyhow::Context;
use image::codecs::jpeg::JpegEncoder;
use image::{ImageReader, RgbImage};

/// Typical of cameras' "fine" setting.
const JPEG_QUALITY: u8 = 92;

/// Length of a date in EXIF with its terminating zero: `2026:05:17 09:41:07`.
const DATE_BYTES: u32 = 20;

/// The EXIF data that a camera writes.
#[derive(Clone, Copy, Debug)]
pub struct CameraExif<'a> {
    /// In EXIF's format: `2026:05:17 09:41:07`.
    pub taken_at: &'a str,
    /// EXIF orientation: 1, 3, 6 or 8.
    pub orientation: u16,
}

/// Decodes a picture of any format that the workspace's `image` crate supports.
///
/// # Errors
/// When the format is unknown or the file is damaged.
pub fn decode(bytes: &[u8]) -> anyhow::Result<RgbImage> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    Ok(reader.decode()?.into_rgb8())
}

/// Encodes an upright picture as a JPEG file whose pixels are stored as a camera in that orientation stores them.
///
/// # Errors
/// When the date has not the length of an EXIF date, or the orientation is not 1, 3, 6 or 8.
pub fn encode(upright: &RgbImage, exif: CameraExif<'_>) -> anyhow::Result<Vec<u8>> {
    let stored = match exif.orientation {
        1 => upright.clone(),
        3 => image::imageops::rotate180(upright),
        6 => image::imageops::rotate270(upright),
        8 => image::imageops::rotate90(upright),
        other => anyhow::bail!("orientation {other} is not one that cameras write"),
    };
    let mut file = Vec::new();
    JpegEncoder::new_with_quality(&mut file, JPEG_QUALITY)
        .encode_image(&stored)
        .context("cannot encode a JPEG")?;
    let segment = exif_segment(exif)?;
    // After the start-of-image marker.
    file.splice(2..2, segment);
    Ok(file)
}

/// An entry of a TIFF image file directory; its value is a number or an offset from the file's start.
struct IfdEntry {
    tag: u16,
    kind: u16,
    count: u32,
    value: u32,
}

/// An APP1 segment: a little-endian TIFF with two image file directories (IFDs). Offsets count from its `II`.
fn exif_segment(exif: CameraExif<'_>) -> anyhow::Result<Vec<u8>> {
    anyhow::ensure!(exif.taken_at.len() as u32 + 1 == DATE_BYTES, "{} is not an EXIF date", exif.taken_at);
    const ASCII: u16 = 2;
    const SHORT: u16 = 3;
    const LONG: u16 = 4;
    let (make, model) = (b"Photofinish\0", b"Sample event\0");
    let make_at = 8 + 2 + 4 * 12 + 4;
    let model_at = make_at + make.len() as u32;
    let details_at = model_at + model.len() as u32;
    let date_at = details_at + 2 + 12 + 4;

    let mut tiff = b"II*\0\x08\0\0\0".to_vec();
    extend_ifd(
        &mut tiff,
        &[
            IfdEntry { tag: 0x010f, kind: ASCII, count: make.len() as u32, value: make_at },
            IfdEntry { tag: 0x0110, kind: ASCII, count: model.len() as u32, value: model_at },
            IfdEntry { tag: 0x0112, kind: SHORT, count: 1, value: u32::from(exif.orientation) },
            IfdEntry { tag: 0x8769, kind: LONG, count: 1, value: details_at },
        ],
    );
    tiff.extend(make);
    tiff.extend(model);
    extend_ifd(&mut tiff, &[IfdEntry { tag: 0x9003, kind: ASCII, count: DATE_BYTES, value: date_at }]);
    tiff.extend(exif.taken_at.as_bytes());
    tiff.push(0);

    let mut segment = vec![0xff, 0xe1];
    segment.extend((2 + 6 + tiff.len() as u16).to_be_bytes());
    segment.extend(b"Exif\0\0");
    segment.extend(tiff);
    Ok(segment)
}

/// Appends a directory that has no successor.
fn extend_ifd(tiff: &mut Vec<u8>, entries: &[IfdEntry]) {
    tiff.extend((entries.len() as u16).to_le_bytes());
    for entry in entries {
        tiff.extend(entry.tag.to_le_bytes());
        tiff.extend(entry.kind.to_le_bytes());
        tiff.extend(entry.count.to_le_bytes());
        tiff.extend(entry.value.to_le_bytes());
    }
    tiff.extend([0; 4]);
}
