//! EXIF data: orientation, capture time and camera. Damaged data never fails a photo: a field that cannot be read is
//! treated as absent.

use std::io::Cursor;
use std::panic::catch_unwind;

use exif::{DateTime, Exif, In, Reader, Tag, Value};
use photofinish_kernels::image::orient::Orientation;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

use crate::image::heic;

/// The EXIF data of a photo.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExifData {
    /// The transform that turns the stored pixels upright. Of a HEIC, that of its container, which has been applied to what
    /// its EXIF data describes.
    pub(crate) orientation: Orientation,
    /// When the photo was taken; UTC is assumed where the file has no offset.
    pub(crate) taken_at: Option<OffsetDateTime>,
    /// Make and model.
    pub(crate) camera: Option<String>,
}

/// The first bytes of a JPEG file.
const START_OF_IMAGE: [u8; 2] = [0xff, 0xd8];

/// The second byte of the marker before the picture's data.
const START_OF_SCAN: u8 = 0xda;

/// Camera names are cut to this length; real ones have 10 to 40 characters.
const MAX_CAMERA_CHARS: usize = 100;

impl ExifData {
    const EMPTY: Self = Self { orientation: Orientation::Upright, taken_at: None, camera: None };

    /// Reads the EXIF data of a JPEG, PNG, WebP or HEIC file.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        // Malicious data must not fail the photo even where it makes the parser panic.
        let exif = catch_unwind(|| Self::parse(bytes)).ok().flatten().unwrap_or(Self::EMPTY);
        let orientation = heic::read_orientation(bytes).unwrap_or(exif.orientation);
        Self { orientation, ..exif }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let exif = Reader::new()
            .continue_on_error(true)
            .read_from_container(&mut Cursor::new(before_scan(bytes)))
            .or_else(|error| error.distill_partial_result(|_damaged| {}))
            .ok()?;
        let orientation =
            exif.get_field(Tag::Orientation, In::PRIMARY).and_then(|field| field.value.get_uint(0));
        Some(Self {
            orientation: orientation.map_or(Orientation::Upright, Orientation::from_exif),
            taken_at: read_taken_at(&exif),
            camera: read_camera(&exif),
        })
    }
}

/// Returns a JPEG file without the data of its picture, all other files whole. EXIF data stands before it, and the parser
/// would look for it in all of the rest, byte by byte.
fn before_scan(file: &[u8]) -> &[u8] {
    if !file.starts_with(&START_OF_IMAGE) {
        return file;
    }
    let mut offset = START_OF_IMAGE.len();
    loop {
        match file.get(offset..).and_then(<[u8]>::first_chunk) {
            Some([0xff, START_OF_SCAN, _, _]) => return &file[..offset],
            // A fill byte.
            Some([0xff, 0xff, _, _]) => offset += 1,
            // Segments with a length: those of APP1 and all others that stand in a header.
            Some([0xff, 0xc0..=0xcf | 0xdb..=0xfe, high, low]) => {
                offset += 2 + usize::from(u16::from_be_bytes([*high, *low]));
            }
            // The parser finds its way by itself.
            _ => return file,
        }
    }
}

fn read_taken_at(exif: &Exif) -> Option<OffsetDateTime> {
    let mut local = DateTime::from_ascii(read_ascii(exif, Tag::DateTimeOriginal)?).ok()?;
    // Both are optional: a damaged field counts as absent.
    if let Some(text) = read_ascii(exif, Tag::SubSecTimeOriginal) {
        let _absent = local.parse_subsec(text);
    }
    if let Some(text) = read_ascii(exif, Tag::OffsetTimeOriginal) {
        let _absent = local.parse_offset(text);
    }
    let date =
        Date::from_calendar_date(local.year.into(), Month::try_from(local.month).ok()?, local.day).ok()?;
    // The store has a resolution of microseconds.
    let micros = local.nanosecond.unwrap_or(0) / 1000;
    let time = Time::from_hms_micro(local.hour, local.minute, local.second, micros).ok()?;
    let offset = UtcOffset::from_whole_seconds(i32::from(local.offset.unwrap_or(0)) * 60).ok()?;
    let taken = PrimitiveDateTime::new(date, time).assume_offset(offset).checked_to_offset(UtcOffset::UTC)?;
    // The API writes times as RFC 3339, which has no other years.
    (1..=9999).contains(&taken.year()).then_some(taken)
}

/// Joins make and model: "Canon EOS 1000D" from "Canon" and "Canon EOS 1000D", "NIKON CORPORATION D3" from "NIKON
/// CORPORATION" and "D3".
fn read_camera(exif: &Exif) -> Option<String> {
    let make = read_text(exif, Tag::Make);
    let model = read_text(exif, Tag::Model);
    let name = match (make, model) {
        (Some(make), Some(model)) if !model.starts_with(&make) => format!("{make} {model}"),
        (_, Some(model)) => model,
        (Some(make), None) => make,
        (None, None) => return None,
    };
    Some(name.chars().take(MAX_CAMERA_CHARS).collect())
}

fn read_text(exif: &Exif, tag: Tag) -> Option<String> {
    let text: String = String::from_utf8_lossy(read_ascii(exif, tag)?)
        .chars()
        .filter(|letter| !letter.is_control())
        .collect();
    let trimmed = text.trim();
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

fn read_ascii(exif: &Exif, tag: Tag) -> Option<&[u8]> {
    match &exif.get_field(tag, In::PRIMARY)?.value {
        Value::Ascii(lines) => lines.first().map(Vec::as_slice),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use exif::Field;
    use exif::experimental::Writer;
    use time::macros::datetime;

    use super::*;

    /// A JPEG without pixels that has only EXIF data.
    fn jpeg_with_exif(fields: &[(Tag, Value)]) -> Vec<u8> {
        let fields: Vec<Field> = fields
            .iter()
            .map(|(tag, value)| Field { tag: *tag, ifd_num: In::PRIMARY, value: value.clone() })
            .collect();
        let mut writer = Writer::new();
        fields.iter().for_each(|field| writer.push_field(field));
        let mut tiff = Cursor::new(Vec::new());
        writer.write(&mut tiff, false).unwrap();
        let tiff = tiff.into_inner();
        let mut file = vec![0xff, 0xd8, 0xff, 0xe1];
        file.extend(u16::try_from(tiff.len() + 8).unwrap().to_be_bytes());
        file.extend(b"Exif\0\0");
        file.extend(tiff);
        file.extend([0xff, 0xd9]);
        file
    }

    fn ascii_value(text: &str) -> Value {
        Value::Ascii(vec![text.as_bytes().to_vec()])
    }

    #[test]
    fn time_offset_and_camera_are_read() {
        let exif = ExifData::read(&jpeg_with_exif(&[
            (Tag::Orientation, Value::Short(vec![6])),
            (Tag::Make, ascii_value("Canon")),
            (Tag::Model, ascii_value("Canon EOS 1000D ")),
            (Tag::DateTimeOriginal, ascii_value("2024:05:12 10:20:30")),
            (Tag::SubSecTimeOriginal, ascii_value("25")),
            (Tag::OffsetTimeOriginal, ascii_value("+02:00")),
        ]));
        assert_eq!(exif.orientation, Orientation::Rotate90);
        assert_eq!(exif.camera.as_deref(), Some("Canon EOS 1000D"));
        assert_eq!(exif.taken_at, Some(datetime!(2024-05-12 08:20:30.25 UTC)));
    }

    #[test]
    fn exif_data_is_looked_for_before_the_picture_and_nowhere_else() {
        let with_exif = jpeg_with_exif(&[(Tag::Orientation, Value::Short(vec![6]))]);
        let segments = &with_exif[2..with_exif.len() - 2];
        let orientation = |parts: &[&[u8]]| ExifData::read(&parts.concat()).orientation;
        let start = &[0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff][..];
        let scan = &[0xff, 0xda, 0, 2, 7, 0xff, 0, 9][..];
        assert_eq!(orientation(&[start, segments, scan]), Orientation::Rotate90);
        assert_eq!(orientation(&[&start[..8], scan, segments, scan]), Orientation::Upright);
        // Out of step before it: the parser finds it all the same.
        assert_eq!(orientation(&[&start[..8], &[3, 4], segments, scan]), Orientation::Rotate90);
    }

    #[test]
    fn a_time_without_offset_is_read_as_utc() {
        let exif =
            ExifData::read(&jpeg_with_exif(&[(Tag::DateTimeOriginal, ascii_value("2024:05:12 10:20:30"))]));
        assert_eq!(exif.taken_at, Some(datetime!(2024-05-12 10:20:30 UTC)));
    }

    #[test]
    fn an_impossible_capture_time_is_ignored() {
        for (text, offset) in [
            ("2024:13:45 99:00:00", "+00:00"),
            ("0000:00:00 00:00:00", "+00:00"),
            ("    :  :     :  :  ", "+00:00"),
            ("yesterday", "+00:00"),
            ("0000:01:01 00:00:00", "+02:00"),
            ("9999:12:31 23:30:00", "-02:00"),
        ] {
            let exif = ExifData::read(&jpeg_with_exif(&[
                (Tag::Orientation, Value::Short(vec![3])),
                (Tag::DateTimeOriginal, ascii_value(text)),
                (Tag::OffsetTimeOriginal, ascii_value(offset)),
            ]));
            assert_eq!((exif.taken_at, exif.orientation), (None, Orientation::Rotate180), "{text} {offset}");
        }
    }

    #[test]
    fn damaged_exif_is_ignored() {
        let whole =
            jpeg_with_exif(&[(Tag::Orientation, Value::Short(vec![6])), (Tag::Make, ascii_value("Nikon"))]);
        for end in 0..whole.len() {
            ExifData::read(&whole[..end]);
        }
        for i in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[i] ^= 0xff;
            ExifData::read(&damaged);
        }
        assert_eq!(ExifData::read(b"not a picture"), ExifData::EMPTY);
    }
}
