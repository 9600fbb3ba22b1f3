//! What is charged beside photos: searches and their further pages, and downloads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use photofinish_store::model::credit::Credits;
use photofinish_store::model::ids::{AlbumId, OrganizationId};
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::traits::{Blobs, UploadConditions};
use photofinish_store::{Store, StoreError, StoreErrorKind};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use url::Url;

use crate::credits::{balance, grant, start};
use crate::galleries::open_gallery;
use crate::pictures::set_watermark;
use crate::support::guest::Guest;
use crate::support::{TestService, bib, face};

/// What a storage does not do while it is told so, as one whose credentials have expired.
#[derive(Clone, Default)]
struct Refusals {
    /// It signs no URLs of pictures.
    signs_none: Arc<AtomicBool>,
    /// It tells no sizes.
    tells_no_size: Arc<AtomicBool>,
}

struct RefusingStorage {
    blobs: Arc<dyn Blobs>,
    refusals: Refusals,
}

#[async_trait]
impl Blobs for RefusingStorage {
    async fn read(&self, key: &ObjectKey, max_bytes: u64) -> Result<Bytes, StoreError> {
        self.blobs.read(key, max_bytes).await
    }

    async fn write(&self, key: &ObjectKey, content_type: &str, bytes: Bytes) -> Result<(), StoreError> {
        self.blobs.write(key, content_type, bytes).await
    }

    async fn upload_url(&self, key: &ObjectKey, conditions: UploadConditions<'_>) -> Result<Url, StoreError> {
        self.blobs.upload_url(key, conditions).await
    }

    async fn download_url(&self, key: &ObjectKey, ttl: std::time::Duration) -> Result<Url, StoreError> {
        if self.refusals.signs_none.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "sign a URL"));
        }
        self.blobs.download_url(key, ttl).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<u64>, StoreError> {
        if self.refusals.tells_no_size.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "read a size"));
        }
        self.blobs.head(key).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.blobs.delete(key).await
    }

    async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<(), StoreError> {
        self.blobs.delete_album(organization, album).await
    }
}

/// A service whose bib searches cost half a credit, and whose storage refuses what it is told to.
fn start_refusing(refusals: &Refusals) -> TestService {
    TestService::start_as(|setup| {
        setup.credits.prices.text_search = Credits::from_thousandths(500);
        let refusals = refusals.clone();
        setup.change_store = Box::new(move |store: &mut Store| {
            store.blobs = Arc::new(RefusingStorage { blobs: Arc::clone(&store.blobs), refusals });
        });
    })
}

#[test]
fn only_a_cursor_of_the_same_search_continues_what_was_paid() {
    let service = start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let (other, _) = partner.create_album();
    grant(&service, &partner, "6.5");
    for _ in 0..3 {
        service.ready_photo(&partner, album_id, Vec::new(), vec![bib("1207"), bib("1208")]);
    }
    let spent = || balance(&partner)["spent"].as_f64().unwrap() - 3.0;
    let search = |album: &Value, text: &str, cursor: Option<&str>| {
        let mut body = json!({ "albumId": album, "text": text, "limit": 1 });
        if let Some(cursor) = cursor {
            body["cursor"] = json!(cursor);
        }
        partner.call("/photos/search/text/list", &body)
    };
    let first = search(&album, "1207", None).ok();
    assert_eq!(spent(), 0.5);
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = search(&album, "12 07", Some(cursor)).ok();
    let third = search(&album, "1207", second["nextCursor"].as_str()).ok();
    assert_eq!((spent(), &third["nextCursor"]), (0.5, &json!(null)));
    assert_ne!((&first["photos"], &second["photos"]), (&second["photos"], &third["photos"]));
    // One of an older version, one before all hits, one with the proof of another position, and the right one elsewhere.
    let (position, proof) = cursor.split_at(48);
    let highest = format!("7fe{}", "0".repeat(45));
    let made = [position.to_owned(), highest.clone(), format!("{highest}{proof}")];
    let mut expected = 0.5;
    for (text, cursor) in made.iter().map(|cursor| ("1207", cursor.as_str())).chain([("1208", cursor)]) {
        assert_eq!(search(&album, text, Some(cursor)).status, 200);
        expected += 0.5;
        assert_eq!(spent(), expected, "{text} from {cursor}");
    }
    search(&other, "1207", Some(cursor)).ok();
    assert_eq!(spent(), expected + 0.5);
    // Half a credit is left, and then nothing.
    search(&album, "1207", None).ok();
    search(&album, "1207", Some(&highest)).defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(search(&album, "1207", Some(cursor)).status, 200);
}

#[test]
fn a_download_is_charged_once_and_declined_if_the_balance_does_not_cover_it() {
    let service = start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    grant(&service, &partner, "1.25");
    let photo = service.ready_photo(&partner, album_id, Vec::new(), Vec::new());
    let create = |photo: Value| {
        partner.call("/photos/download/create", &json!({ "albumId": album, "photoIds": [photo] }))
    };
    create(json!(uuid::Uuid::now_v7())).defined_error(404, "NOT_FOUND");
    assert_eq!(balance(&partner)["spent"], json!(1), "nothing was found");
    for spent in [1.125, 1.25] {
        let url = create(json!(photo)).ok()["url"].clone();
        let path = url.as_str().unwrap().splitn(4, '/').nth(3).unwrap().to_owned();
        for _ in 0..2 {
            assert_eq!(partner.send(&format!("GET /{path}"), &[], "").status, 200);
        }
        assert_eq!(balance(&partner)["spent"], json!(spent));
    }
    let refused = create(json!(photo)).defined_error(422, "UNPROCESSABLE_CONTENT");
    let data = json!({ "declineCode": "INSUFFICIENT_CREDITS", "balance": 0, "price": 0.125 });
    assert_eq!(refused["data"], data);
    let today = OffsetDateTime::now_utc().date();
    let (from, to) = ((today - Duration::DAY).to_string(), (today + Duration::DAY).to_string());
    let usage = partner.call("/usage/get", &json!({ "from": from, "to": to, "by": ["operation"] })).ok();
    let download = json!({ "operation": "download", "count": 2, "credits": 0.25 });
    assert_eq!(usage["rows"][0], download);
}

#[test]
fn a_text_that_is_no_bib_is_refused_and_costs_nothing() {
    let service = start();
    let partner = service.partner();
    grant(&service, &partner, "10");
    let (album, url) = open_gallery(&service, &partner, json!({}));
    let spent = || balance(&partner)["spent"].clone();
    let before = spent();
    for none in ["---", "-", " ", "😀", "%"] {
        let issue = |field: &str| [(format!("[\"{field}\"]"), "too_small".to_owned())];
        let text = json!({ "albumId": album, "text": none });
        assert_eq!(partner.call("/photos/search/text/list", &text).issues(), issue("text"), "{none}");
        let bib = json!({ "albumId": album, "bib": none });
        assert_eq!(partner.call("/photos/download/create", &bib).issues(), issue("bib"), "{none}");
        for operation in ["search/text", "download/create", "erase/request"] {
            let refused = Guest::at(&service, &url).call(operation, json!({ "text": none }));
            assert_eq!(refused.issues(), issue("text"), "{operation} of {none}");
        }
    }
    assert_eq!(spent(), before);
    let gallery = partner.call("/albums/gallery/get", &json!({ "albumId": album })).ok();
    assert_eq!(gallery["searches"], 0, "nor is it one of the searches of a visitor");
    // What could be on a bib is a search, whatever it finds.
    partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "ä" })).ok();
    assert_ne!(spent(), before);
}

#[test]
fn a_bib_search_whose_page_could_not_be_made_is_charged_when_it_is_repeated() {
    let refusals = Refusals::default();
    let service = start_refusing(&refusals);
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    service.ready_photo(&partner, album_id, Vec::new(), vec![bib("1207")]);
    let spent = || balance(&partner)["spent"].as_f64().unwrap();
    let search = || partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "1207" }));
    let before = spent();
    refusals.signs_none.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(search().status, 503);
        assert_eq!(spent(), before);
    }
    refusals.signs_none.store(false, Ordering::SeqCst);
    assert_eq!(search().ok()["total"], 1);
    assert_eq!(spent(), before + 0.5);
}

#[test]
fn a_download_that_no_photo_of_an_album_has_is_refused_before_its_search_is_paid_for() {
    let service = start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    grant(&service, &partner, "10");
    service.ready_photo(&partner, album_id, Vec::new(), vec![bib("1207")]);
    let create = |size: &str| {
        let asked = json!({ "albumId": album, "bib": "1207", "size": size });
        partner.call("/photos/download/create", &asked)
    };
    // There is no watermark.
    create("marked").defined_error(404, "NOT_FOUND");
    assert_eq!(balance(&partner)["spent"], json!(1), "the photo");
    create("preview").ok();
    assert_eq!(balance(&partner)["spent"], json!(1.625), "the search and the download");
}

#[test]
fn a_download_that_is_declined_costs_no_search() {
    let service = start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    grant(&service, &partner, "1.5");
    service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    let spent = || balance(&partner)["spent"].clone();
    let create = |mut asked: Value| {
        asked["albumId"] = album.clone();
        partner.call("/photos/download/create", &asked)
    };
    // What is left covers the search alone.
    for _ in 0..2 {
        let refused = create(json!({ "bib": "1207" })).defined_error(422, "UNPROCESSABLE_CONTENT");
        let data = json!({ "declineCode": "INSUFFICIENT_CREDITS", "balance": 0.5, "price": 0.625 });
        assert_eq!((&refused["data"], spent()), (&data, json!(1)), "the photo");
    }
    grant(&service, &partner, "-0.25");
    let image = partner.upload_selfie(&album, b"face");
    let refused = create(json!({ "imageId": image })).defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!((&refused["data"]["price"], spent()), (&json!(0.375), json!(1)));
    // The search with the selfie was not charged, so it is now.
    partner.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": image })).ok();
    assert_eq!(spent(), json!(1.25));
    grant(&service, &partner, "0.75");
    create(json!({ "imageId": image })).ok();
    assert_eq!(spent(), json!(1.375), "the download");
    create(json!({ "bib": "1207" })).ok();
    assert_eq!(spent(), json!(2), "the search and the download");
}

#[test]
fn a_download_without_files_costs_no_search() {
    let refusals = Refusals::default();
    let service = start_refusing(&refusals);
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    service.ready_photo(&partner, album_id, Vec::new(), vec![bib("1207")]);
    // The photo does not show it yet.
    set_watermark(&partner, &album);
    let create = |size: &str| {
        let asked = json!({ "albumId": album, "bib": "1207", "size": size });
        partner.call("/photos/download/create", &asked)
    };
    for _ in 0..2 {
        create("marked").defined_error(404, "NOT_FOUND");
    }
    refusals.tells_no_size.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        create("preview").defined_error(503, "SERVICE_UNAVAILABLE");
    }
    assert_eq!(balance(&partner)["spent"], json!(1), "the photo");
    refusals.tells_no_size.store(false, Ordering::SeqCst);
    create("preview").ok();
    assert_eq!(balance(&partner)["spent"], json!(1.5), "the search");
}

#[test]
fn visitors_are_not_told_what_an_organizer_has_and_pays() {
    let service = start();
    let partner = service.partner();
    grant(&service, &partner, "3.1");
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
    assert_eq!(balance(&partner)["balance"], json!(1.1));
    // A balance that was read before this photo is processed covers everything; what is left covers nothing.
    let photo = service.ready_photo(&partner, album_id, Vec::new(), Vec::new());
    let mut decline = |operation: &str, body: &Value| {
        let refused = guest.call(operation, body.clone()).defined_error(422, "UNPROCESSABLE_CONTENT");
        assert_eq!(refused["data"], json!({ "declineCode": "INSUFFICIENT_CREDITS" }), "{operation}");
    };
    decline("search/text", &json!({ "text": "1207" }));
    assert_eq!(balance(&partner)["balance"], json!(0.1));
    let searches =
        || partner.call("/albums/gallery/get", &json!({ "albumId": album })).ok()["searches"].clone();
    let before = searches();
    for (operation, body) in [
        ("search/text", json!({ "text": "1207" })),
        ("search/face/list", selfie.clone()),
        ("download/create", json!({ "text": "1207" })),
        ("download/create", selfie),
        ("download/create", json!({ "photoIds": [photo] })),
    ] {
        decline(operation, &body);
    }
    assert_eq!(searches(), before, "none of the day is spent");
    assert_eq!(balance(&partner)["spent"], json!(3), "the photos");
}

#[test]
fn a_download_with_a_selfie_is_covered_together_with_its_search() {
    let service = start();
    let partner = service.partner();
    grant(&service, &partner, "2.3");
    let contact = json!({
        "selfieSearch": true, "contact": "privacy@race.example", "privacyUrl": "https://race.example/privacy",
    });
    let (album, url) = open_gallery(&service, &partner, contact);
    let mut guest = Guest::at(&service, &url);
    let agree = json!({ "consent": true, "consentVersion": 1, "language": "de" });
    let ticket = guest.call("search/face/signed", agree).ok();
    assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", b"face").status, 200);
    let searches =
        || partner.call("/albums/gallery/get", &json!({ "albumId": album })).ok()["searches"].clone();
    let before = searches();
    assert_eq!(balance(&partner)["balance"], json!(0.3), "for each, and not for both");
    let refused = guest.call("download/create", json!({ "imageId": ticket["imageId"] }));
    let refused = refused.defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(refused["data"], json!({ "declineCode": "INSUFFICIENT_CREDITS" }));
    assert_eq!(searches(), before, "none of the day is spent");
}
