//! EXIF orientations 1 to 8: the same image, the same hits.

use image::{RgbImage, imageops};
use photofinish_tests::harness::test_photo::{Exif, TestPhoto, decode_jpeg};
use photofinish_tests::harness::{Partner, Service, ServiceOptions, expect_string, skip_or_fail, test_data};
use serde_json::Value;

/// How far the boxes of two orientations may be apart: they have other blocks of a JPEG, and are detected again.
const MAX_DISTANCE: f64 = 0.01;

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
                box_distance(hit, &hits[0]) < MAX_DISTANCE,
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

/// What is written in the scene that a camera took in each orientation. Nobody is in it.
const WORDS: [&str; 4] = ["LEFT", "RIGHT", "TOP", "BOTTOM"];
/// Three runners, whom the detector finds in each orientation, far above the score of a face.
const RUNNERS: &str = "files/rbnr/datasets/set1_org/set1_02.JPG";

#[test]
fn real_photos_in_every_orientation_have_the_same_words_and_faces() {
    const TEST: &str = "real_photos_in_every_orientation_have_the_same_words_and_faces";
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
    let read = |file: &str| std::fs::read(photos.join(file)).expect("a photo");
    let runners = TestPhoto::from_pixels(decode_jpeg(&read(RUNNERS)));
    let turned = |o: u8| runners.to_jpeg_with_exif(Exif::with_orientation(o));
    let upload = |name: String, jpeg: Vec<u8>| partner.upload_photo(&album, &name, &jpeg);
    let scenes: Vec<String> = (1..=8)
        .map(|o| upload(format!("scene {o}.jpg"), read(&format!("files/orient/Portrait_{o}.jpg"))))
        .collect();
    let races: Vec<String> = (1..=8).map(|o| upload(format!("race {o}.jpg"), turned(o))).collect();
    partner.wait_until_idle(&album);
    let [scenes, races] = [scenes, races].map(|ids| compare_pictures(&partner, &album, &ids));
    for scene in &scenes {
        let words = word_boxes(scene).into_iter().zip(word_boxes(&scenes[0]));
        for (found, expected) in words {
            assert!(
                box_distance(found, expected) < MAX_DISTANCE,
                "{}: {found}, {expected}",
                scene["filename"]
            );
        }
        let faces = |photo: &Value| photo["faces"].as_array().expect("faces").len();
        assert_eq!(faces(scene), faces(&scenes[0]), "{scene}");
    }
    for race in &races {
        compare_faces(race, &races[0]);
    }
}

/// Asserts that photos look like the first of them. Returns them.
fn compare_pictures(partner: &Partner, album: &str, ids: &[String]) -> Vec<Value> {
    let photos: Vec<Value> = ids.iter().map(|id| partner.get_photo(album, id)).collect();
    let first = &photos[0];
    let upright = download_image(partner, first, "thumbnailUrl");
    for photo in &photos {
        assert_eq!((&photo["width"], &photo["height"]), (&first["width"], &first["height"]), "{photo}");
        let difference = difference(&download_image(partner, photo, "thumbnailUrl"), &upright);
        assert!(difference < 8.0, "{}: {difference} grey levels away from the first", photo["filename"]);
    }
    photos
}

/// Each of [`WORDS`] where it was read.
fn word_boxes(photo: &Value) -> [&Value; 4] {
    let texts = photo["texts"].as_array().expect("texts");
    WORDS.map(|word| {
        let mut found = texts.iter().filter(|text| text["text"] == word);
        found.next().unwrap_or_else(|| panic!("{}: no {word} in {texts:?}", photo["filename"]))
    })
}

/// Asserts that there are faces, each at the place of one of the other photo.
#[track_caller]
fn compare_faces(photo: &Value, other: &Value) {
    let [found, expected] = [photo, other].map(|photo| photo["faces"].as_array().expect("faces"));
    assert!(!expected.is_empty(), "there is a face to compare");
    assert_eq!(found.len(), expected.len(), "{photo} and {other}");
    for face in expected {
        let nearest = found.iter().min_by(|a, b| box_distance(a, face).total_cmp(&box_distance(b, face)));
        let nearest = nearest.expect("a face");
        assert!(box_distance(nearest, face) < MAX_DISTANCE, "{}: {nearest}, {face}", photo["filename"]);
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
