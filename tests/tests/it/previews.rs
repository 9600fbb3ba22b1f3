//! Previews and thumbnails: sizes, uprightness, and nothing of the camera in them.

use photofinish_tests::harness::pictures::{Exif, Picture, decoded};
use photofinish_tests::harness::{Group, Options, Shared, text};
use serde_json::json;

static GROUP: Group = Group::new();

fn service() -> Shared {
    GROUP.service(Options::fakes)
}

#[test]
fn previews_have_the_albums_sizes_and_no_exif() {
    let service = service();
    let partner = service.partner();
    let album = partner.album_of(&json!({
        "title": "Sizes", "config": { "preview": { "maxDimension": 640 }, "thumbnail": { "maxDimension": 100 } },
    }));
    let turned = Picture::new(1200, 800).bib("1204", [100, 100]).jpeg_with(Exif::turned(6));
    let photo = partner.upload(&album, "turned.jpg", &turned);
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    assert_eq!((&photo["width"], &photo["height"]), (&json!(1200), &json!(800)), "upright");
    for (field, size) in [("url", (640, 427)), ("thumbnailUrl", (100, 67))] {
        let answer = partner.get(&text(&photo[field]));
        assert_eq!(answer.header("content-type"), Some("image/jpeg"));
        let picture = decoded(&answer.bytes);
        assert_eq!(picture.dimensions(), size, "{field}");
        assert!(!answer.bytes.windows(4).any(|four| four == b"Exif"), "{field} carries EXIF");
    }
}

#[test]
fn a_small_photo_is_never_enlarged() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Small");
    let photo = partner.upload(&album, "small.jpg", &Picture::new(300, 200).jpeg());
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    for field in ["url", "thumbnailUrl"] {
        let picture = decoded(&partner.get(&text(&photo[field])).bytes);
        assert_eq!(picture.dimensions(), (300, 200), "{field}");
    }
}

#[test]
fn a_large_photo_has_a_preview_of_2048_and_a_thumbnail_of_512() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Large");
    let photo =
        partner.upload(&album, "large.jpg", &Picture::new(2400, 3600).bib("1204", [600, 1800]).jpeg());
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    assert_eq!((&photo["width"], &photo["height"]), (&json!(2400), &json!(3600)), "the photo's own size");
    for (field, size) in [("url", (1365, 2048)), ("thumbnailUrl", (341, 512))] {
        let picture = decoded(&partner.get(&text(&photo[field])).bytes);
        assert_eq!(picture.dimensions(), size, "{field}");
    }
    assert_eq!(partner.find_text(&album, "1204").len(), 1);
}
