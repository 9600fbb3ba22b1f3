//! Colour profiles: the pictures that are made from a photo have the photo's.

use std::io::Cursor;

use image::codecs::jpeg::JpegDecoder;
use image::{ImageDecoder, ImageFormat, Rgba, RgbaImage};
use photofinish_models::fakes::FakeModels;
use photofinish_pipeline::marking::{PreviewMarker, WatermarkPicture};
use photofinish_store::model::object_key::ObjectRole;
use photofinish_store::model::watermark::{Watermark, WatermarkChange, WatermarkPlacement};

use crate::support::{PipelineFixture, album_config, encode_jpeg, gradient_picture};

/// Returns what has the header of a colour profile of RGB.
fn rgb_profile(length: usize) -> Vec<u8> {
    let mut profile = vec![7; length];
    profile[..4].copy_from_slice(&(length as u32).to_be_bytes());
    profile[16..20].copy_from_slice(b"RGB ");
    profile[36..40].copy_from_slice(b"acsp");
    profile
}

/// Returns the JPEG file with a profile in parts of 400 bytes, inserted after its first marker, which is two bytes long.
fn with_profile(file: &[u8], profile: &[u8]) -> Vec<u8> {
    let parts = profile.chunks(400);
    let count = parts.len() as u8;
    let mut with_profile = file[..2].to_vec();
    for (number, part) in (1_u8..).zip(parts) {
        with_profile.extend([0xff, 0xe2]);
        with_profile.extend((part.len() as u16 + 16).to_be_bytes());
        with_profile.extend(b"ICC_PROFILE\0");
        with_profile.extend([number, count]);
        with_profile.extend(part);
    }
    with_profile.extend(&file[2..]);
    with_profile
}

/// The profile that another reader finds in a JPEG file.
fn profile_in(file: &[u8]) -> Option<Vec<u8>> {
    JpegDecoder::new(Cursor::new(file)).unwrap().icc_profile().unwrap()
}

/// A watermark of one colour.
fn watermark_png() -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    RgbaImage::from_pixel(40, 20, Rgba([250, 10, 10, 255])).write_to(&mut file, ImageFormat::Png).unwrap();
    file.into_inner()
}

#[test]
fn every_picture_made_from_a_photo_has_its_colour_profile() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let change =
        WatermarkChange { picture: Some(watermark_png().into()), placement: WatermarkPlacement::default() };
    fixture.runtime.block_on(fixture.store.watermarks.set(album, change)).unwrap();
    let file = encode_jpeg(&gradient_picture(900, 600));
    let [camera, large] = [rgb_profile(548), rgb_profile(6000)];
    let files = [with_profile(&file, &camera), with_profile(&file, &large), file];
    let photos = fixture.upload_photos(album, &files);
    fixture.process_album(album, FakeModels::default());
    // A thumbnail does without a large one.
    let expected = [(Some(&camera), Some(&camera)), (Some(&large), None), (None, None)];
    for (photo, (in_preview, in_thumbnail)) in photos.iter().zip(expected) {
        let profile_of = |role| profile_in(&fixture.read_object(&fixture.object_key(album, *photo, role)));
        assert_eq!(profile_of(ObjectRole::Preview).as_ref(), in_preview);
        assert_eq!(profile_of(ObjectRole::Marked).as_ref(), in_preview);
        assert_eq!(profile_of(ObjectRole::Thumbnail).as_ref(), in_thumbnail);
    }
}

#[test]
fn a_preview_that_is_marked_later_keeps_its_colour_profile() {
    let watermark =
        Watermark { version: 1, picture: watermark_png().into(), placement: WatermarkPlacement::default() };
    let watermark = WatermarkPicture::open(&watermark).unwrap();
    let mut marker = PreviewMarker::new().unwrap();
    let preview = encode_jpeg(&gradient_picture(300, 200));
    let profile = rgb_profile(548);
    let marked = marker.mark(&with_profile(&preview, &profile), &watermark).unwrap();
    assert_eq!(profile_in(&marked), Some(profile));
    assert_eq!(profile_in(&marker.mark(&preview, &watermark).unwrap()), None);
}
