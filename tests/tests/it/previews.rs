//! Previews and thumbnails: sizes, uprightness, and nothing of the camera in them.

use photofinish_tests::harness::test_photo::{Exif, TestPhoto, decode_jpeg};
use photofinish_tests::harness::{ServiceOptions, SharedService, SharedServiceRef, expect_string};
use serde_json::json;

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

#[test]
fn previews_have_the_albums_sizes_and_no_exif() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album_with(&json!({
        "title": "Sizes", "config": { "preview": { "maxDimension": 640 }, "thumbnail": { "maxDimension": 100 } },
    }));
    let turned =
        TestPhoto::new(1200, 800).with_bib("1204", [100, 100]).to_jpeg_with_exif(Exif::with_orientation(6));
    let photo = partner.upload_photo(&album, "turned.jpg", &turned);
    partner.wait_until_idle(&album);
    let photo = partner.get_photo(&album, &photo);
    assert_eq!((&photo["width"], &photo["height"]), (&json!(1200), &json!(800)), "upright");
    for (field, size) in [("url", (640, 427)), ("thumbnailUrl", (100, 67))] {
        let response = partner.get(&expect_string(&photo[field]));
        assert_eq!(response.header("content-type"), Some("image/jpeg"));
        let picture = decode_jpeg(&response.body);
        assert_eq!(picture.dimensions(), size, "{field}");
        assert!(!response.body.windows(4).any(|four| four == b"Exif"), "{field} carries EXIF");
    }
}

#[test]
fn a_small_photo_is_never_enlarged() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Small");
    let photo = partner.upload_photo(&album, "small.jpg", &TestPhoto::new(300, 200).to_jpeg());
    partner.wait_until_idle(&album);
    let photo = partner.get_photo(&album, &photo);
    for field in ["url", "thumbnailUrl"] {
        let picture = decode_jpeg(&partner.get(&expect_string(&photo[field])).body);
        assert_eq!(picture.dimensions(), (300, 200), "{field}");
    }
}

#[test]
fn a_large_photo_has_a_preview_of_2048_and_a_thumbnail_of_512() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Large");
    let photo = partner.upload_photo(
        &album,
        "large.jpg",
        &TestPhoto::new(2400, 3600).with_bib("1204", [600, 1800]).to_jpeg(),
    );
    partner.wait_until_idle(&album);
    let photo = partner.get_photo(&album, &photo);
    assert_eq!((&photo["width"], &photo["height"]), (&json!(2400), &json!(3600)), "the photo's own size");
    for (field, size) in [("url", (1365, 2048)), ("thumbnailUrl", (341, 512))] {
        let picture = decode_jpeg(&partner.get(&expect_string(&photo[field])).body);
        assert_eq!(picture.dimensions(), size, "{field}");
    }
    assert_eq!(partner.search_by_bib(&album, "1204").len(), 1);
}
