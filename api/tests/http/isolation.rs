//! Objects of another tenant look exactly as if they did not exist.

use photofinish_store::model::key::{KeyMode, Scope};
use serde_json::{Value, json};

use crate::support::client::document;
use crate::support::{Partner, TestService, bib, face, unknown_id};

/// Returns a valid request of every operation on an album.
fn operation_bodies(album: &Value, photo: &Value, image: &Value) -> Vec<(&'static str, Value)> {
    let on_photo = json!({ "albumId": album, "photoId": photo });
    let on_album = json!({ "albumId": album });
    let file = json!({ "filename": "a.jpg", "contentType": "image/jpeg" });
    let mut bodies = vec![
        ("/albums/update", json!({ "albumId": album, "title": "Mine now" })),
        (
            "/photos/photo/signed",
            json!({ "albumId": album, "filename": "a.jpg", "contentType": "image/jpeg" }),
        ),
        ("/photos/photo/signed/batch", json!({ "albumId": album, "entries": [file] })),
        ("/photos/photo/success/batch", json!({ "albumId": album, "photoIds": [photo] })),
        ("/photos/search/face/list", json!({ "albumId": album, "imageId": image })),
        ("/photos/search/text/list", json!({ "albumId": album, "text": "1207" })),
        ("/albums/startlist/import", json!({ "albumId": album, "entries": [{ "bib": "7" }] })),
        ("/albums/startlist/check", json!({ "albumId": album, "csv": "bib\n7" })),
        ("/faces/erase", json!({ "albumId": album, "imageId": image, "dryRun": true })),
        ("/albums/gallery/update", json!({ "albumId": album, "enabled": true })),
        ("/albums/gallery/reports/erase", json!({ "albumId": album, "reportId": photo, "dryRun": true })),
        ("/albums/gallery/reports/dismiss", json!({ "albumId": album, "reportId": photo })),
        ("/albums/watermark/set", json!({ "albumId": album, "watermark": {} })),
        ("/photos/download/create", json!({ "albumId": album, "bib": "1207" })),
        ("/people/erase", json!({ "albumId": album, "bib": "1207", "dryRun": true })),
    ];
    for path in ["/photos/photo/success", "/photos/photo/get", "/photos/photo/delete", "/photos/photo/retry"]
    {
        bodies.push((path, on_photo.clone()));
    }
    let on_albums = [
        "/albums/get",
        "/albums/gallery/get",
        "/albums/gallery/reports",
        "/albums/watermark/get",
        "/albums/watermark/signed",
        "/albums/cameras/list",
        "/albums/progress",
        "/albums/startlist/get",
        "/albums/startlist/entries",
        "/albums/startlist/delete",
        "/photos/photo/list",
        "/photos/search/face/signed",
        "/albums/reprocess",
        "/albums/delete",
    ];
    bodies.extend(on_albums.map(|path| (path, on_album.clone())));
    bodies
}

#[test]
fn another_tenants_album_is_as_if_it_did_not_exist() {
    let service = TestService::start();
    let owner = service.partner();
    let (album, album_id) = owner.create_album();
    let photo = json!(service.ready_photo(&owner, album_id, vec![face(0.9)], vec![bib("1207")]));
    let image = owner.upload_selfie(&album, b"face");
    let strangers = [
        service.partner_with("River Timing", KeyMode::Live, &Scope::ALL),
        service.partner_with("Lake Timing", KeyMode::Test, &Scope::ALL),
    ];
    let covered: Vec<&str> = operation_bodies(&album, &photo, &image).iter().map(|(path, _)| *path).collect();
    for path in document()["paths"].as_object().unwrap().keys() {
        // Webhooks, credits and receipts have tests of their own.
        let has_album = !["/albums/create", "/albums/list", "/events/list"].contains(&path.as_str())
            && !["/webhooks/", "/credits/", "/usage/", "/erasures/"]
                .iter()
                .any(|prefix| path.starts_with(prefix));
        assert_eq!(covered.contains(&path.as_str()), has_album, "{path}");
    }
    for stranger in &strangers {
        for (path, body) in operation_bodies(&album, &photo, &image) {
            let refused = stranger.call(path, &body).defined_error(404, "NOT_FOUND");
            let mut of_unknown_album = body.clone();
            of_unknown_album["albumId"] = unknown_id();
            assert_eq!(refused, stranger.call(path, &of_unknown_album).json(), "{path}");
        }
        assert_eq!(stranger.call("/albums/list", &json!({})).ok()["total"], json!(0));
    }
    let album = owner.call("/albums/get", &json!({ "albumId": album })).ok();
    assert_eq!(album["title"], json!("Lake Marathon"));
}

#[test]
fn an_object_of_another_album_is_unknown_in_this_one() {
    let service = TestService::start();
    let partner = service.partner();
    let (mine, album_id) = partner.create_album();
    let (other, _) = partner.create_album();
    let photo = json!(service.ready_photo(&partner, album_id, vec![], vec![]));
    let image = partner.upload_selfie(&mine, b"face");
    let on_photo = json!({ "albumId": other, "photoId": photo });
    for path in ["/photos/photo/success", "/photos/photo/get", "/photos/photo/delete", "/photos/photo/retry"]
    {
        partner.call(path, &on_photo).defined_error(404, "NOT_FOUND");
    }
    let search = json!({ "albumId": other, "imageId": image });
    partner.call("/photos/search/face/list", &search).defined_error(404, "NOT_FOUND");
    let batch = json!({ "albumId": other, "photoIds": [photo] });
    let results = partner.call("/photos/photo/success/batch", &batch).ok();
    assert_eq!(results["results"][0]["error"]["code"], json!("NOT_FOUND"));
    assert_still_there(&partner, &mine, &photo);
}

fn assert_still_there(partner: &Partner, album: &Value, photo: &Value) {
    partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok();
}
