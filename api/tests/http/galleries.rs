//! Galleries: what visitors may do is what the organizer permits, and nothing beside it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use photofinish_store::StoreError;
use photofinish_store::model::key::Scope;
use photofinish_store::model::rate::RateShare;
use photofinish_store::traits::RateWindows;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::support::guest::{Guest, PUBLIC_URL};
use crate::support::{Partner, TestService, bib, face};

/// An album with two photos of bib 1207, and its open gallery.
pub(crate) fn open_gallery(service: &TestService, partner: &Partner, settings: Value) -> (Value, Value) {
    let (album, album_id) = partner.create_album();
    service.ready_photo(partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    service.ready_photo(partner, album_id, vec![face(0.1)], vec![bib("1207")]);
    let mut body = json!({ "albumId": album, "enabled": true });
    body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let gallery = partner.call("/albums/gallery/update", &body).ok();
    (album, gallery["url"].clone())
}

#[test]
fn a_gallery_is_there_when_it_is_enabled_and_its_link_can_be_replaced() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let one = json!({ "albumId": album });
    let none = partner.call("/albums/gallery/get", &one).ok();
    assert_eq!(
        (&none["enabled"], &none["url"], &none["selfieSearch"]),
        (&json!(false), &Value::Null, &json!(false))
    );
    let made = partner.call("/albums/gallery/update", &json!({ "albumId": album, "intro": "Well run" })).ok();
    let mut guest = Guest::at(&service, &made["url"]);
    assert_eq!(made["url"].as_str().unwrap().rsplit('/').next().unwrap().len(), 22);
    guest.call("get", json!({})).defined_error(404, "NOT_FOUND");
    let enabled = partner.call("/albums/gallery/update", &json!({ "albumId": album, "enabled": true })).ok();
    assert_eq!(enabled["url"], made["url"]);
    let assert_in_90_days = |shown: &Value| {
        let expires_at = OffsetDateTime::parse(shown.as_str().unwrap(), &Rfc3339).unwrap();
        let left = expires_at - OffsetDateTime::now_utc();
        assert!((left - time::Duration::days(90)).abs() < time::Duration::MINUTE, "{left}");
    };
    assert_in_90_days(&enabled["expiresAt"]);
    let seen = guest.call("get", json!({})).ok();
    assert_eq!((&seen["title"], &seen["intro"]), (&json!("Lake Marathon"), &json!("Well run")));
    assert_eq!(partner.call("/albums/gallery/get", &one).ok()["opened"], 1);
    let moved = partner.call("/albums/gallery/update", &json!({ "albumId": album, "newLink": true })).ok();
    guest.call("get", json!({})).defined_error(404, "NOT_FOUND");
    let mut guest = Guest::at(&service, &moved["url"]);
    guest.call("get", json!({})).ok();
    let over = json!({ "albumId": album, "expiresAt": "2020-01-01T00:00:00Z" });
    partner.call("/albums/gallery/update", &over).ok();
    guest.call("get", json!({})).defined_error(404, "NOT_FOUND");
    let still = partner.call("/albums/gallery/update", &json!({ "albumId": album, "intro": "Over" })).ok();
    assert_eq!(still["expiresAt"], over["expiresAt"], "nobody opens it");
    let again = partner.call("/albums/gallery/update", &json!({ "albumId": album, "enabled": true })).ok();
    assert_in_90_days(&again["expiresAt"]);
    guest.call("get", json!({})).ok();
    let opened = partner.call("/albums/gallery/update", &json!({ "albumId": album, "enabled": true })).ok();
    assert_eq!(opened["expiresAt"], again["expiresAt"], "it is open already");
    let selfies = json!({ "albumId": album, "selfieSearch": true });
    let refused =
        partner.call("/albums/gallery/update", &selfies).defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(refused["data"]["declineCode"], "GALLERY_CONTACT_MISSING");
}

#[test]
fn faces_of_an_album_with_an_open_gallery_are_switched_on_knowingly() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = open_gallery(&service, &partner, json!({}));
    let switch = |enabled: bool, more: Value| {
        let mut body = json!({ "albumId": album, "config": { "face": { "enabled": enabled } } });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        partner.call("/albums/update", &body)
    };
    let mut more = json!({ "albumId": album, "selfieSearch": true, "contact": "privacy@race.example" });
    more["privacyUrl"] = json!("https://race.example/privacy");
    partner.call("/albums/gallery/update", &more).ok();
    switch(false, json!({})).ok();
    // The form sends all settings.
    more["enabled"] = json!(false);
    let closed = partner.call("/albums/gallery/update", &more).ok();
    assert_eq!((&closed["enabled"], &closed["selfieSearch"]), (&json!(false), &json!(true)));
    for body in [json!({ "enabled": true }), json!({ "selfieSearch": false })] {
        let mut body = body;
        body["albumId"] = album.clone();
        partner.call("/albums/gallery/update", &body).ok();
    }
    let refused = partner.call("/albums/gallery/update", &more).defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(refused["data"]["declineCode"], "FACE_SEARCH_DISABLED", "it is switched on");
    let refused = switch(true, json!({})).issues();
    assert_eq!(refused, [(r#"["acknowledge"]"#.to_owned(), "acknowledge_required".to_owned())]);
    switch(true, json!({ "acknowledge": "biometric" })).ok();
    switch(true, json!({})).ok();
    switch(false, json!({})).ok();
    partner.call("/albums/gallery/update", &json!({ "albumId": album, "enabled": false })).ok();
    switch(true, json!({})).ok();
}

#[test]
fn visitors_do_what_is_permitted_and_see_no_confidences() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, url) = open_gallery(&service, &partner, json!({}));
    let mut guest = Guest::at(&service, &url);
    let found = guest.call("search/text", json!({ "text": "1207" })).ok();
    assert_eq!(found["total"], 2);
    let photo = &found["photos"][0];
    assert_eq!((&photo["why"], photo.get("confidence")), (&json!("bib"), None));
    assert!(["sure", "likely", "maybe"].contains(&photo["certainty"].as_str().unwrap()));
    for picture in ["url", "thumbnailUrl"] {
        assert!(seconds_left(&photo[picture]) <= 600, "{picture}");
    }
    let one = json!({ "photoId": photo["id"] });
    assert!(guest.call("download", one.clone()).ok()["url"].as_str().unwrap().contains("preview"));
    let mut newcomer = Guest::at(&service, &url);
    for _ in 0..2 {
        let reported = newcomer.call("report", json!({ "photoId": photo["id"], "kind": "not_me" }));
        assert_eq!(reported.header("set-cookie"), "", "only searches are counted by a cookie");
        reported.ok();
    }
    let reports = partner.call("/albums/gallery/reports", &json!({ "albumId": album })).ok();
    assert_eq!(reports["reports"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&reports["reports"][0]["photoId"], &reports["reports"][0]["kind"]),
        (&photo["id"], &json!("not_me"))
    );
    let agree = json!({ "consent": true, "consentVersion": 1, "language": "de" });
    for (operation, body) in [("photos/list", json!({})), ("search/face/signed", agree)] {
        let refused = guest.call(operation, body).defined_error(422, "UNPROCESSABLE_CONTENT");
        assert_eq!(refused["data"]["declineCode"], "GALLERY_SEARCH_DISABLED", "{operation}");
    }
    let change = json!({ "albumId": album, "browse": true, "bibSearch": false, "downloads": "none" });
    partner.call("/albums/gallery/update", &change).ok();
    assert_eq!(guest.call("photos/list", json!({})).ok()["total"], 2);
    guest.call("search/text", json!({ "text": "1207" })).defined_error(422, "UNPROCESSABLE_CONTENT");
    guest.call("download", one).defined_error(403, "FORBIDDEN");
    // A photo of another album is not there, and neither is anything of partners.
    let (_, other) = partner.create_album();
    let foreign = service.ready_photo(&partner, other, vec![], vec![]);
    guest.call("download", json!({ "photoId": foreign })).defined_error(403, "FORBIDDEN");
    partner.call("/albums/gallery/update", &json!({ "albumId": album, "downloads": "original" })).ok();
    guest.call("download", json!({ "photoId": foreign })).defined_error(404, "NOT_FOUND");
    let line = format!("POST {}/api/albums/list", guest.path);
    let headers = [("content-type", "application/json"), ("sec-fetch-site", "same-origin")];
    partner.send(&line, &headers, "{}").defined_error(404, "NOT_FOUND");
    let cross = [("content-type", "application/json"), ("sec-fetch-site", "cross-site")];
    let line = format!("POST {}/api/gallery/get", guest.path);
    partner.send(&line, &cross, "{}").defined_error(403, "FORBIDDEN");
}

#[test]
fn a_selfie_is_compared_after_consent_and_forgotten_at_once() {
    let service = TestService::start();
    let partner = service.partner();
    let contact = json!({ "selfieSearch": true, "contact": "privacy@race.example", "privacyUrl": "https://race.example/privacy" });
    let (album, url) = open_gallery(&service, &partner, contact);
    let mut guest = Guest::at(&service, &url);
    let no = json!({ "consent": false, "consentVersion": 1, "language": "de" });
    let refused = guest.call("search/face/signed", no).defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(refused["data"]["code"], "CONSENT_REQUIRED");
    let agree = json!({ "consent": true, "consentVersion": 1, "language": "de" });
    let ticket = guest.call("search/face/signed", agree).ok();
    assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", b"face").status, 200);
    let selfie = json!({ "imageId": ticket["imageId"] });
    let found = guest.call("search/face/list", selfie.clone()).ok();
    assert_eq!(found["total"], 1);
    assert_eq!(found["photos"][0]["why"], "face");
    // A selfie of the partner has no consent of a visitor.
    let foreign = partner.upload_selfie(&album, b"face");
    guest.call("search/face/list", json!({ "imageId": foreign })).defined_error(404, "NOT_FOUND");
    guest.call("search/face/forget", json!({ "imageId": foreign })).ok();
    partner.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": foreign })).ok();

    let preview = guest.call("erase/faces", selfie.clone()).ok();
    assert_eq!((&preview["faces"], &preview["receiptId"]), (&json!(1), &Value::Null));
    let confirmed = json!({ "imageId": ticket["imageId"], "confirm": preview["confirm"] });
    for _ in 0..2 {
        let asked = guest.call("erase/faces", confirmed.clone()).ok();
        assert_eq!((&asked["isRequest"], &asked["receiptId"]), (&json!(true), &Value::Null));
    }
    assert_eq!(guest.call("search/face/list", selfie.clone()).ok()["total"], 1, "the organizer decides");
    let reports = partner.call("/albums/gallery/reports", &json!({ "albumId": album })).ok();
    let reports = reports["reports"].as_array().expect("reports");
    assert_eq!(reports.len(), 1, "asked twice with a selfie is one request");
    assert_eq!((&reports[0]["kind"], &reports[0]["photoId"]), (&json!("removal"), &found["photos"][0]["id"]));
    let face = &partner
        .call("/photos/photo/get", &json!({ "albumId": album, "photoId": reports[0]["photoId"] }))
        .ok()["faces"][0];
    assert_eq!(reports[0]["faces"], json!([face["boundingBox"]]), "whose face it is");
    let said = json!({ "photoId": found["photos"][0]["id"], "kind": "removal" });
    guest.call("report", said).undefined_error(400, "BAD_REQUEST");

    let at_once = json!({ "albumId": album, "removal": "immediate" });
    assert_eq!(partner.call("/albums/gallery/update", &at_once).ok()["removal"], "immediate");
    assert!(guest.call("erase/faces", confirmed).ok()["receiptId"].is_string());
    guest.call("search/face/list", selfie.clone()).defined_error(404, "NOT_FOUND");
    guest.call("search/face/forget", selfie.clone()).ok();
    guest.call("search/face/forget", selfie.clone()).ok();
    guest.call("search/face/list", selfie).defined_error(404, "NOT_FOUND");
    partner
        .call("/photos/search/face/list", &json!({ "albumId": album, "imageId": ticket["imageId"] }))
        .defined_error(404, "NOT_FOUND");
}

#[test]
fn an_organizer_erases_the_faces_of_a_request_or_dismisses_it() {
    let service = TestService::start();
    let partner = service.partner();
    let contact = json!({ "selfieSearch": true, "contact": "privacy@race.example", "privacyUrl": "https://race.example/privacy" });
    let (album, url) = open_gallery(&service, &partner, contact);
    let mut guest = Guest::at(&service, &url);
    let agree = json!({ "consent": true, "consentVersion": 1, "language": "de" });
    let mut ask = || {
        let ticket = guest.call("search/face/signed", agree.clone()).ok();
        assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", b"face").status, 200);
        let selfie = json!({ "imageId": ticket["imageId"] });
        let preview = guest.call("erase/faces", selfie.clone()).ok();
        let confirmed = json!({ "imageId": ticket["imageId"], "confirm": preview["confirm"] });
        guest.call("erase/faces", confirmed).ok();
        guest.call("search/face/forget", selfie).ok();
        preview["faces"].clone()
    };
    let list =
        || partner.call("/albums/gallery/reports", &json!({ "albumId": album })).ok()["reports"].clone();
    assert_eq!(ask(), 1);
    let request = json!({ "albumId": album, "reportId": list()[0]["id"] });
    partner.call("/albums/gallery/reports/dismiss", &request).ok();
    assert_eq!(list(), json!([]));
    partner.call("/albums/gallery/reports/erase", &request).defined_error(404, "NOT_FOUND");

    assert_eq!(ask(), 1, "nothing was erased");
    let mut request = json!({ "albumId": album, "reportId": list()[0]["id"] });
    let refused =
        partner.call("/albums/gallery/reports/erase", &request).defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(refused["data"]["code"], "CONFIRM_REQUIRED");
    request["dryRun"] = json!(true);
    let preview = partner.call("/albums/gallery/reports/erase", &request).ok();
    assert_eq!((&preview["faces"], &preview["photoIds"][0]), (&json!(1), &list()[0]["photoId"]));
    (request["dryRun"], request["confirm"]) = (json!(false), preview["confirm"].clone());
    let receipt = partner.call("/albums/gallery/reports/erase", &request).ok();
    assert_eq!((&receipt["removed"]["vectors"], &receipt["subject"]["kind"]), (&json!(1), &json!("face")));
    assert_eq!(list(), json!([]), "the request is done");
    assert_eq!(ask(), 0, "the face is not found any more");

    // Who says something else of a photo has asked for nothing to be erased.
    let said = json!({ "photoId": preview["photoIds"][0], "kind": "not_me" });
    Guest::at(&service, &url).call("report", said).ok();
    let other = json!({ "albumId": album, "reportId": list()[0]["id"], "dryRun": true });
    partner.call("/albums/gallery/reports/erase", &other).defined_error(404, "NOT_FOUND");
    assert_eq!(list().as_array().unwrap().len(), 1, "it is still there");
}

#[test]
fn a_visitor_searches_so_often_a_day() {
    let service = TestService::start();
    let partner = service.partner();
    let (_, url) = open_gallery(&service, &partner, json!({ "searchesPerVisitor": 2 }));
    let mut guest = Guest::at(&service, &url);
    for _ in 0..2 {
        guest.call("search/text", json!({ "text": "1207" })).ok();
    }
    let refused =
        guest.call("search/text", json!({ "text": "1207" })).defined_error(429, "TOO_MANY_REQUESTS");
    assert_eq!(refused["data"]["code"], "TOO_MANY_SEARCHES");
    assert!(refused["data"]["tryAgainIn"].as_f64().unwrap() > 0.0);
    // Others of the network still may, up to ten times as many together.
    for _ in 0..18 {
        Guest::at(&service, &url).call("search/text", json!({ "text": "1207" })).ok();
    }
    Guest::at(&service, &url)
        .call("search/text", json!({ "text": "1207" }))
        .defined_error(429, "TOO_MANY_REQUESTS");
}

#[test]
fn a_made_up_cursor_is_a_search_as_any_other() {
    let service = TestService::start();
    let partner = service.partner();
    let (_, url) = open_gallery(&service, &partner, json!({ "searchesPerVisitor": 2 }));
    let mut guest = Guest::at(&service, &url);
    let made = json!({ "text": "1207", "cursor": format!("7fe{}", "0".repeat(45)) });
    for _ in 0..2 {
        guest.call("search/text", made.clone()).ok();
    }
    guest.call("search/text", made).defined_error(429, "TOO_MANY_REQUESTS");
}

#[test]
fn searches_of_visitors_are_counted_apart() {
    let service = TestService::start();
    let partner = service.partner();
    let contact = json!({ "selfieSearch": true, "contact": "privacy@race.example", "privacyUrl": "https://race.example/privacy" });
    let (album, url) = open_gallery(&service, &partner, contact);
    let mut guest = Guest::at(&service, &url);
    guest.call("search/text", json!({ "text": "1207" })).ok();
    let agree = json!({ "consent": true, "consentVersion": 1, "language": "de" });
    let ticket = guest.call("search/face/signed", agree).ok();
    assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", b"face").status, 200);
    guest.call("search/face/list", json!({ "imageId": ticket["imageId"] })).ok();
    partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "1207" })).ok();
    service.block_on(service.store.credits.flush_usage()).unwrap();
    let today = time::OffsetDateTime::now_utc().date();
    let day = time::Duration::DAY;
    let body =
        json!({ "from": (today - day).to_string(), "to": (today + day).to_string(), "by": ["operation"] });
    let usage = partner.call("/usage/get", &body).ok();
    let row = |operation: &str, count: u64, credits: u64| json!({ "operation": operation, "count": count, "credits": credits });
    let expected = [
        row("gallery_face_search", 1, 0),
        row("gallery_text_search", 1, 0),
        row("photo", 2, 2),
        row("text_search", 1, 0),
    ];
    assert_eq!(usage["rows"], json!(expected));
}

#[test]
fn a_deleted_album_has_no_gallery_and_the_page_never_tells() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, url) = open_gallery(&service, &partner, json!({}));
    let mut guest = Guest::at(&service, &url);
    let page = partner.send(&format!("GET {}", guest.path), &[], "");
    assert_eq!((page.status, page.header("x-robots-tag")), (200, "noindex"));
    assert!(page.header("permissions-policy").starts_with("camera=(self)"));
    let nowhere = partner.send("GET /g/0000000000000000000000", &[], "");
    assert_eq!((nowhere.status, nowhere.bytes), (200, page.bytes));
    partner.call("/albums/delete", &json!({ "albumId": album })).ok();
    guest.call("get", json!({})).defined_error(404, "NOT_FOUND");
    let searcher = service.partner_with(
        "Lake Timing",
        photofinish_store::model::key::KeyMode::Live,
        &[Scope::SearchRead],
    );
    searcher.call("/albums/gallery/get", &json!({ "albumId": album })).defined_error(403, "FORBIDDEN");
}

#[test]
fn a_host_for_galleries_has_no_console() {
    let service = TestService::start_with(|settings| {
        settings.console.gallery_url = Some("https://gallery.example".parse().unwrap());
    });
    let partner = service.partner();
    let (_, url) = open_gallery(&service, &partner, json!({}));
    assert!(url.as_str().unwrap().starts_with("https://gallery.example/g/"));
    let path = url.as_str().unwrap().strip_prefix("https://gallery.example").unwrap();
    let local = json!(format!("{PUBLIC_URL}{path}"));
    let ticket = Guest::at(&service, &local).call("download/create", json!({ "text": "1207" })).ok();
    assert!(ticket["url"].as_str().unwrap().starts_with("https://gallery.example/downloads/"), "{ticket}");
    let there = [
        ("host", "gallery.example"),
        ("content-type", "application/json"),
        ("sec-fetch-site", "same-origin"),
    ];
    for path in ["GET /console", "GET /", "POST /console/api/session/get"] {
        partner.send(path, &there, "{}").defined_error(404, "NOT_FOUND");
    }
    assert_eq!(partner.send("GET /g/anything", &there, "").status, 200);
    assert_eq!(partner.send("GET /console", &[], "").status, 200);
}

/// For how long a URL of the storage is valid.
fn seconds_left(url: &Value) -> i64 {
    let (_, query) = url.as_str().unwrap().split_once("expires=").unwrap();
    let digits: String = query.chars().take_while(char::is_ascii_digit).collect();
    digits.parse::<i64>().unwrap() - OffsetDateTime::now_utc().unix_timestamp()
}

/// The windows of a database in which other processes have taken all.
#[derive(Default)]
pub(crate) struct TakenElsewhere(Mutex<Vec<RateShare>>);

#[async_trait]
impl RateWindows for TakenElsewhere {
    async fn take(&self, share: RateShare) -> Result<Option<u32>, StoreError> {
        self.0.lock().unwrap().push(share);
        Ok(None)
    }
}

#[test]
fn processes_share_the_limit_of_visitors() {
    let windows = Arc::new(TakenElsewhere::default());
    let service = TestService::start_as(|setup| setup.rate_windows = Some(windows.clone()));
    let missing = json!(format!("{PUBLIC_URL}/g/0000000000000000000000"));
    let refused = Guest::at(&service, &missing).call("get", json!({}));
    refused.defined_error(429, "TOO_MANY_REQUESTS");
    let asked = windows.0.lock().unwrap();
    assert!(!asked.is_empty() && asked.iter().all(|share| share.limit == 600));
}
