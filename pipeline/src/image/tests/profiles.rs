//! Tests of colour profiles: that of a photo in colours is found in each format.

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::webp::WebPEncoder;
use image::{ImageDecoder, ImageEncoder};

use super::*;
use crate::image::color_profile::{ColorProfile, attach_profile};
use crate::testing::rgb_profile;

/// A file with a profile.
fn encode_with(profile: &[u8], picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut file: Vec<u8> = Vec::new();
    match format {
        ImageFormat::Png => write(PngEncoder::new(&mut file), profile, picture),
        ImageFormat::WebP => write(WebPEncoder::new_lossless(&mut file), profile, picture),
        _ => write(JpegEncoder::new(&mut file), profile, picture),
    }
    file
}

fn write(mut encoder: impl ImageEncoder, profile: &[u8], picture: &DynamicImage) {
    encoder.set_icc_profile(profile.to_vec()).unwrap();
    let (width, height) = (picture.width(), picture.height());
    encoder.write_image(picture.as_bytes(), width, height, picture.color().into()).unwrap();
}

fn find_profile(file: &[u8]) -> Option<ColorProfile> {
    let mut decoder = Decoder::new(LIMITS, BufferPool::default()).unwrap();
    decoder.plan(file, |_| 32).unwrap().color_profile
}

#[test]
fn the_profile_of_a_photo_in_colours_is_found_in_each_format() {
    let rgb = DynamicImage::ImageRgb8(scene(32, 24));
    let profile = rgb_profile(548);
    let expected = ColorProfile::from_bytes(&profile);
    assert!(expected.is_some());
    for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP] {
        assert_eq!(find_profile(&encode_with(&profile, &rgb, format)), expected, "{format:?}");
        assert_eq!(find_profile(&encode(&rgb, format)), None, "{format:?}");
        let grey_profile = [&profile[..16], b"GRAY", &profile[20..]].concat();
        assert_eq!(find_profile(&encode_with(&grey_profile, &rgb, format)), None, "{format:?}");
    }
    for picture in [DynamicImage::ImageRgba8(rgb.to_rgba8()), DynamicImage::ImageRgb16(rgb.to_rgb16())] {
        assert_eq!(find_profile(&encode_with(&profile, &picture, ImageFormat::Png)), expected);
    }
    let grey = DynamicImage::ImageLuma8(rgb.to_luma8());
    for format in [ImageFormat::Jpeg, ImageFormat::Png] {
        assert_eq!(find_profile(&encode_with(&profile, &grey, format)), None, "{format:?}");
    }
    // What is decoded from a copy: an unknown revision.
    let mut odd = encode_with(&profile, &rgb, ImageFormat::Jpeg);
    assert_eq!(&odd[6..10], b"JFIF");
    odd[11] = 2;
    assert_eq!(find_profile(&odd), expected);
}

#[test]
fn another_reader_finds_the_profile_that_was_put_into_a_jpeg() {
    for length in [132, 3144, 64 << 10] {
        let profile = rgb_profile(length);
        let file = attach_profile(jpeg(&scene(32, 24), |_| {}), ColorProfile::from_bytes(&profile).as_ref());
        let mut reader = image::codecs::jpeg::JpegDecoder::new(std::io::Cursor::new(&file)).unwrap();
        assert_eq!(reader.icc_profile().unwrap(), Some(profile));
        assert_eq!(decode(&file, 32).unwrap().size(), Size { width: 32, height: 24 });
    }
}

/// A file with a colour profile in one segment that is numbered as the second of one.
fn with_wrong_number(file: &[u8], profile: &[u8]) -> Vec<u8> {
    let length = (2 + 12 + 2 + profile.len()) as u16;
    let segment = [&[0xff, 0xe2][..], &length.to_be_bytes(), b"ICC_PROFILE\0", &[2, 1], profile].concat();
    let mut copy = file.to_vec();
    copy.splice(20..20, segment);
    copy
}

#[test]
fn a_profile_that_is_numbered_wrongly_is_left_out_and_hides_no_damage() {
    let scene = scene(640, 480);
    let files = [
        ("baseline", jpeg(&scene, |_| {})),
        ("progressive", jpeg(&scene, |compressor| compressor.set_progressive(true).unwrap())),
    ];
    let mut decoder = Decoder::new(LIMITS, BufferPool::default()).unwrap();
    for (name, usual) in files {
        let file = with_wrong_number(&usual, &rgb_profile(548));
        let plan = decoder.plan(&file, |_| 320).unwrap();
        assert_eq!(plan.decoded_size, Size { width: 320, height: 240 }, "{name}, at half size");
        assert_eq!(plan.color_profile, None, "{name}");
        // A copy of the file may be made for libjpeg-turbo.
        let usual_plan = decoder.plan(&usual, |_| 320).unwrap();
        assert_eq!(plan.peak_bytes, usual_plan.peak_bytes + file.len(), "{name}");
        let pixels = decoder.decode(&file, &plan).unwrap().frame().pixels().to_vec();
        let expected = decoder.decode(&usual, &usual_plan).unwrap().frame().pixels().to_vec();
        assert!(pixels == expected, "{name}: other pixels");
        // Some of the data is missing, and the file has its end marker.
        let broken = [&file[..file.len() / 2], &[0xff, 0xd9]].concat();
        for damaged in [&broken[..], &file[..file.len() - 2], &file[..file.len() / 4 * 3]] {
            let failure = decode_failure(damaged);
            assert_eq!(failure, FailureReason::CorruptImage, "{name}, {} bytes", damaged.len());
        }
    }
}
