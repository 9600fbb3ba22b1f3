//! Photos of phones: HEIC, from the upload to the search.

use std::process::Command;

use photofinish_servers::skip_or_fail;
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, UploadFile};
use serde_json::json;

/// Encodes a photo as HEIC with Debian's `heif-enc`; `None` where it is not installed and need not be.
fn to_heic(photo: &TestPhoto) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let (jpeg, heic) = (folder.path().join("photo.jpg"), folder.path().join("photo.heic"));
    std::fs::write(&jpeg, photo.to_jpeg()).expect("writes a photo");
    let encoded = Command::new("heif-enc").args(["-q", "90", "-o"]).args([&heic, &jpeg]).output();
    let Ok(encoded) = encoded else {
        skip_or_fail("HEIC", "there is no heif-enc (Debian's package libheif-examples)");
        return None;
    };
    assert!(encoded.status.success(), "{}", String::from_utf8_lossy(&encoded.stderr));
    Some(std::fs::read(&heic).expect("reads what was encoded"))
}

#[test]
fn a_heic_is_read_and_found_like_a_jpeg() {
    let photo = TestPhoto::new(1600, 1200).with_face(3, [500, 300, 200]).with_bib("2718", [520, 640]);
    let Some(bytes) = to_heic(&photo) else { return };
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Phones");
    let file = UploadFile { name: "IMG_0001.HEIC", content_type: "image/heic", bytes: &bytes };
    let id = partner.upload_file(&album, file);
    // A phone's file under another name and type is read as what it is.
    let file = UploadFile { name: "renamed.jpg", content_type: "image/jpeg", bytes: &bytes };
    let renamed = partner.upload_file(&album, file);
    partner.wait_until_idle(&album);
    for id in [&id, &renamed] {
        let read = partner.get_photo(&album, id);
        assert_eq!(
            (&read["state"], &read["width"], &read["height"]),
            (&json!("ready"), &json!(1600), &json!(1200))
        );
        assert_eq!(read["texts"][0]["text"], "2718", "{read}");
        // Every browser shows the preview.
        let preview = partner.get(read["url"].as_str().expect("a preview"));
        assert_eq!(preview.header("content-type"), Some("image/jpeg"));
    }
    assert_eq!(partner.search_by_bib_exact(&album, "2718").len(), 2);
}

#[test]
fn heic_is_refused_where_it_is_switched_off() {
    let photo = TestPhoto::new(800, 600);
    let Some(bytes) = to_heic(&photo) else { return };
    let options = ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_HEIC", "off");
    let service = Service::start(options);
    let partner = service.partner();
    let album = partner.create_album("No phones");
    let request = json!({ "albumId": album, "filename": "a.heic", "contentType": "image/heic" });
    let refused = partner.call("/photos/photo/signed", &request).expect_defined_error(415);
    assert_eq!(refused["accepted"], json!(["image/jpeg", "image/png", "image/webp"]), "{refused}");
    let file = UploadFile { name: "a.jpg", content_type: "image/jpeg", bytes: &bytes };
    let id = partner.upload_file(&album, file);
    partner.wait_until_idle(&album);
    assert_eq!(partner.get_photo(&album, &id)["failure"], "UNSUPPORTED_FORMAT");
}
