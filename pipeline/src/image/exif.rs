//! What the camera noted beside the pixels: how it was held, when, and which camera it was. Damaged notes are no
//! reason to lose a photo: what cannot be read is not there.

use std::io::Cursor;
use std::panic::catch_unwind;

use exif::{DateTime, Exif, In, Reader, Tag, Value};
use photofinish_kernels::orient::Orientation;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

/// What the camera noted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExifData {
    /// What makes the stored pixels upright.
    pub(crate) orientation: Orientation,
    /// When the photo was taken; read as UTC where no offset is noted.
    pub(crate) taken_at: Option<OffsetDateTime>,
    /// Make and model.
    pub(crate) camera: Option<String>,
}

/// Longest camera name that is kept; cameras have 10 to 40 letters.
const MAX_CAMERA_CHARS: usize = 100;

impl ExifData {
    const EMPTY: Self = Self { orientation: Orientation::Upright, taken_at: None, camera: None };

    /// The notes in a JPEG, PNG or WebP file.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        // Hostile notes must not fail the photo even where the parser panics.
        catch_unwind(|| Self::parse(bytes)).ok().flatten().unwrap_or(Self::EMPTY)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let exif = Reader::new()
            .continue_on_error(true)
            .read_from_container(&mut Cursor::new(bytes))
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

fn read_taken_at(exif: &Exif) -> Option<OffsetDateTime> {
    let mut noted = DateTime::from_ascii(read_ascii(exif, Tag::DateTimeOriginal)?).ok()?;
    // Both are extras: a damaged one is as good as none.
    if let Some(text) = read_ascii(exif, Tag::SubSecTimeOriginal) {
        let _absent = noted.parse_subsec(text);
    }
    if let Some(text) = read_ascii(exif, Tag::OffsetTimeOriginal) {
        let _absent = noted.parse_offset(text);
    }
    let date =
        Date::from_calendar_date(noted.year.into(), Month::try_from(noted.month).ok()?, noted.day).ok()?;
    // The store keeps microseconds.
    let micros = noted.nanosecond.unwrap_or(0) / 1000;
    let time = Time::from_hms_micro(noted.hour, noted.minute, noted.second, micros).ok()?;
    let offset = UtcOffset::from_whole_seconds(i32::from(noted.offset.unwrap_or(0)) * 60).ok()?;
    let taken = PrimitiveDateTime::new(date, time).assume_offset(offset).checked_to_offset(UtcOffset::UTC)?;
    // Other years cannot be written as RFC 3339 has it, which is how they are told to partners.
    (1..=9999).contains(&taken.year()).then_some(taken)
}

/// "Canon EOS 1000D" from make "Canon" and model "Canon EOS 1000D"; "NIKON CORPORATION D3" from the parts.
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

    /// A JPEG that holds nothing but notes.
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
        let notes = ExifData::read(&jpeg_with_exif(&[
            (Tag::Orientation, Value::Short(vec![6])),
            (Tag::Make, ascii_value("Canon")),
            (Tag::Model, ascii_value("Canon EOS 1000D ")),
            (Tag::DateTimeOriginal, ascii_value("2024:05:12 10:20:30")),
            (Tag::SubSecTimeOriginal, ascii_value("25")),
            (Tag::OffsetTimeOriginal, ascii_value("+02:00")),
        ]));
        assert_eq!(notes.orientation, Orientation::Rotate90);
        assert_eq!(notes.camera.as_deref(), Some("Canon EOS 1000D"));
        assert_eq!(notes.taken_at, Some(datetime!(2024-05-12 08:20:30.25 UTC)));
    }

    #[test]
    fn a_time_without_offset_is_read_as_utc() {
        let notes =
            ExifData::read(&jpeg_with_exif(&[(Tag::DateTimeOriginal, ascii_value("2024:05:12 10:20:30"))]));
        assert_eq!(notes.taken_at, Some(datetime!(2024-05-12 10:20:30 UTC)));
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
            let notes = ExifData::read(&jpeg_with_exif(&[
                (Tag::Orientation, Value::Short(vec![3])),
                (Tag::DateTimeOriginal, ascii_value(text)),
                (Tag::OffsetTimeOriginal, ascii_value(offset)),
            ]));
            assert_eq!(
                (notes.taken_at, notes.orientation),
                (None, Orientation::Rotate180),
                "{text} {offset}"
            );
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
        assert_eq!(ExifData::read(b"no picture at all"), ExifData::EMPTY);
    }
}
