//! JPEG files as cameras write them: quality 92, with a camera's name, the time and how it was held.

use std::io::Cursor;

use anyhow::Context;
use image::codecs::jpeg::JpegEncoder;
use image::{ImageReader, RgbImage};

const JPEG_QUALITY: u8 = 92;

/// Length of the date in EXIF with its closing zero: `2026:05:17 09:41:07`.
const DATE_BYTES: u32 = 20;

/// What a camera notes beside the pixels.
#[derive(Clone, Copy, Debug)]
pub struct CameraExif<'a> {
    /// As EXIF writes it: `2026:05:17 09:41:07`.
    pub taken_at: &'a str,
    /// EXIF's number for how the picture must be turned; the pixels are stored accordingly.
    pub orientation: u16,
}

/// A picture of any format that this workspace builds in.
pub fn decode(bytes: &[u8]) -> anyhow::Result<RgbImage> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    Ok(reader.decode()?.into_rgb8())
}

/// A JPEG file of an upright picture, stored the way a camera held like that would store it.
///
/// # Errors
/// When the date has another length than EXIF's, or the orientation is none that cameras write (1, 3, 6, 8).
pub fn encode(upright: &RgbImage, notes: CameraExif<'_>) -> anyhow::Result<Vec<u8>> {
    let stored = match notes.orientation {
        1 => upright.clone(),
        3 => image::imageops::rotate180(upright),
        6 => image::imageops::rotate270(upright),
        8 => image::imageops::rotate90(upright),
        other => anyhow::bail!("orientation {other} is none that cameras write"),
    };
    let mut file = Vec::new();
    JpegEncoder::new_with_quality(&mut file, JPEG_QUALITY)
        .encode_image(&stored)
        .context("cannot encode a JPEG")?;
    let segment = exif_segment(notes)?;
    // Behind the two bytes that every JPEG begins with.
    file.splice(2..2, segment);
    Ok(file)
}

/// An APP1 segment: a little TIFF with two folders of entries. Offsets count from its `II`.
fn exif_segment(notes: CameraExif<'_>) -> anyhow::Result<Vec<u8>> {
    anyhow::ensure!(notes.taken_at.len() as u32 + 1 == DATE_BYTES, "{} is no EXIF date", notes.taken_at);
    const ASCII: u16 = 2;
    const SHORT: u16 = 3;
    const LONG: u16 = 4;
    let (make, model) = (b"Photofinish\0", b"Sample event\0");
    let make_at = 8 + 2 + 4 * 12 + 4;
    let model_at = make_at + make.len() as u32;
    let details_at = model_at + model.len() as u32;
    let date_at = details_at + 2 + 12 + 4;

    let mut tiff = b"II*\0\x08\0\0\0".to_vec();
    let mut entries = |folder: &[(u16, u16, u32, u32)]| {
        tiff.extend((folder.len() as u16).to_le_bytes());
        for (tag, kind, count, value) in folder {
            tiff.extend(tag.to_le_bytes());
            tiff.extend(kind.to_le_bytes());
            tiff.extend(count.to_le_bytes());
            tiff.extend(value.to_le_bytes());
        }
        tiff.extend([0; 4]);
        if folder.len() > 1 {
            tiff.extend(make);
            tiff.extend(model);
        }
    };
    entries(&[
        (0x010f, ASCII, make.len() as u32, make_at),
        (0x0110, ASCII, model.len() as u32, model_at),
        (0x0112, SHORT, 1, u32::from(notes.orientation)),
        (0x8769, LONG, 1, details_at),
    ]);
    entries(&[(0x9003, ASCII, DATE_BYTES, date_at)]);
    tiff.extend(notes.taken_at.as_bytes());
    tiff.push(0);

    let mut segment = vec![0xff, 0xe1];
    segment.extend((2 + 6 + tiff.len() as u16).to_be_bytes());
    segment.extend(b"Exif\0\0");
    segment.extend(tiff);
    Ok(segment)
}
