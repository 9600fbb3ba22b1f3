//! Watermarks, downloads of many photos, and lists by camera and time.

use std::io::{Cursor, Read};

use bytes::Bytes;
use photofinish_store::model::cost::Spent;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::watermark::MarkedPhoto;
use photofinish_store::traits::PhotoRef;
use serde_json::{Value, json};
use zip::ZipArchive;

use crate::support::guest::{Guest, PUBLIC_URL};
use crate::support::{Partner, TestService, bib, face, unknown_id};

const PNG: &[u8] = b"\x89PNG and more";

/// Uploads the picture of a watermark; returns its `imageId`.
fn upload(partner: &Partner, album: &Value, picture: &[u8]) -> Value {
    let ticket = partner.call("/albums/watermark/signed", &json!({ "albumId": album })).ok();
    assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", picture).status, 200);
    ticket["imageId"].clone()
}

pub(crate) fn set_watermark(partner: &Partner, album: &Value) -> Value {
    let image = upload(partner, album, PNG);
    let body = json!({ "albumId": album, "watermark": { "imageId": image } });
    partner.call("/albums/watermark/set", &body).ok()
}

/// Writes an object of a photo.
fn write(service: &TestService, partner: &Partner, photo: PhotoRef, role: ObjectRole, bytes: &'static [u8]) {
    service.block_on(async {
        let organization = partner.organization_id(service).await;
        let key = ObjectKey::photo(organization, photo.album, photo.photo, role);
        service.store.blobs.write(&key, "image/jpeg", Bytes::from_static(bytes)).await.unwrap();
    });
}

/// Writes the marked picture of a photo, as the task does that marks photos.
fn mark(service: &TestService, partner: &Partner, photo: PhotoRef) {
    write(service, partner, photo, ObjectRole::Marked, b"marked");
    service.block_on(async {
        let watermark = service.store.watermarks.get(photo.album).await.unwrap().unwrap();
        let spent = Spent { bytes_written: b"marked".len() as u64, ..Spent::default() };
        let marked = MarkedPhoto { photo: photo.photo, spent };
        service.store.watermarks.note_marked(photo.album, &[marked], watermark.version).await.unwrap();
    });
}

fn read(partner: &Partner, url: &Value) -> Vec<u8> {
    let response = partner.send(&format!("GET {}", url.as_str().unwrap()), &[], "");
    assert_eq!(response.status, 200);
    response.bytes
}

#[test]
fn a_watermark_is_set_changed_and_removed() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, Vec::new(), Vec::new());
    let get = || partner.call("/albums/watermark/get", &json!({ "albumId": album })).ok();
    assert_eq!(get()["watermark"], Value::Null);
    let placement = json!({ "position": "tile", "opacity": 0.35, "scale": 0.25 });
    let made = set_watermark(&partner, &album);
    assert_eq!(made["watermark"], placement);
    assert_eq!((&made["photosMarked"], &made["photosLeft"]), (&json!(0), &json!(1)));
    assert_eq!(made["sampleUrl"], Value::Null);
    mark(&service, &partner, PhotoRef { album: album_id, photo });
    let marked = get();
    assert_eq!((&marked["photosMarked"], &marked["photosLeft"]), (&json!(1), &json!(0)));
    assert_eq!(read(&partner, &marked["sampleUrl"]), b"marked");
    let change = json!({ "albumId": album, "watermark": { "position": "bottomRight", "opacity": 1 } });
    let changed = partner.call("/albums/watermark/set", &change).ok();
    assert_eq!(changed["watermark"], json!({ "position": "bottomRight", "opacity": 1.0, "scale": 0.25 }));
    assert_eq!(changed["photosLeft"], 1, "it must be drawn again");
    let removed = partner.call("/albums/watermark/set", &json!({ "albumId": album, "watermark": null })).ok();
    assert_eq!((&removed["watermark"], &removed["photosLeft"]), (&Value::Null, &json!(0)));
    let marked = json!({ "albumId": album, "photoIds": [photo], "size": "marked" });
    partner.call("/photos/download/create", &marked).defined_error(404, "NOT_FOUND");
}

#[test]
fn what_is_no_picture_becomes_no_watermark() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let set = |watermark| {
        partner.call("/albums/watermark/set", &json!({ "albumId": album, "watermark": watermark }))
    };
    let missing = |watermark| {
        let error = set(watermark).defined_error(412, "PRECONDITION_FAILED");
        assert_eq!(error["data"]["code"], "UPLOAD_MISSING");
    };
    missing(json!({}));
    missing(json!({ "imageId": unknown_id() }));
    set(json!({ "imageId": "../../etc/passwd" })).defined_error(404, "NOT_FOUND");
    let text = upload(&partner, &album, b"GIF89a");
    let issues = set(json!({ "imageId": text })).issues();
    assert_eq!(issues, [(r#"["watermark","imageId"]"#.to_owned(), "invalid_image".to_owned())]);
    for (field, value) in [("opacity", json!(1.1)), ("scale", json!(0.01)), ("position", json!("everywhere"))]
    {
        assert_eq!(set(json!({ field: value })).issues().len(), 1, "{field}");
    }
    let ticket = partner.call("/albums/watermark/signed", &json!({ "albumId": album })).ok();
    let url = ticket["uploadUrl"].as_str().unwrap();
    partner.put(url, "image/png", &vec![0; (1 << 20) + 1]).defined_error(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(partner.put(url, "image/jpeg", PNG).status, 403);
}

/// Every URL that a visitor gets.
fn urls_in(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.starts_with("http") => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| urls_in(item, found)),
        Value::Object(members) => members.values().for_each(|member| urls_in(member, found)),
        _ => {}
    }
}

#[test]
fn no_url_of_a_gallery_with_a_watermark_answers_the_clean_preview() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photos: Vec<PhotoId> =
        (0..2).map(|_| service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")])).collect();
    for photo in &photos {
        let photo = PhotoRef { album: album_id, photo: *photo };
        write(&service, &partner, photo, ObjectRole::Preview, b"clean");
        write(&service, &partner, photo, ObjectRole::Thumbnail, b"small");
    }
    set_watermark(&partner, &album);
    mark(&service, &partner, PhotoRef { album: album_id, photo: photos[0] });
    let settings = json!({ "albumId": album, "enabled": true, "browse": true, "downloads": "original" });
    let gallery = partner.call("/albums/gallery/update", &settings).ok();
    assert_eq!(gallery["watermark"], true);
    let crawl = || {
        let mut guest = Guest::at(&service, &gallery["url"]);
        let mut urls = Vec::new();
        for (operation, body) in [
            ("get", json!({})),
            ("search/text", json!({ "text": "1207" })),
            ("photos/list", json!({})),
            ("download", json!({ "photoId": photos[0] })),
        ] {
            urls_in(&guest.call(operation, body).ok(), &mut urls);
        }
        let of_unmarked = guest.call("download", json!({ "photoId": photos[1] }));
        let zip = guest.call("download/create", json!({ "text": "1207" })).ok();
        let zip = fetch_zip(&partner, &zip);
        let seen: Vec<Vec<u8>> = urls.iter().map(|url| read(&partner, &json!(url))).collect();
        (of_unmarked, zip, seen)
    };
    let (of_unmarked, zip, seen) = crawl();
    of_unmarked.defined_error(404, "NOT_FOUND");
    assert_eq!(zip.iter().map(|(_, bytes)| bytes.as_slice()).collect::<Vec<_>>(), [b"marked"]);
    assert!(seen.iter().all(|bytes| bytes == b"marked" || bytes == b"small"));
    assert!(seen.iter().any(|bytes| bytes == b"marked"));
    // Thumbnails that are large enough to print are not shown clean.
    let large = json!({ "albumId": album, "config": { "thumbnail": { "maxDimension": 1024 } } });
    partner.call("/albums/update", &large).ok();
    let (_, _, seen) = crawl();
    assert!(!seen.is_empty() && seen.iter().all(|bytes| bytes == b"marked"));
    // Partners get the clean one, unless they ask for the other.
    let hit = || partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "1207" })).ok();
    let previews = |hits: Value| -> Vec<Vec<u8>> {
        let photos = hits["photos"].as_array().unwrap().clone();
        photos.iter().map(|photo| read(&partner, &photo["url"])).collect()
    };
    assert_eq!(previews(hit()), [b"clean", b"clean"]);
    let marked = json!({ "albumId": album, "config": { "preview": { "watermarked": true } } });
    let updated = partner.call("/albums/update", &marked).ok();
    assert_eq!(updated["config"]["preview"], json!({ "maxDimension": 2048, "watermarked": true }));
    assert_eq!(updated["reprocessingNeeded"], false);
    let mut shown = previews(hit());
    shown.sort();
    assert_eq!(shown, [&b"marked"[..], b"small"]);
    let off = json!({ "albumId": album, "watermark": false });
    partner.call("/albums/gallery/update", &off).ok();
    let (_, _, seen) = crawl();
    assert!(seen.contains(&b"clean".to_vec()), "the organizer switched it off");
}

/// Photos keep the thumbnails that they were given until they are read again.
#[test]
fn large_thumbnails_are_not_shown_clean_where_smaller_ones_are_asked_for_later() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let resize = |pixels: u32| {
        let config = json!({ "thumbnail": { "maxDimension": pixels } });
        partner.call("/albums/update", &json!({ "albumId": album, "config": config })).ok();
    };
    resize(2048);
    let marked = service.ready_photo(&partner, album_id, Vec::new(), Vec::new());
    service.ready_photo(&partner, album_id, Vec::new(), Vec::new());
    set_watermark(&partner, &album);
    mark(&service, &partner, PhotoRef { album: album_id, photo: marked });
    let settings = json!({ "albumId": album, "enabled": true, "browse": true });
    let gallery = partner.call("/albums/gallery/update", &settings).ok();
    for pixels in [512, 1024, 256] {
        resize(pixels);
        let shown = Guest::at(&service, &gallery["url"]).call("photos/list", json!({})).ok();
        let shown = shown["photos"].as_array().unwrap();
        assert_eq!(shown.len(), 1, "the other one has no picture yet that visitors may see");
        for url in [&shown[0]["url"], &shown[0]["thumbnailUrl"]] {
            assert!(url.as_str().unwrap().contains("/marked.jpg?"), "{url} at {pixels} pixels");
        }
    }
}

/// Downloads the file of a ticket; returns its entries.
fn fetch_zip(partner: &Partner, ticket: &Value) -> Vec<(String, Vec<u8>)> {
    let url = ticket["url"].as_str().unwrap();
    let path = url.strip_prefix(PUBLIC_URL).unwrap();
    let response = partner.send(&format!("GET {path}"), &[], "");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), "application/zip");
    assert_eq!(response.header("content-length"), response.bytes.len().to_string(), "announced exactly");
    let disposition = response.header("content-disposition");
    assert!(disposition.starts_with("attachment; filename=\"Lake Marathon.zip\""), "{disposition}");
    let head = partner.send(&format!("HEAD {path}"), &[], "");
    assert_eq!(head.header("content-length"), response.bytes.len().to_string());
    let mut archive = ZipArchive::new(Cursor::new(response.bytes)).unwrap();
    (0..archive.len())
        .map(|index| {
            let mut file = archive.by_index(index).unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            (file.name().unwrap().into_owned(), bytes)
        })
        .collect()
}

#[test]
fn many_photos_are_downloaded_as_one_file() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photos: Vec<PhotoId> =
        (0..3).map(|_| service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")])).collect();
    service.queued_photo(&partner, album_id);
    let create = |body: Value| {
        let mut with_album = json!({ "albumId": album });
        with_album.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        partner.call("/photos/download/create", &with_album)
    };
    let by_ids = create(json!({ "photoIds": [photos[2], photos[0]], "size": "original" })).ok();
    assert_eq!((&by_ids["files"], &by_ids["bytes"]), (&json!(2), &json!(12)));
    let entries = fetch_zip(&partner, &by_ids);
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    let time = "20261004-094107";
    assert_eq!(names, [format!("{time}-a.jpg"), format!("{time}-a-2.jpg")]);
    assert!(entries.iter().all(|(_, bytes)| bytes == b"pixels"));
    assert_eq!(fetch_zip(&partner, &create(json!({ "bib": "1207" })).ok()).len(), 3);
    let selfie = partner.upload_selfie(&album, b"face");
    assert_eq!(fetch_zip(&partner, &create(json!({ "imageId": selfie })).ok()).len(), 3);

    for refused in [json!({}), json!({ "bib": "1", "photoIds": [photos[0]] })] {
        create(refused).undefined_error(400, "BAD_REQUEST");
    }
    create(json!({ "bib": "9999" })).defined_error(404, "NOT_FOUND");
    create(json!({ "photoIds": [unknown_id()] })).defined_error(404, "NOT_FOUND");
    create(json!({ "photoIds": [photos[0]], "size": "marked" })).defined_error(404, "NOT_FOUND");
    let many: Vec<Value> = (0..2001).map(|_| unknown_id()).collect();
    assert_eq!(
        create(json!({ "photoIds": many })).issues(),
        [(r#"["photoIds"]"#.to_owned(), "too_big".to_owned())]
    );

    // A photo that goes after the ticket was given leaves a note.
    let gone = json!({ "albumId": album, "photoId": photos[2] });
    partner.call("/photos/photo/delete", &gone).ok();
    let entries = fetch_zip(&partner, &by_ids);
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1].0, "MISSING.txt");
    assert_eq!(entries[1].1, b"1 of 2 photos are not there any more.\n");
}

#[test]
fn a_ticket_that_was_tampered_with_opens_nothing() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    service.ready_photo(&partner, album_id, Vec::new(), vec![bib("1207")]);
    let made = partner.call("/photos/download/create", &json!({ "albumId": album, "bib": "1207" })).ok();
    let path = made["url"].as_str().unwrap().strip_prefix(PUBLIC_URL).unwrap().to_owned();
    let last = path.chars().last().unwrap();
    let other = if last == '0' { '1' } else { '0' };
    let tampered = format!("{}{other}", &path[..path.len() - 1]);
    for path in [tampered, "/downloads/".to_owned(), "/downloads/x/y".to_owned(), format!("{path}/")] {
        partner.send(&format!("GET {path}"), &[], "").defined_error(404, "NOT_FOUND");
    }
    partner.send(&format!("POST {path}"), &[], "").defined_error(405, "METHOD_NOT_SUPPORTED");
    partner.call("/albums/delete", &json!({ "albumId": album })).ok();
    partner.send(&format!("GET {path}"), &[], "").defined_error(404, "NOT_FOUND");
}

#[test]
fn a_gallery_gives_files_of_what_visitors_may_search_and_have() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    let update = |change: Value| {
        let mut body = json!({ "albumId": album, "enabled": true });
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        partner.call("/albums/gallery/update", &body).ok()
    };
    let gallery = update(json!({ "searchesPerVisitor": 2 }));
    let mut guest = Guest::at(&service, &gallery["url"]);
    let entries = fetch_zip(&partner, &guest.call("download/create", json!({ "text": "1207" })).ok());
    assert_eq!(entries.len(), 1);
    guest.call("download/create", json!({ "photoIds": [photo] })).ok();
    guest.call("search/text", json!({ "text": "1207" })).ok();
    let over =
        guest.call("download/create", json!({ "text": "1208" })).defined_error(429, "TOO_MANY_REQUESTS");
    assert_eq!(over["data"]["code"], "TOO_MANY_SEARCHES", "it tells as much as a search");
    guest
        .call("download/create", json!({ "imageId": unknown_id() }))
        .defined_error(422, "UNPROCESSABLE_CONTENT");
    update(json!({ "bibSearch": false }));
    guest.call("download/create", json!({ "text": "1207" })).defined_error(422, "UNPROCESSABLE_CONTENT");
    update(json!({ "downloads": "none" }));
    let refused =
        guest.call("download/create", json!({ "photoIds": [photo] })).defined_error(403, "FORBIDDEN");
    assert_eq!(refused["data"]["code"], "DOWNLOADS_DISABLED");
}

#[test]
fn a_gallery_has_a_qr_code_of_its_address() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let none = partner.call("/albums/gallery/get", &json!({ "albumId": album })).ok();
    assert_eq!(none["qrUrl"], Value::Null);
    let gallery = partner.call("/albums/gallery/update", &json!({ "albumId": album, "enabled": true })).ok();
    let url = gallery["qrUrl"].as_str().unwrap();
    assert_eq!(url, format!("{}/qr.svg", gallery["url"].as_str().unwrap()));
    let response = partner.send(&format!("GET {}", url.strip_prefix(PUBLIC_URL).unwrap()), &[], "");
    assert_eq!((response.status, response.header("content-type")), (200, "image/svg+xml"));
    assert!(response.bytes.starts_with(b"<svg"));
}

#[test]
fn photos_are_listed_by_camera_and_time() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, Vec::new(), Vec::new());
    service.queued_photo(&partner, album_id);
    let cameras = partner.call("/albums/cameras/list", &json!({ "albumId": album })).ok();
    let expected = json!([{ "camera": null, "photos": 1 }, { "camera": "NIKON Z 9", "photos": 1 }]);
    let mut found = cameras["cameras"].as_array().unwrap().clone();
    found.sort_by_key(|camera| camera["camera"].is_string());
    assert_eq!(json!(found), expected);
    let list = |filter: Value| {
        let mut body = json!({ "albumId": album });
        body.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
        let page = partner.call("/photos/photo/list", &body).ok();
        let ids: Vec<Value> =
            page["photos"].as_array().unwrap().iter().map(|photo| photo["id"].clone()).collect();
        (ids, page["total"].clone())
    };
    let one = (vec![json!(photo)], json!(1));
    let none = (Vec::new(), json!(0));
    assert_eq!(list(json!({ "camera": "NIKON Z 9" })), one);
    assert_eq!(list(json!({ "camera": "Canon" })), none);
    assert_eq!(list(json!({ "takenFrom": "2026-10-04T09:41:07Z" })), one);
    assert_eq!(
        list(json!({ "takenFrom": "2026-10-04T11:41:00+02:00", "takenUntil": "2026-10-04T11:41:08+02:00" })),
        one
    );
    assert_eq!(list(json!({ "takenUntil": "2026-10-04T09:41:07Z" })), none);
    assert_eq!(list(json!({ "takenFrom": "2020-01-01T00:00:00Z", "state": "queued" })), none);
    let other = service.ready_photo(&partner, album_id, Vec::new(), Vec::new());
    let page = |cursor: Value| {
        let mut body = json!({ "albumId": album, "camera": "NIKON Z 9", "limit": 1 });
        if cursor.is_string() {
            body["cursor"] = cursor;
        }
        partner.call("/photos/photo/list", &body).ok()
    };
    let first = page(Value::Null);
    // Counted for the first page alone: what is added later is not in the total of the others.
    service.ready_photo(&partner, album_id, Vec::new(), Vec::new());
    let second = page(first["nextCursor"].clone());
    assert_eq!((&first["total"], &second["total"]), (&json!(2), &json!(2)));
    assert_eq!((&first["photos"][0]["id"], &second["photos"][0]["id"]), (&json!(photo), &json!(other)));
}
