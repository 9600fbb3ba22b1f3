//! Tests of HEIC: what is refused before anything is decoded, how pictures are turned and cut, and what damage does.

mod files;
mod memory;
mod reference;

use image::RgbImage;
use photofinish_kernels::image::frame::Size;
use photofinish_kernels::image::orient::Orientation;
use photofinish_store::model::photo::FailureReason;

use self::files::{
    HeicFile, Item, Reference, coded, full_box, mirror_box, plain_box, rotation_box, size_box,
};
use crate::engine::fault::Poison;
use crate::image::color_profile::ColorProfile;
use crate::image::decoder::{DecodePlan, Decoder};
use crate::image::exif::ExifData;
use crate::image::pool::{BufferPool, PooledPicture};
use crate::settings::Limits;
use crate::testing::rgb_profile;

const LIMITS: Limits = Limits { max_file_bytes: 50 << 20, max_pixels: 200_000_000, reads_heic: true };

fn plan(file: &[u8]) -> Result<DecodePlan, Poison> {
    Decoder::new(LIMITS, BufferPool::default()).unwrap().plan(file, |_| 64)
}

fn decode(file: &[u8]) -> Result<PooledPicture, Poison> {
    let mut decoder = Decoder::new(LIMITS, BufferPool::default()).unwrap();
    let plan = decoder.plan(file, |_| 64)?;
    let picture = decoder.decode(file, &plan)?;
    assert_eq!(picture.size(), plan.decoded_size);
    Ok(picture)
}

/// Why the header is refused.
#[track_caller]
fn refusal(file: &HeicFile) -> (FailureReason, String) {
    let poison = plan(&file.to_bytes()).err().expect("the header was accepted");
    (poison.reason, poison.to_string())
}

#[track_caller]
fn assert_refused(file: &HeicFile, reason: FailureReason, detail: &str) {
    let (given, text) = refusal(file);
    assert!(given == reason && text.contains(detail), "{given:?}: {text}");
}

/// Four areas of different colours, so that each way of turning shows.
fn scene(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| match (x * 2 < width, y * 2 < height) {
        (true, true) => image::Rgb([200, 40, 40]),
        (false, true) => image::Rgb([40, 180, 40]),
        (true, false) => image::Rgb([40, 40, 200]),
        (false, false) => image::Rgb([230, 230, 230]),
    })
}

fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: u64 = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.len() as f64
}

/// Changes the first bytes that are `old` to `new`.
#[track_caller]
fn patch(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    let at = bytes.windows(old.len()).position(|part| part == old).expect("the bytes to change");
    bytes[at..at + new.len()].copy_from_slice(new);
}

#[test]
fn a_single_picture_and_a_grid_have_their_pixels() {
    let scene = scene(64, 48);
    let single = decode(&HeicFile::single(&scene, &[]).to_bytes()).unwrap();
    assert!(mean_difference(single.frame().pixels(), scene.as_raw()) < 4.0);

    // The last column and row are cut.
    let grid = decode(&HeicFile::grid(&coded(&scene), [3, 2], [150, 90]).to_bytes()).unwrap();
    assert_eq!(grid.size(), Size { width: 150, height: 90 });
    for (number, pixel) in grid.frame().pixels().chunks_exact(3).enumerate() {
        let (x, y) = (number % 150 % 64, number / 150 % 48);
        let expected = &single.frame().pixels()[(y * 64 + x) * 3..][..3];
        assert_eq!(pixel, expected, "at {number}");
    }
}

#[test]
fn brands_decide_what_is_tried_and_items_what_is_read() {
    let mut file = HeicFile::single(&scene(64, 48), &[]);
    for brand in [b"heic", b"heix", b"hevc", b"hevx", b"mif1", b"msf1", b"abcd"] {
        file.brand = *brand;
        assert!(decode(&file.to_bytes()).is_ok(), "{brand:?} with mif1 among the others");
    }
    file.brand = *b"avif";
    assert_refused(&file, FailureReason::UnsupportedFormat, "avif");
    file.brand = *b"mif1";
    file.items[0].kind = *b"av01";
    assert_refused(&file, FailureReason::UnsupportedFormat, "av01");
    let film = [plain_box(b"ftyp", b"hevc\0\0\0\0msf1"), plain_box(b"moov", &[])].concat();
    assert_eq!(plan(&film).err().unwrap().reason, FailureReason::UnsupportedFormat);
}

#[test]
fn nothing_is_read_where_it_is_switched_off() {
    let file = HeicFile::single(&scene(64, 48), &[]).to_bytes();
    let limits = Limits { reads_heic: false, ..LIMITS };
    let poison = Decoder::new(limits, BufferPool::default()).unwrap().plan(&file, |_| 64).err().unwrap();
    assert_eq!(poison.reason, FailureReason::UnsupportedFormat);
}

#[test]
fn the_container_turns_the_picture_and_exif_does_not() {
    let turns: [(&[Vec<u8>], Orientation); 6] = [
        (&[], Orientation::Upright),
        (&[rotation_box(1)], Orientation::Rotate270),
        (&[rotation_box(2)], Orientation::Rotate180),
        (&[rotation_box(3)], Orientation::Rotate90),
        (&[mirror_box(0)], Orientation::FlipVertical),
        (&[rotation_box(3), mirror_box(1)], Orientation::Rotate90.then(Orientation::FlipHorizontal)),
    ];
    // Big endian: orientation 8, and the camera "Cam".
    let exif = [
        &[0, 0, 0, 0][..],
        b"MM\0*\0\0\0\x08\0\x02",
        &[0x01, 0x0f, 0, 2, 0, 0, 0, 4, b'C', b'a', b'm', 0],
        &[0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 8, 0, 0],
        &[0; 4],
    ]
    .concat();
    for (properties, expected) in turns {
        let mut file = HeicFile::single(&scene(64, 48), properties);
        file.items.push(Item { kind: *b"Exif", properties: Vec::new(), data: exif.clone() });
        file.references.push(Reference { kind: *b"cdsc", from: 2, to: vec![1] });
        let file = file.to_bytes();
        let read = ExifData::read(&file);
        assert_eq!((read.orientation, read.camera.as_deref()), (expected, Some("Cam")));
        assert_eq!(decode(&file).unwrap().size(), Size { width: 64, height: 48 }, "the stored pixels stay");
    }
}

#[test]
fn the_colour_profile_is_that_of_the_picture_or_of_its_tiles() {
    let profile = |length| plain_box(b"colr", &[&b"prof"[..], &rgb_profile(length)].concat());
    let found = |file: &HeicFile| plan(&file.to_bytes()).unwrap().color_profile;
    let expected = |length| ColorProfile::from_bytes(&rgb_profile(length));
    assert!(expected(548).is_some());
    let mut single = HeicFile::single(&scene(64, 48), &[profile(548)]);
    assert_eq!(found(&single), expected(548));
    let mut tile = coded(&scene(64, 48));
    assert_eq!(found(&HeicFile::grid(&tile, [2, 1], [128, 48])), None);
    tile.properties.push(profile(560));
    let mut grid = HeicFile::grid(&tile, [2, 1], [128, 48]);
    assert_eq!(found(&grid), expected(560));
    grid.items[0].properties.push(profile(548));
    assert_eq!(found(&grid), expected(548));
    // An item that is put together from itself, by way of another.
    single.items[0].properties.pop();
    single.items.push(tile);
    single.items[1].properties.pop();
    single.references.push(Reference { kind: *b"dimg", from: 1, to: vec![2] });
    single.references.push(Reference { kind: *b"dimg", from: 2, to: vec![1] });
    assert_eq!(found(&single), None);
}

/// The property of the part that is shown: its sides, and the distance of its middle from the picture's, in halves.
fn crop_box(width: u32, height: u32, [x, y]: [i32; 2]) -> Vec<u8> {
    let numbers = [width, 1, height, 1, x as u32, 2, y as u32, 2];
    plain_box(b"clap", &numbers.map(u32::to_be_bytes).concat())
}

#[test]
fn only_the_part_that_a_file_shows_is_its_picture() {
    let scene = scene(64, 48);
    let whole = decode(&HeicFile::single(&scene, &[]).to_bytes()).unwrap();
    let part = decode(&HeicFile::single(&scene, &[crop_box(31, 20, [-3, 4])]).to_bytes()).unwrap();
    // The middle is moved by 1.5 and 2 pixels: from (64 - 31) / 2 - 1.5 and (48 - 20) / 2 + 2.
    for (y, row) in part.frame().pixels().chunks_exact(31 * 3).enumerate() {
        assert_eq!(row, &whole.frame().pixels()[((y + 16) * 64 + 15) * 3..][..31 * 3]);
    }
    for wrong in [crop_box(65, 20, [0, 0]), crop_box(31, 0, [0, 0]), crop_box(31, 20, [90, 0])] {
        assert_refused(
            &HeicFile::single(&scene, &[wrong]),
            FailureReason::CorruptImage,
            "not in the picture",
        );
    }
    let mut endless = crop_box(31, 20, [0, 0]);
    endless[12..16].fill(0);
    assert_refused(&HeicFile::single(&scene, &[endless]), FailureReason::CorruptImage, "not in the picture");
    let late = [rotation_box(1), crop_box(31, 20, [0, 0])];
    assert_refused(&HeicFile::single(&scene, &late), FailureReason::UnsupportedFormat, "after it is turned");
}

#[test]
fn transparent_pixels_are_white() {
    let [width, height] = [64, 48];
    let mut file = HeicFile::single(&scene(width, height), &[]);
    let opaque_on_the_left =
        RgbImage::from_fn(width, height, |x, _| image::Rgb([if x < 32 { 255 } else { 0 }; 3]));
    let mut alpha = coded(&opaque_on_the_left);
    alpha.properties.push(full_box(b"auxC", 0, b"urn:mpeg:hevc:2015:auxid:1\0"));
    file.items.push(alpha);
    file.references.push(Reference { kind: *b"auxl", from: 2, to: vec![1] });
    let picture = decode(&file.to_bytes()).unwrap();
    let pixel = |x: usize, y: usize| &picture.frame().pixels()[(y * 64 + x) * 3..][..3];
    assert!(pixel(60, 40).iter().chain(pixel(60, 4)).all(|value| *value > 250));
    assert!(pixel(4, 4)[0] > 180 && pixel(4, 4)[1] < 60);
}

#[test]
fn more_pixels_than_the_limit_are_refused_before_anything_is_decoded() {
    let mut file = HeicFile::single(&scene(64, 48), &[]);
    file.items[0].properties.retain(|property| &property[4..8] != b"ispe");
    file.items[0].properties.push(size_box(20_000, 20_000));
    assert_refused(&file, FailureReason::TooManyPixels, "20000 x 20000");
    // Tiles of a pixel, coded as the smallest that there are, would be a small picture of many.
    let tile = coded(&scene(64, 48));
    assert_refused(&HeicFile::grid(&tile, [30, 1], [1, 48]), FailureReason::CorruptImage, "another size");
    assert_refused(&HeicFile::grid(&tile, [2, 1], [129, 48]), FailureReason::CorruptImage, "another size");
    let mut small = tile.clone();
    small.properties.retain(|property| &property[4..8] != b"ispe");
    small.properties.push(size_box(1, 1));
    let limits = Limits { max_pixels: 10_000, ..LIMITS };
    let file = HeicFile::grid(&tile, [3, 3], [150, 100]).to_bytes();
    let poison = Decoder::new(limits, BufferPool::default()).unwrap().plan(&file, |_| 64).err().unwrap();
    assert_eq!(poison.reason, FailureReason::TooManyPixels);
}

#[test]
fn more_tiles_items_and_extents_than_the_limits_are_refused() {
    let tile = Item { data: vec![0; 8], ..coded(&scene(64, 48)) };
    let small = HeicFile::grid(&tile, [31, 32], [31 * 64, 32 * 48]);
    assert_eq!(small.items.len(), 993);
    assert!(plan(&small.to_bytes()).is_ok());
    let many = HeicFile::grid(&tile, [32, 32], [32 * 64, 32 * 48]);
    assert_refused(&many, FailureReason::UnsupportedFormat, "1025 items, the limit is 1000");
    // The same tile 4,225 times.
    let mut again = HeicFile::grid(&tile, [65, 65], [65 * 64, 65 * 48]);
    again.items.truncate(2);
    again.references[0].to.fill(2);
    assert_refused(&again, FailureReason::UnsupportedFormat, "65 x 65 tiles, the limit is 4096");
    // Items without any field: 65,535 extents each, of no bytes.
    let mut bytes = small.to_bytes();
    let at = bytes.windows(4).position(|name| name == b"iloc").unwrap();
    bytes[at + 8..at + 10].fill(0);
    bytes[at + 12..at + 3000].fill(0xff);
    let poison = plan(&bytes).err().unwrap();
    assert!(poison.to_string().contains("more than 8000 parts"), "{poison}");
}

#[test]
fn tiles_that_share_bytes_or_lie_elsewhere_are_refused() {
    let tile = coded(&scene(64, 48));
    let mut shared = HeicFile::grid(&tile, [4, 4], [256, 192]);
    shared.items.truncate(2);
    shared.references[0].to.fill(2);
    assert_refused(&shared, FailureReason::CorruptImage, "share their bytes");
    let mut other = HeicFile::grid(&tile, [2, 1], [128, 48]);
    other.items[2].properties.push(rotation_box(1));
    assert_refused(&other, FailureReason::UnsupportedFormat, "turned");
    let mut other = HeicFile::grid(&tile, [2, 1], [128, 48]);
    other.items[2] = coded(&scene(64, 64));
    assert_refused(&other, FailureReason::CorruptImage, "different sizes");
    let mut other = HeicFile::grid(&tile, [2, 1], [128, 48]);
    other.items[2].kind = *b"iden";
    assert_refused(&other, FailureReason::UnsupportedFormat, "other pictures");
    let mut missing = HeicFile::grid(&tile, [2, 1], [128, 48]);
    missing.references.clear();
    assert_refused(&missing, FailureReason::CorruptImage, "without tiles");
}

#[test]
fn a_picture_that_is_coded_in_another_size_than_claimed_is_corrupt() {
    let mut file = HeicFile::single(&scene(256, 192), &[]);
    file.items[0].properties.retain(|property| &property[4..8] != b"ispe");
    let mut with_size = |width, height| {
        let mut item = file.items[0].clone();
        item.properties.push(size_box(width, height));
        let items = std::mem::replace(&mut file.items, vec![item]);
        let bytes = file.to_bytes();
        file.items = items;
        bytes
    };
    let [small, large] = [with_size(64, 48), with_size(300, 192)];
    assert_eq!(decode(&small).unwrap_err().reason, FailureReason::CorruptImage);
    assert_eq!(decode(&large).unwrap_err().reason, FailureReason::CorruptImage);
    assert_eq!(plan(&with_size(0, 48)).err().unwrap().reason, FailureReason::CorruptImage);
}

#[test]
fn a_file_truncated_anywhere_is_corrupt() {
    let files = [
        HeicFile::single(&scene(64, 48), &[]).to_bytes(),
        HeicFile::grid(&coded(&scene(64, 48)), [2, 1], [128, 48]).to_bytes(),
    ];
    for whole in files {
        for end in 0..whole.len() {
            let poison = decode(&whole[..end]).unwrap_err();
            // Without the brands it is no picture.
            let expected =
                if end < 16 { FailureReason::UnsupportedFormat } else { FailureReason::CorruptImage };
            assert_eq!(poison.reason, expected, "truncated at {end} of {}: {poison}", whole.len());
            ExifData::read(&whole[..end]);
        }
        // What cameras append is no damage.
        assert!(decode(&[&whole[..], b"SEFT and so on"].concat()).is_ok());
    }
}

#[test]
fn a_changed_byte_fails_the_photo_at_most() {
    let whole = HeicFile::single(&scene(64, 48), &[rotation_box(1)]).to_bytes();
    for at in 0..whole.len() {
        for change in [0xff, 0x80, 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= change;
            if let Err(poison) = decode(&damaged) {
                assert_ne!(poison.reason, FailureReason::ProcessingCrashed, "{poison}");
            }
        }
    }
}

#[test]
fn parameters_in_the_stream_do_not_change_what_was_planned() {
    let mut file = HeicFile::single(&scene(64, 48), &[]);
    let other = coded(&scene(256, 192));
    // The parameter sets of a larger picture, before the slices.
    let configuration = other.properties.iter().find(|property| &property[4..8] == b"hvcC").unwrap();
    let config = heifer::heifer_isobmff::boxes::HevcConfig::parse(&configuration[8..]).unwrap();
    let mut data = Vec::new();
    for unit in &config.nal_units {
        data.extend((unit.len() as u32).to_be_bytes());
        data.extend(unit);
    }
    let expected = decode(&file.to_bytes()).unwrap();
    data.extend(&file.items[0].data);
    file.items[0].data = data;
    let picture = decode(&file.to_bytes()).unwrap();
    assert_eq!(picture.frame().pixels(), expected.frame().pixels());
    // A unit that hides in another is damage.
    let slice = &mut file.items[0].data;
    let end = slice.len();
    slice[end - 6..end - 3].copy_from_slice(&[0, 0, 1]);
    assert_eq!(decode(&file.to_bytes()).unwrap_err().reason, FailureReason::CorruptImage);
}

#[test]
fn tables_of_megabytes_are_refused() {
    let mut file = HeicFile::single(&scene(64, 48), &[]);
    file.items[0].properties.push(plain_box(b"free", &vec![0; 3 << 20]));
    assert_refused(&file, FailureReason::UnsupportedFormat, "bytes of tables");
    let mut bytes = HeicFile::single(&scene(64, 48), &[]).to_bytes();
    patch(&mut bytes, b"pict", b"vide");
    assert_eq!(plan(&bytes).err().unwrap().reason, FailureReason::CorruptImage);
}
