//! Damaged, mislabelled and unusual images: each fails alone, with the right reason, and every accepted format is read.

use photofinish_tests::harness::test_photo::{
    Exif, TestPhoto, decode_jpeg, jpeg_of_four_gigapixels, png_of_four_gigapixels,
};
use photofinish_tests::harness::{
    Partner, ServiceOptions, SharedService, SharedServiceRef, UploadFile, test_data,
};
use serde_json::Value;

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(|| {
        // Whether a build can read HEIC is for its other tests: here it is unsupported in each.
        ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_HEIC", "off")
    })
}

/// A photo with a bib, which shows whether it was read.
fn photo_with_bib() -> TestPhoto {
    TestPhoto::new(800, 600).with_bib("2718", [300, 300])
}

#[track_caller]
fn failure_of(partner: &Partner, album: &str, photo: &str) -> String {
    let photo = partner.get_photo(album, photo);
    assert_eq!(photo["state"], "failed", "{photo}");
    photo["failure"].as_str().unwrap_or_else(|| panic!("no reason: {photo}")).to_owned()
}

#[track_caller]
fn texts_of(photo: &Value) -> Vec<&str> {
    assert_eq!(photo["state"], "ready", "{photo}");
    photo["texts"].as_array().expect("texts").iter().filter_map(|text| text["text"].as_str()).collect()
}

#[test]
fn each_bad_image_fails_only_itself_with_its_reason() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Bad apples");
    let good = photo_with_bib().to_jpeg();
    let truncated_png = photo_with_bib().to_png();
    let bad: Vec<(&str, Vec<u8>, &str)> = vec![
        ("truncated.jpg", good[..good.len() / 3].to_vec(), "CORRUPT_IMAGE"),
        ("head-only.jpg", good[..40].to_vec(), "CORRUPT_IMAGE"),
        ("truncated.png", truncated_png[..truncated_png.len() / 2].to_vec(), "CORRUPT_IMAGE"),
        ("empty.jpg", Vec::new(), "UNSUPPORTED_FORMAT"),
        ("notes.jpg", b"The race starts at nine.\n".repeat(100), "UNSUPPORTED_FORMAT"),
        ("page.jpg", b"<!doctype html><title>504</title>".to_vec(), "UNSUPPORTED_FORMAT"),
        (
            "film.jpg",
            b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff;".to_vec(),
            "UNSUPPORTED_FORMAT",
        ),
        ("giant.png", png_of_four_gigapixels(), "TOO_MANY_PIXELS"),
        ("giant.jpg", jpeg_of_four_gigapixels(), "TOO_MANY_PIXELS"),
    ];
    let mut expected = Vec::new();
    let mut mates = Vec::new();
    for (number, (name, bytes, reason)) in bad.iter().enumerate() {
        expected.push((partner.upload_photo(&album, name, bytes), *name, *reason));
        mates.push(partner.upload_photo(&album, &format!("mate-{number}.jpg"), &good));
    }
    let progress = partner.wait_until_idle(&album);
    assert_eq!(progress["failed"], bad.len(), "{progress}");
    assert_eq!(progress["ready"], mates.len(), "{progress}");
    for (photo, name, reason) in expected {
        assert_eq!(failure_of(&partner, &album, &photo), reason, "{name}");
    }
    for mate in mates {
        assert_eq!(texts_of(&partner.get_photo(&album, &mate)), ["2718"]);
    }
}

#[test]
fn every_accepted_format_is_read_whatever_its_name_and_declared_type() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Formats");
    let picture = photo_with_bib();
    let files = [
        ("plain.JPG", "image/jpeg", picture.to_jpeg()),
        ("progressive.jpg", "image/jpeg", picture.to_progressive_jpeg()),
        ("cmyk.jpg", "image/jpeg", picture.to_cmyk_jpeg()),
        ("plain.png", "image/png", picture.to_png()),
        ("deep.png", "image/png", picture.to_png16()),
        ("alpha.png", "image/png", picture.to_png_with_alpha()),
        ("plain.webp", "image/webp", picture.to_webp()),
        ("lies.png", "image/png", picture.to_jpeg()),
        ("lies.jpg", "image/jpeg", picture.to_png()),
        ("lies.webp", "image/webp", picture.to_jpeg()),
        ("no extension", "image/jpeg", picture.to_webp()),
    ];
    let file =
        |(name, content_type, bytes)| partner.upload_file(&album, UploadFile { name, content_type, bytes });
    let ids: Vec<String> = files.iter().map(|(name, kind, bytes)| file((*name, *kind, bytes))).collect();
    partner.wait_until_idle(&album);
    for (id, (name, ..)) in ids.iter().zip(&files) {
        let photo = partner.get_photo(&album, id);
        assert_eq!(texts_of(&photo), ["2718"], "{name}");
        assert_eq!((&photo["width"], &photo["height"]), (&800.into(), &600.into()), "{name}");
        assert_eq!(photo["filename"], *name);
        let preview = partner.get(photo["url"].as_str().expect("a preview"));
        assert_eq!(preview.header("content-type"), Some("image/jpeg"), "{name}");
        let difference = mean_difference(&preview.body, &picture);
        assert!(difference < 6.0, "{name}: the preview is {difference} grey levels away from the picture");
    }
}

#[test]
fn a_grey_image_is_read() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Grey");
    let photo = partner.upload_photo(&album, "grey.jpg", &photo_with_bib().to_grey_jpeg());
    partner.wait_until_idle(&album);
    let photo = partner.get_photo(&album, &photo);
    assert_eq!(photo["state"], "ready", "{photo}");
    assert_eq!(photo["width"], 800);
}

#[test]
fn damaged_exif_does_not_fail_the_photo() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Notes");
    let good = photo_with_bib().to_jpeg();
    let mut files: Vec<Vec<u8>> =
        [0, 9, 255].map(|o| photo_with_bib().to_jpeg_with_exif(Exif::with_orientation(o))).to_vec();
    let odd = Exif { taken_at: "0000:99:99 77:77:77", offset: "+99:99", ..Exif::with_orientation(1) };
    files.push(photo_with_bib().to_jpeg_with_exif(odd));
    for cut in [12, 20, 40, 80] {
        // The segment keeps its length, and contains nonsense from `cut` on.
        let mut file = photo_with_bib().to_jpeg_with_exif(Exif::with_orientation(1));
        let end = 4 + usize::from(u16::from_be_bytes([file[4], file[5]]));
        file[cut..end].fill(0xee);
        files.push(file);
    }
    files.push([&good[..], b"something after the end of the image"].concat());
    let upload =
        |(number, file): (usize, &Vec<u8>)| partner.upload_photo(&album, &format!("{number}.jpg"), file);
    let ids: Vec<String> = files.iter().enumerate().map(upload).collect();
    partner.wait_until_idle(&album);
    for id in &ids {
        assert_eq!(texts_of(&partner.get_photo(&album, id)), ["2718"]);
    }
    assert_eq!(partner.get_photo(&album, &ids[3])["takenAt"], Value::Null);
}

#[test]
fn a_file_name_may_contain_any_text() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Names");
    let names =
        ["../../etc/passwd", "Läufer №7 🏃.jpg", "a/b\\c.jpg", "'; drop table photos; --", " ", "x\".jpg"];
    for name in names {
        let photo = partner.upload_photo(&album, name, &TestPhoto::new(64, 64).to_jpeg());
        assert_eq!(partner.get_photo(&album, &photo)["filename"], name);
    }
    assert_eq!(partner.wait_until_idle(&album)["ready"], names.len());
}

#[test]
fn a_photo_that_panics_a_stage_fails_alone() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Poison");
    let poison = partner.upload_photo(
        &album,
        "poison.jpg",
        &TestPhoto::new(800, 600).with_bib("PANIC", [300, 300]).to_jpeg(),
    );
    let mates: Vec<String> = (0..8)
        .map(|n| partner.upload_photo(&album, &format!("{n}.jpg"), &photo_with_bib().to_jpeg()))
        .collect();
    let progress = partner.wait_until_idle(&album);
    assert_eq!((&progress["failed"], &progress["ready"]), (&1.into(), &mates.len().into()), "{progress}");
    assert_eq!(failure_of(&partner, &album, &poison), "PROCESSING_CRASHED");
    let again = partner.upload_photo(&album, "after.jpg", &photo_with_bib().to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(texts_of(&partner.get_photo(&album, &again)), ["2718"], "the service continues");
}

#[test]
fn photos_after_damaged_ones_are_read() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Spoiled");
    // Enough for every thread to meet some.
    for marker in 0..64_u8 {
        let file = [&b"\xff\xd8\xff"[..], &[4 * marker], b" and so on"].concat();
        partner.upload_photo(&album, &format!("bad-{marker}.jpg"), &file);
    }
    partner.wait_until_idle(&album);
    let sound: Vec<String> = (0..16)
        .map(|n| partner.upload_photo(&album, &format!("{n}.jpg"), &photo_with_bib().to_jpeg()))
        .collect();
    partner.wait_until_idle(&album);
    for photo in sound {
        assert_eq!(texts_of(&partner.get_photo(&album, &photo)), ["2718"]);
    }
}

#[test]
fn real_odd_files_end_ready_or_failed_as_they_should() {
    let Some(photos) = test_data::shared_photos_dir("real_odd_files_end_ready_or_failed_as_they_should")
    else {
        return;
    };
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Odd");
    let expected = |path: &str| match path {
        _ if path.contains("truncated_jpeg") || path.contains("truncated_image") => Some("CORRUPT_IMAGE"),
        _ if path.contains("broken_data_stream") => Some("CORRUPT_IMAGE"),
        _ if [".gif", ".avif", ".heic"].iter().any(|end| path.ends_with(end)) => Some("UNSUPPORTED_FORMAT"),
        _ => None,
    };
    let odd: Vec<String> = test_data::read_label_rows(&photos, "MANIFEST.csv")
        .iter()
        .filter(|row| row[1] == "odd")
        .map(|row| row[0].clone())
        .collect();
    assert!(odd.len() > 10, "{odd:?}");
    let ids: Vec<String> = odd
        .iter()
        .map(|path| {
            let bytes = std::fs::read(photos.join("files").join(path)).expect("a photo of the manifest");
            partner.upload_photo(&album, path, &bytes)
        })
        .collect();
    partner.wait_until_idle(&album);
    for (id, path) in ids.iter().zip(&odd) {
        let photo = partner.get_photo(&album, id);
        match expected(path) {
            Some(reason) => assert_eq!(failure_of(&partner, &album, id), reason, "{path}"),
            None => assert_eq!(photo["state"], "ready", "{path}: {photo}"),
        }
    }
}

/// Mean absolute difference between a preview and the photo that it should show, in grey levels.
fn mean_difference(preview: &[u8], picture: &TestPhoto) -> f64 {
    let shown = decode_jpeg(preview);
    assert_eq!(shown.dimensions(), picture.pixels().dimensions());
    let sum: u64 = shown
        .as_raw()
        .iter()
        .zip(picture.pixels().as_raw())
        .map(|(shown, drawn)| u64::from(shown.abs_diff(*drawn)))
        .sum();
    sum as f64 / shown.as_raw().len() as f64
}
