//! EXIF data: orientation, capture time and camera. Damaged data never fails a photo: a field that cannot be read is
//! treated as absent.

use std::io::Cursor;
use std::panic::catch_unwind;

use exif::{DateTime, Exif, In, Reader, Tag, Value};
use photofinish_kernels::image::orient::Orientation;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

use crate::image::format::Format;
use crate::image::{heic, webp};

/// The EXIF data of a photo.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExifData {
    /// The transform that turns the stored pixels upright. Of a HEIC, that of its container, which has been applied to what
    /// its EXIF data describes.
    pub(crate) orientation: Orientation,
    /// When the photo was taken, by the camera's clock; that is taken for UTC where the file has no offset.
    pub(crate) taken_at: Option<OffsetDateTime>,
    /// Make and model.
    pub(crate) camera: Option<String>,
}

/// The first bytes of a JPEG file.
const START_OF_IMAGE: [u8; 2] = [0xff, 0xd8];

/// The second byte of the marker before the picture's data.
const START_OF_SCAN: u8 = 0xda;

/// What stands before the EXIF data of a JPEG file. Programs that took them from there, older versions of Pillow among them,
/// also wrote it into files of other formats, where it does not belong.
const JPEG_PREFIX: [u8; 6] = *b"Exif\0\0";

/// Where the chunks of a PNG file begin: after its magic bytes.
const PNG_FIRST_CHUNK_OFFSET: usize = 8;
/// Bytes of a PNG chunk before its data, a length and a name, and after them, a checksum.
const PNG_CHUNK_HEADER_BYTES: usize = 8;
const PNG_CHECKSUM_BYTES: usize = 4;

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
        let mut reader = Reader::new();
        reader.continue_on_error(true);
        let read = match find_prefixed(bytes) {
            Some(data) => reader.read_raw(data.to_vec()),
            None => reader.read_from_container(&mut Cursor::new(before_scan(bytes))),
        };
        let exif = read.or_else(|error| error.distill_partial_result(|_damaged| {})).ok()?;
        let orientation =
            exif.get_field(Tag::Orientation, In::PRIMARY).and_then(|field| field.value.get_uint(0));
        Some(Self {
            orientation: orientation.map_or(Orientation::Upright, Orientation::from_exif),
            taken_at: read_taken_at(&exif),
            camera: read_camera(&exif),
        })
    }
}

/// Returns the EXIF data of a PNG or WebP file that begins as in a JPEG file, without this beginning: the parser removes it
/// from JPEG files only, and then refuses the data.
fn find_prefixed(file: &[u8]) -> Option<&[u8]> {
    // It concerns no HEIC, whatever the operator decided.
    let data = match Format::from_magic_bytes(file, false).ok()? {
        Format::Png => find_png_exif(file)?,
        Format::WebP => webp::find_exif(file)?,
        Format::Jpeg | Format::Heic => return None,
    };
    data.strip_prefix(&JPEG_PREFIX)
}

/// Returns the EXIF data of a PNG file: its first chunk of that kind.
fn find_png_exif(file: &[u8]) -> Option<&[u8]> {
    let mut offset = PNG_FIRST_CHUNK_OFFSET;
    loop {
        let &[l0, l1, l2, l3, n0, n1, n2, n3] =
            file.get(offset..)?.first_chunk::<PNG_CHUNK_HEADER_BYTES>()?;
        let begin = offset + PNG_CHUNK_HEADER_BYTES;
        let end = begin + u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if [n0, n1, n2, n3] == *b"eXIf" {
            return file.get(begin..end);
        }
        offset = end + PNG_CHECKSUM_BYTES;
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
    for tag in offset_tags(exif) {
        if read_ascii(exif, tag).is_some_and(|text| local.parse_offset(text).is_ok()) {
            break;
        }
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

/// The fields that may have the offset of the time at which the photo was taken, the surest first. Many cameras write one alone,
/// and not always the one that belongs to this time.
fn offset_tags(exif: &Exif) -> impl Iterator<Item = Tag> {
    let original = read_ascii(exif, Tag::DateTimeOriginal);
    let is_digitized_then = read_ascii(exif, Tag::DateTimeDigitized) == original;
    let digitized = is_digitized_then.then_some(Tag::OffsetTimeDigitized);
    // The offset of the last change. An editor writes that of its own computer, which may be elsewhere.
    let is_unchanged = read_ascii(exif, Tag::DateTime).is_none_or(|changed| Some(changed) == original);
    let changed = is_unchanged.then_some(Tag::OffsetTime);
    [Some(Tag::OffsetTimeOriginal), digitized, changed].into_iter().flatten()
}

/// Joins make and model: "Apple iPhone 15" from "Apple" and "iPhone 15", but "NIKON D3100" from "NIKON CORPORATION" and "NIKON
/// D3100".
fn read_camera(exif: &Exif) -> Option<String> {
    let make = read_text(exif, Tag::Make);
    let model = read_text(exif, Tag::Model);
    let name = match (make, model) {
        (Some(make), Some(model)) if !names_make(&model, &make) => format!("{make} {model}"),
        (_, Some(model)) => model,
        (Some(make), None) => make,
        (None, None) => return None,
    };
    Some(name.chars().take(MAX_CAMERA_CHARS).collect())
}

/// Whether the name of a model begins with the first word of its make. The others are "CORPORATION" and the like.
fn names_make(model: &str, make: &str) -> bool {
    let brand = make.split_whitespace().next().unwrap_or(make);
    model.to_lowercase().starts_with(&brand.to_lowercase())
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
    fn a_model_that_names_its_make_is_the_camera() {
        for (make, model, camera) in [
            ("NIKON CORPORATION", "NIKON D3100", "NIKON D3100"),
            ("Canon", "Canon EOS 7D", "Canon EOS 7D"),
            ("LEICA CAMERA AG", "LEICA M10", "LEICA M10"),
            ("OnePlus", "ONEPLUS A6003", "ONEPLUS A6003"),
            ("NIKON CORPORATION", "COOLPIX", "NIKON CORPORATION COOLPIX"),
            ("Apple", "iPhone 15", "Apple iPhone 15"),
            ("samsung", "SM-G991B", "samsung SM-G991B"),
            (" ", "D3", "D3"),
            ("SONY", " ", "SONY"),
        ] {
            let file = jpeg_with_exif(&[(Tag::Make, ascii_value(make)), (Tag::Model, ascii_value(model))]);
            assert_eq!(ExifData::read(&file).camera.as_deref(), Some(camera), "{make}, {model}");
        }
    }

    /// Orientation 6, big endian, one entry.
    const TIFF: [u8; 26] =
        [b'M', b'M', 0, 42, 0, 0, 0, 8, 0, 1, 0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0];

    /// A PNG without pixels that has another chunk and this one.
    fn png_with_exif(data: &[u8]) -> Vec<u8> {
        let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x03tEXta\0b\0\0\0\0".to_vec();
        file.extend((data.len() as u32).to_be_bytes());
        file.extend(b"eXIf");
        file.extend(data);
        // The parser does not verify checksums.
        file.extend([0; 4]);
        file
    }

    /// A WebP without pixels that has another chunk, of an odd length, and this one.
    fn webp_with_exif(data: &[u8]) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WEBPVP8 \x03\0\0\0abc\0EXIF".to_vec();
        file.extend((data.len() as u32).to_le_bytes());
        file.extend(data);
        let size = (file.len() - 8) as u32;
        file[4..8].copy_from_slice(&size.to_le_bytes());
        file
    }

    #[test]
    fn exif_data_of_png_and_webp_may_begin_as_in_a_jpeg() {
        for prefix in [&b""[..], b"Exif\0\0"] {
            let data = [prefix, &TIFF].concat();
            for file in [png_with_exif(&data), webp_with_exif(&data)] {
                assert_eq!(ExifData::read(&file).orientation, Orientation::Rotate90, "{file:?}");
                for end in 0..file.len() {
                    ExifData::read(&file[..end]);
                }
            }
        }
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
    fn the_offset_of_another_time_in_the_file_serves_where_its_own_is_missing() {
        let original = (Tag::DateTimeOriginal, "2024:05:12 10:20:30");
        let same = (Tag::DateTimeDigitized, "2024:05:12 10:20:30");
        let other = (Tag::DateTimeDigitized, "2024:06:01 09:00:00");
        let own = |offset| (Tag::OffsetTimeOriginal, offset);
        let digitized = (Tag::OffsetTimeDigitized, "+03:00");
        let changed = (Tag::OffsetTime, "-04:30");
        let unchanged = (Tag::DateTime, "2024:05:12 10:20:30");
        let edited = (Tag::DateTime, "2024:05:13 21:00:00");
        for (fields, expected) in [
            (vec![original, own("+02:00"), same, digitized, changed], datetime!(2024-05-12 08:20:30 UTC)),
            (vec![original, same, digitized, changed], datetime!(2024-05-12 07:20:30 UTC)),
            (vec![original, other, digitized, changed], datetime!(2024-05-12 14:50:30 UTC)),
            (vec![original, changed], datetime!(2024-05-12 14:50:30 UTC)),
            (vec![original, own("   :  "), changed], datetime!(2024-05-12 14:50:30 UTC)),
            (vec![original, unchanged, changed], datetime!(2024-05-12 14:50:30 UTC)),
            (vec![original, edited, changed], datetime!(2024-05-12 10:20:30 UTC)),
            (vec![original, same, digitized, edited, changed], datetime!(2024-05-12 07:20:30 UTC)),
            (vec![original, other, digitized], datetime!(2024-05-12 10:20:30 UTC)),
        ] {
            let fields: Vec<(Tag, Value)> =
                fields.into_iter().map(|(tag, text)| (tag, ascii_value(text))).collect();
            assert_eq!(ExifData::read(&jpeg_with_exif(&fields)).taken_at, Some(expected), "{fields:?}");
        }
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
