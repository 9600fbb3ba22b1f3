//! EXIF orientations 1 to 8: the same image, the same hits.

use image::{RgbImage, imageops};
use photofinish_tests::harness::test_photo::{Exif, TestPhoto, decode_jpeg};
use photofinish_tests::harness::{Partner, Service, ServiceOptions, expect_string, skip_or_fail, test_data};
use serde_json::Value;

#[test]
fn a_photo_in_any_orientation_is_the_same_image_with_the_same_hits() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Turned");
    let upright = TestPhoto::new(1200, 800).with_face(1, [200, 150, 120]).with_bib("1204", [750, 450]);
    let ids: Vec<String> = (1..=8)
        .map(|o| {
            partner.upload_photo(
                &album,
                &format!("{o}.jpg"),
                &upright.to_jpeg_with_exif(Exif::with_orientation(o)),
            )
        })
        .collect();
    partner.wait_until_idle(&album);
    let by_face = partner.search_by_selfie(&album, &TestPhoto::selfie(1).to_jpeg());
    let by_text = partner.search_by_bib(&album, "1204");
    for hits in [&by_face, &by_text] {
        assert_eq!(hits.len(), 8, "every orientation is found: {hits:?}");
        for hit in hits {
            assert!(
                box_distance(hit, &hits[0]) < 0.01,
                "the box moves with the orientation: {hit} and {}",
                hits[0]
            );
        }
    }
    for (orientation, id) in (1..=8).zip(&ids) {
        let photo = partner.get_photo(&album, id);
        assert_eq!(
            (&photo["width"], &photo["height"]),
            (&1200.into(), &800.into()),
            "orientation {orientation}"
        );
        for field in ["url", "thumbnailUrl"] {
            let shown = download_image(&partner, &photo, field);
            let difference = difference(&shown, upright.pixels());
            assert!(difference < 6.0, "orientation {orientation}, {field}: {difference} grey levels away");
        }
    }
}

#[test]
fn a_selfie_in_any_orientation_finds_the_same_photos() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Turned selfies");
    let photo = partner.upload_photo(
        &album,
        "a.jpg",
        &TestPhoto::new(600, 400).with_face(1, [200, 100, 110]).to_jpeg(),
    );
    partner.wait_until_idle(&album);
    for orientation in 1..=8 {
        let selfie = TestPhoto::selfie(1).to_jpeg_with_exif(Exif::with_orientation(orientation));
        let hits = partner.search_by_selfie(&album, &selfie);
        assert_eq!(hits.len(), 1, "orientation {orientation}");
        assert_eq!(hits[0]["id"], photo);
    }
}

#[test]
fn a_real_scene_in_every_orientation_has_the_same_faces() {
    const TEST: &str = "a_real_scene_in_every_orientation_has_the_same_faces";
    let Some(photos) = test_data::shared_photos_dir(TEST) else {
        return;
    };
    let options = match ServiceOptions::with_real_models() {
        Ok(options) => options,
        Err(why) => return skip_or_fail(TEST, &why),
    };
    let service = Service::start(options);
    let partner = service.partner();
    let album = partner.create_album("Orientations");
    let ids: Vec<String> = (1..=8)
        .map(|o| {
            let file = photos.join(format!("files/orient/Portrait_{o}.jpg"));
            partner.upload_photo(&album, &format!("{o}.jpg"), &std::fs::read(file).expect("a photo"))
        })
        .collect();
    partner.wait_until_idle(&album);
    let first = partner.get_photo(&album, &ids[0]);
    let upright = download_image(&partner, &first, "thumbnailUrl");
    let faces = |photo: &Value| photo["faces"].as_array().map_or(0, Vec::len);
    for id in &ids {
        let photo = partner.get_photo(&album, id);
        assert_eq!((&photo["width"], &photo["height"]), (&first["width"], &first["height"]), "{photo}");
        assert_eq!(faces(&photo), faces(&first), "{photo}");
        let difference = difference(&download_image(&partner, &photo, "thumbnailUrl"), &upright);
        assert!(difference < 8.0, "{}: {difference} grey levels away from the first", photo["filename"]);
    }
}

fn download_image(partner: &Partner, photo: &Value, field: &str) -> RgbImage {
    decode_jpeg(&partner.get(&expect_string(&photo[field])).body)
}

/// Mean absolute difference in grey levels, of both images at 150 x 100 pixels.
fn difference(one: &RgbImage, other: &RgbImage) -> f64 {
    let small = |image: &RgbImage| imageops::resize(image, 150, 100, imageops::FilterType::Triangle);
    let (one, other) = (small(one), small(other));
    let sum: u64 = one.as_raw().iter().zip(other.as_raw()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / one.as_raw().len() as f64
}

/// The largest difference between the sides of two boxes.
fn box_distance(one: &Value, other: &Value) -> f64 {
    let side = |hit: &Value, name: &str| hit["boundingBox"][name].as_f64().unwrap_or(f64::NAN);
    ["top", "left", "width", "height"]
        .iter()
        .map(|name| (side(one, name) - side(other, name)).abs())
        .fold(0.0, |worst, d| if d.is_nan() { f64::INFINITY } else { worst.max(d) })
}
