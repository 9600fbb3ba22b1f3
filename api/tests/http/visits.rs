//! Visitors of a gallery: pages that come again, photos that are processed again, who asks to be removed by a bib, and selfies
//! that are forgotten; and the names of what they download.

use photofinish_store::StoreErrorKind;
use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::photo::PhotoSize;
use photofinish_store::traits::{LeaseKind, LeaseRequest, PhotoResults, PictureSizes};
use serde_json::{Value, json};

use crate::galleries::open_gallery;
use crate::selfies::selfie_bytes;
use crate::support::guest::Guest;
use crate::support::{DEADLINE, Partner, TestService};

fn list_reports(partner: &Partner, album: &Value) -> Vec<Value> {
    let reports = partner.call("/albums/gallery/reports", &json!({ "albumId": album })).ok();
    reports["reports"].as_array().expect("reports").clone()
}

#[test]
fn who_asks_to_be_removed_by_a_bib_asks_the_organizer() {
    let service = TestService::start();
    let partner = service.partner();
    // Of a selfie's face alone: anybody knows a bib.
    let rules = json!({ "removal": "immediate", "searchesPerVisitor": 2 });
    let (album, url) = open_gallery(&service, &partner, rules);
    let mut guest = Guest::at(&service, &url);
    let found = guest.call("search/text", json!({ "text": "1207" })).ok();
    let asked = json!({ "text": "1207", "cursor": found["cursor"] });
    for _ in 0..3 {
        guest.call("erase/request", asked.clone()).ok();
    }
    let reports = list_reports(&partner, &album);
    assert_eq!(reports.len(), 2, "each photo once, however often it is asked");
    for report in &reports {
        assert_eq!((&report["kind"], &report["bib"]), (&json!("removal"), &json!("1207")));
        assert_eq!((&report["faces"], &report["note"]), (&json!([]), &json!("")));
        assert_eq!(report["createdAt"], reports[0]["createdAt"], "one request");
    }
    let searched = json!({ "albumId": album, "text": "1207" });
    assert_eq!(partner.call("/photos/search/text/list", &searched).ok()["total"], 2, "the organizer decides");
    let of_faces = json!({ "albumId": album, "reportId": reports[0]["id"], "dryRun": true });
    partner.call("/albums/gallery/reports/erase", &of_faces).defined_error(404, "NOT_FOUND");

    // Without a search of the same bib it is a search.
    Guest::at(&service, &url).call("erase/request", json!({ "text": "99" })).defined_error(404, "NOT_FOUND");
    guest.call("erase/request", json!({ "text": "12-07" })).ok();
    let refused =
        guest.call("erase/request", json!({ "text": "1207" })).defined_error(429, "TOO_MANY_REQUESTS");
    assert_eq!(refused["data"]["code"], "TOO_MANY_SEARCHES");
    guest.call("erase/request", asked.clone()).ok();
    assert_eq!(list_reports(&partner, &album).len(), 2);

    let request = json!({ "albumId": album, "reportId": reports[1]["id"] });
    partner.call("/albums/gallery/reports/dismiss", &request).ok();
    assert!(list_reports(&partner, &album).is_empty(), "all photos of the request");
    guest.call("erase/request", asked.clone()).ok();
    let said = json!({ "photoId": reports[0]["photoId"], "kind": "not_me", "note": "1207" });
    guest.call("report", said).ok();
    let mut erased = json!({ "albumId": album, "bib": "1207", "dryRun": true });
    let preview = partner.call("/people/erase", &erased).ok();
    (erased["dryRun"], erased["confirm"]) = (json!(false), preview["confirm"].clone());
    partner.call("/people/erase", &erased).ok();
    let left = list_reports(&partner, &album);
    assert_eq!(left.len(), 1, "the request is done: {left:?}");
    assert_eq!((&left[0]["kind"], &left[0]["bib"]), (&json!("not_me"), &Value::Null));
    guest.call("erase/request", asked).defined_error(404, "NOT_FOUND");

    partner.call("/albums/gallery/update", &json!({ "albumId": album, "bibSearch": false })).ok();
    let refused =
        guest.call("erase/request", json!({ "text": "1207" })).defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(refused["data"]["declineCode"], "GALLERY_SEARCH_DISABLED");
}

#[test]
fn the_first_page_of_a_search_comes_again_and_counts_once() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, url) = open_gallery(&service, &partner, json!({ "searchesPerVisitor": 1 }));
    let mut guest = Guest::at(&service, &url);
    let found = guest.call("search/text", json!({ "text": "1207" })).ok();
    let again = json!({ "text": "1207", "cursor": found["cursor"] });
    for _ in 0..3 {
        let page = guest.call("search/text", again.clone()).ok();
        assert_eq!((&page["total"], &page["cursor"]), (&json!(2), &found["cursor"]));
        let ids = |page: &Value| -> Vec<Value> {
            page["photos"].as_array().unwrap().iter().map(|photo| photo["id"].clone()).collect()
        };
        assert_eq!(ids(&page), ids(&found));
    }
    for other in [json!({ "text": "1208", "cursor": found["cursor"] }), json!({ "text": "1207" })] {
        guest.call("search/text", other).defined_error(429, "TOO_MANY_REQUESTS");
    }
    // It is good for the gallery of its album alone.
    let (_, elsewhere) = open_gallery(&service, &partner, json!({ "searchesPerVisitor": 1 }));
    let mut other = Guest::at(&service, &elsewhere);
    other.call("search/text", again.clone()).ok();
    other.call("search/text", again).defined_error(429, "TOO_MANY_REQUESTS");
    assert_eq!(partner.call("/albums/gallery/get", &json!({ "albumId": album })).ok()["searches"], 1);
    service.block_on(service.store.credits.flush_usage()).unwrap();
    let today = time::OffsetDateTime::now_utc().date();
    let day = time::Duration::DAY;
    let body =
        json!({ "from": (today - day).to_string(), "to": (today + day).to_string(), "by": ["operation"] });
    let usage = partner.call("/usage/get", &body).ok();
    let is_search = |row: &&Value| row["operation"] == "gallery_text_search";
    let searches = usage["rows"].as_array().unwrap().iter().find(is_search).unwrap();
    assert_eq!(searches["count"], 2, "one in each gallery");
}

#[test]
fn photos_that_are_processed_again_stay_in_the_gallery() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, url) = open_gallery(&service, &partner, json!({ "browse": true }));
    let album_id: AlbumId = album.as_str().unwrap().parse().unwrap();
    service.queued_photo(&partner, album_id);
    let mut guest = Guest::at(&service, &url);
    for queued in [0, 2] {
        let found = guest.call("search/text", json!({ "text": "1207" })).ok();
        let page = guest.call("photos/list", json!({})).ok();
        assert_eq!(guest.call("get", json!({})).ok()["photos"], 2);
        assert_eq!((&page["total"], &page["cursor"]), (&json!(2), &Value::Null));
        assert_eq!(page["photos"].as_array().unwrap().len(), 2);
        assert_eq!(found["total"], 2);
        if queued == 0 {
            let again = partner.call("/albums/reprocess", &json!({ "albumId": album })).ok();
            assert_eq!(again["queued"], 2);
        }
    }
}

#[test]
fn the_pages_of_a_gallery_tell_the_same_number_of_photos() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, url) = open_gallery(&service, &partner, json!({ "browse": true }));
    let album_id: AlbumId = album.as_str().unwrap().parse().unwrap();
    for _ in 0..60 {
        service.ready_photo(&partner, album_id, vec![], vec![]);
    }
    // No visitor sees it yet.
    service.queued_photo(&partner, album_id);
    let mut guest = Guest::at(&service, &url);
    let mut list = |cursor: &str| {
        let body = if cursor.is_empty() { json!({}) } else { json!({ "cursor": cursor }) };
        guest.call("photos/list", body)
    };
    let first = list("").ok();
    assert_eq!((first["photos"].as_array().unwrap().len(), &first["total"]), (60, &json!(62)));
    let next = first["nextCursor"].as_str().unwrap();
    let deleted = json!({ "albumId": album, "photoId": first["photos"][0]["id"] });
    partner.call("/photos/photo/delete", &deleted).ok();
    let second = list(next).ok();
    assert_eq!((second["photos"].as_array().unwrap().len(), &second["total"]), (2, &json!(62)));
    assert_eq!((&second["cursor"], &second["nextCursor"]), (&json!(next), &Value::Null));
    // A cursor of a version that counted for every page leads to the same page.
    let old = list(&next[..32]).ok();
    assert_eq!(old["photos"][1]["id"], second["photos"][1]["id"]);
    for refused in [next[..31].to_owned(), next[..40].to_owned(), next.to_uppercase(), format!("{next}0")] {
        list(&refused).undefined_error(400, "BAD_REQUEST");
    }
}

/// The consent is withdrawn last: without it nobody could ask again.
#[test]
fn a_selfie_that_could_not_be_forgotten_is_forgotten_when_its_owner_asks_again() {
    let service = TestService::start();
    let partner = service.partner();
    let contact = json!({
        "selfieSearch": true, "contact": "privacy@race.example", "privacyUrl": "https://race.example/privacy",
    });
    let (album, url) = open_gallery(&service, &partner, contact);
    let album_id: AlbumId = album.as_str().unwrap().parse().unwrap();
    let mut guest = Guest::at(&service, &url);
    let agree = json!({ "consent": true, "consentVersion": 1, "language": "de" });
    let ticket = guest.call("search/face/signed", agree).ok();
    assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", b"face").status, 200);
    let selfie = json!({ "imageId": ticket["imageId"] });
    let bytes = || service.block_on(selfie_bytes(&service, &partner, album_id, &ticket["imageId"]));
    let folder = |name: &str| service.folder.path().join(name);
    std::fs::rename(folder("objects"), folder("away")).unwrap();
    assert_eq!(guest.call("search/face/forget", selfie.clone()).status, 503);
    std::fs::rename(folder("away"), folder("objects")).unwrap();
    assert_eq!(bytes(), Some(4));
    guest.call("search/face/forget", selfie.clone()).ok();
    assert_eq!(bytes(), None);
    guest.call("search/face/list", selfie).defined_error(404, "NOT_FOUND");
}

/// A visitor was promised to be able to withdraw, and the organizer may end a gallery at any time.
#[test]
fn a_selfie_is_forgotten_when_its_gallery_is_off_or_over() {
    let service = TestService::start();
    let partner = service.partner();
    let contact = json!({
        "selfieSearch": true, "contact": "privacy@race.example", "privacyUrl": "https://race.example/privacy",
    });
    for end in [json!({ "enabled": false }), json!({ "expiresAt": "2020-01-01T00:00:00Z" })] {
        let (album, url) = open_gallery(&service, &partner, contact.clone());
        let album_id: AlbumId = album.as_str().unwrap().parse().unwrap();
        let mut guest = Guest::at(&service, &url);
        let agree = json!({ "consent": true, "consentVersion": 1, "language": "de" });
        let ticket = guest.call("search/face/signed", agree).ok();
        assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", b"face").status, 200);
        let selfie = json!({ "imageId": ticket["imageId"] });
        let mut end = end;
        end["albumId"] = album.clone();
        partner.call("/albums/gallery/update", &end).ok();
        guest.call("search/face/list", selfie.clone()).defined_error(404, "NOT_FOUND");
        let bytes = |image: &Value| service.block_on(selfie_bytes(&service, &partner, album_id, image));
        // A selfie of the partner has no consent of a visitor.
        let foreign = partner.upload_selfie(&album, b"face");
        guest.call("search/face/forget", json!({ "imageId": foreign })).defined_error(404, "NOT_FOUND");
        assert_eq!((bytes(&foreign), bytes(&ticket["imageId"])), (Some(4), Some(4)));
        guest.call("search/face/forget", selfie.clone()).ok();
        assert_eq!(bytes(&ticket["imageId"]), None);
        let id = ticket["imageId"].as_str().unwrap().parse().unwrap();
        let found = service.block_on(service.store.probes.get(album_id, id));
        assert!(found.is_err_and(|error| error.kind == StoreErrorKind::NotFound));
        guest.call("search/face/forget", selfie).defined_error(404, "NOT_FOUND");
    }
}

/// Makes the photo that waits for it ready, as the pipeline would.
fn finish_photo(service: &TestService) {
    let request = LeaseRequest { limit: 1, ttl: DEADLINE, kind: LeaseKind::Fresh };
    let lease = service.block_on(service.store.queue.lease(request)).unwrap().remove(0);
    let finished = PhotoResults {
        lease,
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: None,
        watermark_version: 0,
        pictures: PictureSizes { picture_bytes: 12, marked_bytes: None },
        skipped_runners: 0,
        faces: vec![],
        texts: vec![],
    };
    service.block_on(service.store.queue.finish(vec![finished])).unwrap();
}

#[test]
fn a_download_has_the_ending_of_what_it_is() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, url) = open_gallery(&service, &partner, json!({ "downloads": "preview" }));
    let sign = json!({ "albumId": album, "filename": "start.PNG", "contentType": "image/png" });
    let ticket = partner.call("/photos/photo/signed", &sign).ok();
    assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", b"pixels").status, 200);
    let on_photo = json!({ "albumId": album, "photoId": ticket["photoId"] });
    partner.call("/photos/photo/success", &on_photo).ok();
    finish_photo(&service);
    let mut guest = Guest::at(&service, &url);
    let mut name =
        || guest.call("download", json!({ "photoId": ticket["photoId"] })).ok()["filename"].clone();
    assert_eq!(name(), "start.jpg");
    partner.call("/albums/gallery/update", &json!({ "albumId": album, "downloads": "original" })).ok();
    assert_eq!(name(), "start.PNG");
}
