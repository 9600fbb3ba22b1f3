//! Tests of decoding and turning upright, on files made here and on the real ones in `../shared/photos`.

mod header_oddities;
pub(crate) mod memory;
mod parameters;
mod profiles;
mod scan_damage;
mod spoiled;

use image::{DynamicImage, ImageFormat, RgbImage};
use photofinish_kernels::image::frame::Size;
use photofinish_store::model::photo::FailureReason;
use proptest::prelude::*;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

use super::exif::ExifData;
use super::pool::{BufferPool, PooledPicture};
use super::upright_resizer::UprightResizer;
use crate::engine::fault::Poison;
use crate::image::decoder::Decoder;
use crate::settings::Limits;
use crate::testing::shared_photo_dir;

const LIMITS: Limits = Limits { max_file_bytes: 50 << 20, max_pixels: 200_000_000, reads_heic: false };

fn decode(file: &[u8], long_side: u32) -> Result<PooledPicture, Poison> {
    let mut decoder = Decoder::new(LIMITS, BufferPool::default()).unwrap();
    let plan = decoder.plan(file, |_| long_side)?;
    assert!(u64::try_from(plan.peak_bytes).unwrap() < 6_000_000_000);
    let picture = decoder.decode(file, &plan)?;
    assert_eq!(picture.size(), plan.decoded_size);
    Ok(picture)
}

fn decode_failure(file: &[u8]) -> FailureReason {
    decode(file, 2048).unwrap_err().reason
}

/// A picture with structure: a wave and two gradients.
fn scene(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let wave = ((x as f32 / 9.0).sin() * 60.0 + 128.0) as u8;
        image::Rgb([wave, (x * 255 / width) as u8, (y * 255 / height) as u8])
    })
}

fn jpeg(scene: &RgbImage, set: impl FnOnce(&mut Compressor)) -> Vec<u8> {
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(92).unwrap();
    compressor.set_subsamp(Subsamp::Sub2x2).unwrap();
    set(&mut compressor);
    let (width, height) = (scene.width() as usize, scene.height() as usize);
    let image = Image {
        pixels: scene.as_raw().as_slice(),
        width,
        pitch: width * 3,
        height,
        format: PixelFormat::RGB,
    };
    compressor.compress_to_vec(image).unwrap()
}

fn encode(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    image.write_to(&mut file, format).unwrap();
    file.into_inner()
}

fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: u64 = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.len() as f64
}

#[test]
fn every_accepted_format_decodes_to_its_pixels() {
    let scene = scene(320, 200);
    let rgb = DynamicImage::ImageRgb8(scene.clone());
    let files = [
        ("baseline", jpeg(&scene, |_| {}), 3.0),
        ("progressive", jpeg(&scene, |c| c.set_progressive(true).unwrap()), 3.0),
        ("png", encode(&rgb, ImageFormat::Png), 0.0),
        ("png, 16 bit", encode(&DynamicImage::ImageRgb16(rgb.to_rgb16()), ImageFormat::Png), 0.0),
        ("png, opaque alpha", encode(&DynamicImage::ImageRgba8(rgb.to_rgba8()), ImageFormat::Png), 0.0),
        ("webp", encode(&rgb, ImageFormat::WebP), 0.0),
    ];
    for (name, file, tolerance) in files {
        let picture = decode(&file, 2048).unwrap();
        let difference = mean_difference(picture.frame().pixels(), scene.as_raw());
        assert!(difference <= tolerance, "{name}: {difference}");
    }
    let grey = DynamicImage::ImageLuma8(rgb.to_luma8());
    let picture = decode(&encode(&grey, ImageFormat::Png), 2048).unwrap();
    assert_eq!(picture.frame().pixels(), grey.to_rgb8().as_raw().as_slice());
    let picture = decode(&encode(&grey, ImageFormat::Jpeg), 2048).unwrap();
    assert!(mean_difference(picture.frame().pixels(), grey.to_rgb8().as_raw()) < 3.0);
}

#[test]
fn a_jpeg_is_decoded_at_the_smallest_sufficient_size() {
    let file = jpeg(&scene(1600, 800), |_| {});
    assert_eq!(decode(&file, 1600).unwrap().size(), Size { width: 1600, height: 800 });
    assert_eq!(decode(&file, 800).unwrap().size(), Size { width: 800, height: 400 });
    assert_eq!(decode(&file, 700).unwrap().size(), Size { width: 800, height: 400 });
    assert_eq!(decode(&file, 4000).unwrap().size(), Size { width: 1600, height: 800 });
}

#[test]
fn a_decoder_works_after_a_damaged_file() {
    let whole = jpeg(&scene(640, 480), |_| {});
    let mut decoder = Decoder::new(LIMITS, BufferPool::default()).unwrap();
    let mut decode = |file: &[u8]| {
        let plan = decoder.plan(file, |_| 640)?;
        decoder.decode(file, &plan).map(|picture| picture.frame().pixels().to_vec())
    };
    let first = decode(&whole).unwrap();
    assert!(decode(&whole[..whole.len() / 2]).is_err());
    assert_eq!(decode(&whole).unwrap(), first);
}

#[test]
fn a_file_truncated_anywhere_is_corrupt() {
    for progressive in [false, true] {
        let whole = jpeg(&scene(640, 480), |c| c.set_progressive(progressive).unwrap());
        for end in (3..whole.len()).step_by(997).chain([whole.len() - 2, whole.len() - 1]) {
            assert_eq!(
                decode_failure(&whole[..end]),
                FailureReason::CorruptImage,
                "truncated at {end} of {}",
                whole.len()
            );
        }
    }
    let png = encode(&DynamicImage::ImageRgb8(scene(64, 48)), ImageFormat::Png);
    let webp = encode(&DynamicImage::ImageRgb8(scene(64, 48)), ImageFormat::WebP);
    for whole in [png, webp] {
        for end in (12..whole.len() - 16).step_by(97) {
            assert_eq!(
                decode_failure(&whole[..end]),
                FailureReason::CorruptImage,
                "truncated at {end} of {}",
                whole.len()
            );
        }
    }
}

#[test]
fn a_file_that_is_no_picture_is_unsupported() {
    let files: [&[u8]; 6] = [
        b"",
        b"x",
        b"%PDF-1.7 and so on",
        b"GIF89a and so on",
        b"\0\0\0\x18ftypavif and so on",
        b"<html>photo.jpg</html>",
    ];
    for file in files {
        assert_eq!(decode_failure(file), FailureReason::UnsupportedFormat);
    }
}

#[test]
fn stray_bytes_that_cameras_leave_are_harmless() {
    let scene = scene(320, 240);
    let whole = jpeg(&scene, |_| {});
    let pixels = decode(&whole, 320).unwrap().frame().pixels().to_vec();
    // After the end marker.
    let mut padded = whole.clone();
    padded.extend([0; 500]);
    assert_eq!(decode(&padded, 320).unwrap().frame().pixels(), pixels);
    // Before the end marker.
    let mut stuffed = whole.clone();
    stuffed.splice(whole.len() - 2..whole.len() - 2, [0x11; 7]);
    assert_eq!(decode(&stuffed, 320).unwrap().frame().pixels(), pixels);
    // Between two segments of the header.
    let mut spaced = whole.clone();
    spaced.splice(20..20, [0x11; 5]);
    assert_eq!(&whole[2..4], [0xff, 0xe0], "the JFIF segment ends at 20");
    assert_eq!(decode(&spaced, 320).unwrap().frame().pixels(), pixels);
    // Harmless only where nothing is missing.
    let scan = memory::find_marker(&spaced, 0xda).unwrap();
    let third = (spaced.len() - scan) / 3;
    spaced.drain(scan + third..scan + 2 * third);
    assert!(spaced.ends_with(&[0xff, 0xd9]));
    assert_eq!(decode_failure(&spaced), FailureReason::CorruptImage);
    // Stray bytes without an end marker are damage.
    stuffed.truncate(stuffed.len() - 2);
    assert_eq!(decode_failure(&stuffed), FailureReason::CorruptImage);
}

#[test]
fn broken_codes_are_corrupt() {
    let whole = jpeg(&scene(640, 480), |_| {});
    let mut broken = whole.clone();
    let middle = broken.len() / 2;
    for byte in &mut broken[middle..middle + 60] {
        *byte = 0xfe;
    }
    assert_eq!(decode_failure(&broken), FailureReason::CorruptImage);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_makes_a_decoder_panic_or_exceed_its_limits(
        kind in 0_usize..4,
        damage in prop::collection::vec((0_usize..4000, any::<u8>()), 1..12),
        cut in 0_usize..4000,
    ) {
        let scene = scene(96, 64);
        let rgb = DynamicImage::ImageRgb8(scene.clone());
        let mut file = match kind {
            0 => jpeg(&scene, |_| {}),
            1 => jpeg(&scene, |c| c.set_progressive(true).unwrap()),
            2 => encode(&rgb, ImageFormat::Png),
            _ => encode(&rgb, ImageFormat::WebP),
        };
        for (offset, value) in damage {
            // Half of the damage goes to the headers, which are short.
            let offset = if offset % 2 == 0 { offset % 400 } else { offset } % file.len();
            file[offset] = value;
        }
        if cut % 3 == 0 {
            file.truncate(cut % file.len());
        }
        ExifData::read(&file);
        let limits = Limits { max_file_bytes: 1 << 20, max_pixels: 1_000_000, reads_heic: false };
        let mut decoder = Decoder::new(limits, BufferPool::default()).unwrap();
        if let Ok(plan) = decoder.plan(&file, |_| 64) {
            prop_assert!(plan.decoded_size.area() <= 1_000_000);
            if let Ok(picture) = decoder.decode(&file, &plan) {
                prop_assert_eq!(picture.size(), plan.decoded_size);
            }
        }
    }
}

/// A JPEG of 44 bytes: headers that claim a size, and no pixels.
fn jpeg_claiming_side(side: u16) -> Vec<u8> {
    let [high, low] = side.to_be_bytes();
    let mut file = vec![0xff, 0xd8, 0xff, 0xc0, 0, 17, 8, high, low, high, low, 3];
    file.extend([1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1, 0xff, 0xda, 0, 12, 3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]);
    file.resize(44, 0);
    file
}

#[test]
fn a_header_that_claims_too_many_pixels_is_refused_before_allocation() {
    assert_eq!(decode_failure(&jpeg_claiming_side(65500)), FailureReason::TooManyPixels);
    assert_eq!(decode_failure(&jpeg_claiming_side(65535)), FailureReason::TooManyPixels);
    let mut png = encode(&DynamicImage::ImageRgb8(scene(8, 8)), ImageFormat::Png);
    png[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    assert_eq!(decode_failure(&png[..44]), FailureReason::TooManyPixels);
    // Below the limit, the missing pixels are detected by decoding.
    assert_eq!(decode_failure(&jpeg_claiming_side(100)), FailureReason::CorruptImage);
}

#[test]
fn exif_of_png_and_webp_is_read_too() {
    // A PNG with an eXIf chunk: orientation 6, big endian, one entry.
    let tiff = [b'M', b'M', 0, 42, 0, 0, 0, 8, 0, 1, 0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0];
    let mut png = encode(&DynamicImage::ImageRgb8(scene(8, 8)), ImageFormat::Png);
    let mut chunk = (tiff.len() as u32).to_be_bytes().to_vec();
    chunk.extend(b"eXIf");
    chunk.extend(tiff);
    // The EXIF reader does not verify checksums.
    chunk.extend([0; 4]);
    png.splice(33..33, chunk);
    assert!(ExifData::read(&png).orientation.swaps_sides());

    let mut webp = b"RIFF\0\0\0\0WEBPEXIF".to_vec();
    webp.extend((tiff.len() as u32).to_le_bytes());
    webp.extend(tiff);
    let size = (webp.len() - 8) as u32;
    webp[4..8].copy_from_slice(&size.to_le_bytes());
    assert!(ExifData::read(&webp).orientation.swaps_sides());
}

/// Decodes a file to an upright thumbnail; returns the size of the photo and the thumbnail's pixels.
fn thumbnail(file: &[u8], long_side: u32) -> Result<(Size, Vec<u8>), Poison> {
    let pool = BufferPool::default();
    let mut decoder = Decoder::new(LIMITS, pool.clone()).unwrap();
    let exif = ExifData::read(file);
    let plan = decoder.plan(file, |_| long_side)?;
    let stored = decoder.decode(file, &plan)?;
    let size = exif.orientation.transform_size(plan.stored_size);
    let picture = UprightResizer::new(pool).resize_upright(
        stored.frame(),
        exif.orientation,
        size.fit_within(long_side),
    );
    Ok((size, picture.frame().pixels().to_vec()))
}

#[test]
fn all_orientations_show_the_same_scene() {
    let Some(photos) = shared_photo_dir() else { return };
    let load = |i: u32| std::fs::read(photos.join(format!("files/orient/Portrait_{i}.jpg"))).unwrap();
    let (size, upright) = thumbnail(&load(1), 256).unwrap();
    assert_eq!(size, Size { width: 1200, height: 1800 });
    for i in 2..=8 {
        let (thumbnail_size, pixels) = thumbnail(&load(i), 256).unwrap();
        assert_eq!(thumbnail_size, size, "orientation {i}");
        // The files were encoded separately, and each shows its own number.
        let difference = mean_difference(&pixels, &upright);
        assert!(difference < 6.0, "orientation {i}: {difference}");
    }
}

/// The real files that are not ordinary photos, and how they fail, if they do.
const UNUSUAL_FILES: [(&str, Option<FailureReason>); 20] = [
    ("zune/test-images/jpeg/cymk.jpg", None),
    ("zune/test-images/jpeg/four_components.jpg", None),
    ("zune/test-images/jpeg/down_sampled_grayscale_prog.jpg", None),
    ("pillow/Tests/images/pil_sample_cmyk.jpg", None),
    ("libheif/tests/data/rainbow-451x461.heic", Some(FailureReason::UnsupportedFormat)),
    ("pillow/Tests/images/avif/hopper.avif", Some(FailureReason::UnsupportedFormat)),
    ("pillow/Tests/images/avif/exif.avif", Some(FailureReason::UnsupportedFormat)),
    ("imagers/tests/images/webp/extended_images/advertises_rgba_but_frames_are_rgb.webp", None),
    ("imagers/tests/images/webp/extended_images/anim.webp", None),
    ("imagers/tests/images/webp/extended_images/lossy_alpha.webp", None),
    ("imagers/tests/images/webp/lossless_images/2-color.webp", None),
    ("imagers/tests/images/webp/lossless_images/multi-color.webp", None),
    ("imagers/tests/images/webp/lossless_images/simple.webp", None),
    ("imagers/tests/images/webp/lossless_images/simple_xmp.webp", None),
    ("imagers/tests/images/webp/lossy_images/simple-gray.webp", None),
    ("imagers/tests/images/webp/lossy_images/simple-rgb.webp", None),
    ("pillow/Tests/images/truncated_jpeg.jpg", Some(FailureReason::CorruptImage)),
    ("pillow/Tests/images/truncated_image.png", Some(FailureReason::CorruptImage)),
    ("pillow/Tests/images/decompression_bomb.gif", Some(FailureReason::UnsupportedFormat)),
    ("pillow/Tests/images/broken_data_stream.png", Some(FailureReason::CorruptImage)),
];

#[test]
fn every_real_file_has_the_expected_result() {
    let Some(photos) = shared_photo_dir() else { return };
    let manifest = std::fs::read_to_string(photos.join("MANIFEST.csv")).unwrap();
    let mut read = 0;
    for line in manifest.lines().skip(1) {
        let mut columns = line.split(',');
        let (path, kind) = (columns.next().unwrap(), columns.next().unwrap());
        let file = std::fs::read(photos.join("files").join(path)).unwrap();
        let result = thumbnail(&file, 512);
        let expected = UNUSUAL_FILES.iter().find(|(odd, _)| *odd == path).and_then(|(_, reason)| *reason);
        assert_eq!(kind == "odd", UNUSUAL_FILES.iter().any(|(odd, _)| *odd == path), "{path}");
        match (&result, expected) {
            (Ok((size, _)), None) => {
                let listed: Vec<u32> = columns.skip(1).take(2).filter_map(|side| side.parse().ok()).collect();
                // The manifest lists the sides as stored.
                let (a, b) = ([size.width, size.height], [size.height, size.width]);
                assert!(
                    listed.is_empty() || listed == a || listed == b,
                    "{path}: {size:?}, listed {listed:?}"
                );
                read += 1;
            }
            (Err(poison), Some(reason)) => assert_eq!(poison.reason, reason, "{path}: {poison}"),
            (Ok(_), Some(reason)) => panic!("{path} was read, {reason:?} expected"),
            (Err(poison), None) => panic!("{path}: {poison}"),
        }
    }
    let refused = UNUSUAL_FILES.iter().filter(|(_, reason)| reason.is_some()).count();
    assert_eq!(read + refused, manifest.lines().count() - 1);
}

#[test]
fn cmyk_is_not_inverted() {
    let Some(photos) = shared_photo_dir() else { return };
    let file = std::fs::read(photos.join("files/pillow/Tests/images/pil_sample_cmyk.jpg")).unwrap();
    let (_, pixels) = thumbnail(&file, 256).unwrap();
    // Red letters on black, and a red square in the top left corner.
    let [red, green, blue] = pixels[..3] else { unreachable!() };
    assert!(red > 200 && green < 80 && blue < 80, "{red} {green} {blue}");
    assert!(pixels[pixels.len() - 3..].iter().all(|value| *value < 40));
    // Skydivers in front of a blue sky.
    let file = std::fs::read(photos.join("files/zune/test-images/jpeg/cymk.jpg")).unwrap();
    let (_, pixels) = thumbnail(&file, 256).unwrap();
    let [red, green, blue] = pixels[..3] else { unreachable!() };
    assert!(blue > red && blue > green && blue > 80, "{red} {green} {blue}");
}
