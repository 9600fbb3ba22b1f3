//! Credits over HTTP: what partners see of balances, what is declined, and what was used.

use photofinish_store::model::credit::{CreditSettings, Credits, NewGrant, Prices};
use photofinish_store::model::key::{KeyMode, Scope};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use crate::support::guest::Guest;
use crate::support::{Partner, TestService, bib, face};

/// A service that declines, with a price for everything.
pub(crate) fn start() -> TestService {
    TestService::start_as(|setup| {
        setup.credits = CreditSettings {
            prices: Prices {
                photo: Credits::whole(1),
                face_search: Credits::from_thousandths(250),
                text_search: Credits::from_thousandths(500),
                download: Credits::from_thousandths(125),
            },
            is_enforced: true,
            mock_credits: Credits::whole(100),
            low_percent: 10,
        };
    })
}

pub(crate) fn grant(service: &TestService, partner: &Partner, amount: &str) {
    service.block_on(async {
        let key = photofinish_api::key::KeyText::parse(partner.key.as_ref().unwrap()).unwrap();
        let tenant = service.store.keys.find(&key.digest()).await.unwrap().unwrap().tenant;
        let amount = amount.parse().unwrap();
        let grant = NewGrant { tenant, amount, note: String::new(), granted_by: "test".to_owned() };
        service.store.credits.grant(grant).await.unwrap();
    });
}

/// Uploads files; returns the ids of their photos.
fn upload(partner: &Partner, album: &Value, count: usize) -> Vec<Value> {
    let file = json!({ "filename": "a.jpg", "contentType": "image/jpeg" });
    let body = json!({ "albumId": album, "entries": vec![file; count] });
    let tickets = partner.call("/photos/photo/signed/batch", &body).ok();
    let tickets = tickets["results"].as_array().unwrap().clone();
    let upload = |ticket: Value| {
        let url = ticket["uploadUrl"].as_str().unwrap_or_else(|| panic!("{ticket}"));
        assert_eq!(partner.put(url, "image/jpeg", b"pixels").status, 200);
        ticket["photoId"].clone()
    };
    tickets.into_iter().map(upload).collect()
}

pub(crate) fn balance(partner: &Partner) -> Value {
    partner.call("/credits/get", &json!({})).ok()
}

#[test]
fn a_balance_says_what_is_held_spent_and_left() {
    let service = start();
    let partner = service.partner();
    let (_, album_id) = partner.create_album();
    grant(&service, &partner, "2.5");
    service.ready_photo(&partner, album_id, Vec::new(), Vec::new());
    service.queued_photo(&partner, album_id);
    let expected = json!({
        "mode": "live", "balance": 0.5, "held": 1, "granted": 2.5, "spent": 1, "unlimited": false,
        "prices": { "photo": 1, "faceSearch": 0.25, "textSearch": 0.5, "download": 0.125 },
    });
    assert_eq!(balance(&partner), expected);
    // The body may be omitted, and any scope is enough.
    let reader = service.partner_with("Lake Timing", KeyMode::Live, &[Scope::SearchRead]);
    assert_eq!(reader.send("POST /openapi/credits/get", &[], "").ok(), expected);
    let stranger = service.partner_with("River Timing", KeyMode::Live, &Scope::ALL);
    assert_eq!(balance(&stranger)["granted"], json!(0));
    let test = service.partner_with("Lake Timing", KeyMode::Test, &Scope::ALL);
    assert_eq!((&balance(&test)["mode"], &balance(&test)["balance"]), (&json!("test"), &json!(100)));
}

#[test]
fn a_photo_that_the_balance_does_not_cover_is_declined_with_what_is_left() {
    let service = start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let sign = json!({ "albumId": album, "filename": "a.jpg", "contentType": "image/jpeg" });
    let refused = partner.call("/photos/photo/signed", &sign).defined_error(422, "UNPROCESSABLE_CONTENT");
    let data = json!({ "declineCode": "INSUFFICIENT_CREDITS", "balance": 0, "price": 1 });
    assert_eq!(refused["data"], data);
    grant(&service, &partner, "1.5");
    let photos = upload(&partner, &album, 1);
    // Another photo uses up the balance before the upload is confirmed.
    let queued = service.queued_photo(&partner, album_id);
    let on_photo = json!({ "albumId": album, "photoId": photos[0] });
    let refused =
        partner.call("/photos/photo/success", &on_photo).defined_error(422, "UNPROCESSABLE_CONTENT");
    let data = json!({ "declineCode": "INSUFFICIENT_CREDITS", "balance": 0.5, "price": 1 });
    assert_eq!(refused["data"], data);
    let state = partner.call("/photos/photo/get", &on_photo).ok()["state"].clone();
    assert_eq!(state, json!("awaiting_upload"));
    // A deleted photo gives back what it held.
    partner.call("/photos/photo/delete", &json!({ "albumId": album, "photoId": queued })).ok();
    partner.call("/photos/photo/success", &on_photo).ok();
    partner.call("/photos/photo/success", &on_photo).ok();
    assert_eq!((&balance(&partner)["held"], &balance(&partner)["balance"]), (&json!(1), &json!(0.5)));
}

#[test]
fn a_failed_photo_is_retried_only_if_the_balance_covers_it() {
    let service = start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    grant(&service, &partner, "1");
    let failed = service.failed_photo(&partner, album_id);
    service.queued_photo(&partner, album_id);
    let on_photo = json!({ "albumId": album, "photoId": failed });
    let refused = partner.call("/photos/photo/retry", &on_photo).defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(refused["data"], json!({ "declineCode": "INSUFFICIENT_CREDITS", "balance": 0, "price": 1 }));
    grant(&service, &partner, "1");
    partner.call("/photos/photo/retry", &on_photo).ok();
    partner.call("/photos/photo/retry", &on_photo).defined_error(409, "CONFLICT");
}

#[test]
fn of_a_batch_those_that_fit_pass_in_order() {
    let service = start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    grant(&service, &partner, "40");
    let photos = upload(&partner, &album, 40);
    grant(&service, &partner, "-10");
    // One that is repeated has its first place.
    let repeated = [&photos[..], &photos[..1]].concat();
    let body = json!({ "albumId": album, "photoIds": repeated });
    let results = partner.call("/photos/photo/success/batch", &body).ok()["results"].clone();
    for (place, result) in results.as_array().unwrap().iter().enumerate() {
        assert_eq!(result["success"], json!(place % 40 < 30), "{place}: {result}");
        if place % 40 >= 30 {
            let data = json!({ "declineCode": "INSUFFICIENT_CREDITS", "balance": 0, "price": 1 });
            assert_eq!((&result["error"]["status"], &result["error"]["data"]), (&json!(422), &data));
        }
    }
    let file = |name: &str, kind: &str| json!({ "filename": name, "contentType": kind });
    grant(&service, &partner, "2");
    let entries = [
        file("a", "image/jpeg"),
        file("b", "text/plain"),
        file("c", "image/jpeg"),
        file("d", "image/jpeg"),
        file("e", "text/plain"),
    ];
    let body = json!({ "albumId": album, "entries": entries });
    let results = partner.call("/photos/photo/signed/batch", &body).ok()["results"].clone();
    let statuses: Vec<&Value> =
        results.as_array().unwrap().iter().map(|result| &result["error"]["status"]).collect();
    assert_eq!(json!(statuses), json!([null, 415, null, 422, 415]));
}

#[test]
fn partners_see_their_declines_with_mock_credits() {
    let service = start();
    let test = service.partner_with("Lake Timing", KeyMode::Test, &Scope::ALL);
    let (album, _) = test.create_album();
    upload(&test, &album, 2);
    let set = test.call("/credits/mock/set", &json!({ "balance": 0.5 })).ok();
    assert_eq!((&set["balance"], &set["mode"]), (&json!(0.5), &json!("test")));
    let sign = json!({ "albumId": album, "filename": "a.jpg", "contentType": "image/jpeg" });
    let refused = test.call("/photos/photo/signed", &sign).defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(refused["data"]["balance"], json!(0.5));
    for (wrong, code) in [(json!(-1), "too_small"), (json!(1e10), "too_big"), (json!("1"), "invalid_type")] {
        let issues = test.call("/credits/mock/set", &json!({ "balance": wrong })).issues();
        assert_eq!(issues, [("[\"balance\"]".to_owned(), code.to_owned())]);
    }
    let live = service.partner();
    let refused = live.call("/credits/mock/set", &json!({ "balance": 1 })).defined_error(403, "FORBIDDEN");
    assert_eq!(refused["data"], json!({ "code": "TEST_KEYS_ONLY" }));
}

#[test]
fn searches_are_charged_once_and_declined_before_work_is_done() {
    let service = start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    grant(&service, &partner, "2.5");
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    service.ready_photo(&partner, album_id, vec![face(0.8)], vec![bib("1207")]);
    let spent = || balance(&partner)["spent"].clone();
    let image = partner.upload_selfie(&album, b"face");
    let by_face = json!({ "albumId": album, "imageId": image });
    for _ in 0..3 {
        assert_eq!(partner.call("/photos/search/face/list", &by_face).ok()["photos"][0]["id"], json!(photo));
    }
    assert_eq!(spent(), json!(2.25));
    // Half a credit is more than what is left.
    let by_text = json!({ "albumId": album, "text": "1207", "limit": 1 });
    let refused =
        partner.call("/photos/search/text/list", &by_text).defined_error(422, "UNPROCESSABLE_CONTENT");
    let data = json!({ "declineCode": "INSUFFICIENT_CREDITS", "balance": 0.25, "price": 0.5 });
    assert_eq!(refused["data"], data);
    grant(&service, &partner, "0.25");
    let page = partner.call("/photos/search/text/list", &by_text).ok();
    let next = json!({ "albumId": album, "text": "1207", "limit": 1, "cursor": page["nextCursor"] });
    partner.call("/photos/search/text/list", &next).ok();
    assert_eq!((spent(), &balance(&partner)["balance"]), (json!(2.75), &json!(0)));
    // A selfie that shows no face costs nothing; without credits none is examined.
    let calls = || service.embedder.calls.load(std::sync::atomic::Ordering::SeqCst);
    let other = partner.upload_selfie(&album, b"landscape");
    let examined = calls();
    let refused = partner.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": other }));
    assert_eq!(refused.defined_error(422, "UNPROCESSABLE_CONTENT")["data"]["price"], json!(0.25));
    assert_eq!(calls(), examined);
    // One that was paid for is searched with again.
    partner.call("/photos/search/face/list", &by_face).ok();
}

#[test]
fn a_key_sees_the_usage_of_its_own_mode() {
    let service = TestService::start();
    let partner = service.partner();
    let (_, album) = partner.create_album();
    service.ready_photo(&partner, album, Vec::new(), Vec::new());
    let today = OffsetDateTime::now_utc().date();
    let usage = |partner: &Partner, mode: &str| {
        let (from, to) = ((today - Duration::DAY).to_string(), (today + Duration::DAY).to_string());
        partner.call("/usage/get", &json!({ "from": from, "to": to, "mode": mode }))
    };
    let own = usage(&partner, "live").ok();
    assert_eq!((&own["mode"], &own["total"]["count"]), (&json!("live"), &json!(1)));
    let refused = usage(&partner, "test").defined_error(403, "FORBIDDEN");
    assert_eq!(refused["data"]["code"], json!("OTHER_MODE"));
    let test = service.partner_with("Lake Timing", KeyMode::Test, &Scope::ALL);
    assert_eq!(usage(&test, "test").ok()["total"]["count"], json!(0));
    usage(&test, "live").defined_error(403, "FORBIDDEN");
}

#[test]
fn searches_cost_what_they_spent_and_photos_nothing_of_it() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    service.ready_photo(&partner, album_id, vec![face(0.9)], vec![]);
    for selfie in [b"face".as_slice(), b"landscape"] {
        let image = partner.upload_selfie(&album, selfie);
        for _ in 0..2 {
            partner.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": image }));
        }
    }
    service.block_on(service.store.costs.flush_searches()).unwrap();
    let today = OffsetDateTime::now_utc().date();
    let (from, to) = ((today - Duration::DAY).to_string(), (today + Duration::DAY).to_string());
    let report = partner.call("/usage/costs", &json!({ "from": from, "to": to, "albumId": album })).ok();
    let row = |stage: &str| {
        let mut rows = report["rows"].as_array().unwrap().iter();
        rows.find(|row| row["stage"] == stage).unwrap_or_else(|| panic!("{report}")).clone()
    };
    // Both selfies were examined, once; the second one found no face to search with.
    assert_eq!((&row("probe")["photos"], &row("probe")["cpuSeconds"]), (&json!(2), &json!(0.06)));
    assert_eq!(row("probe")["bytesRead"].as_f64(), Some("facelandscape".len() as f64));
    assert_eq!(row("face_search")["photos"], json!(2));
    assert_eq!((&report["photos"], &report["perPhoto"]["cpuSeconds"]), (&json!(1), &json!(0.0)));
    // Without days all that is kept; with one the other end is open.
    for days in [json!({}), json!({ "from": from }), json!({ "to": to })] {
        let mut open = json!({ "albumId": album });
        open.as_object_mut().unwrap().extend(days.as_object().unwrap().clone());
        assert_eq!(partner.call("/usage/costs", &open).ok(), report);
    }
    let none = partner.call("/usage/costs", &json!({ "to": "2020-01-01" })).ok();
    assert_eq!((&none["rows"], &none["perPhoto"]), (&json!([]), &Value::Null));
    let backwards = json!({ "from": to, "to": from });
    assert_eq!(partner.call("/usage/costs", &backwards).issues()[0].1, "too_small");
}

#[test]
fn the_report_of_costs_says_what_is_stored() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let (other, other_id) = partner.create_album();
    let costs = |body: Value| partner.call("/usage/costs", &body).ok()["storage"].clone();
    assert_eq!(costs(json!({})), json!({ "objects": 0, "bytes": 0, "money": 0.0 }));
    for _ in 0..2 {
        service.ready_photo(&partner, album_id, vec![], vec![]);
    }
    service.queued_photo(&partner, other_id);
    // Each original, preview and thumbnail has 6 bytes, and a gigabyte costs two million a month.
    assert_eq!(costs(json!({ "albumId": album })), json!({ "objects": 6, "bytes": 36, "money": 0.072 }));
    assert_eq!(costs(json!({ "albumId": other })), json!({ "objects": 1, "bytes": 6, "money": 0.012 }));
    assert_eq!(costs(json!({}))["bytes"], 42);
    let stranger = service.partner_with("River Timing", KeyMode::Live, &[Scope::AlbumManage]);
    let theirs = stranger.call("/usage/costs", &json!({ "albumId": album })).ok();
    assert_eq!(theirs["storage"]["objects"], 0);
}

#[test]
fn usage_is_told_by_day_album_and_operation() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    for _ in 0..2 {
        service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    }
    service.failed_photo(&partner, album_id);
    let image = partner.upload_selfie(&album, b"face");
    for _ in 0..2 {
        partner.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": image })).ok();
        partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "1207" })).ok();
    }
    service.block_on(service.store.credits.flush_usage()).unwrap();
    let today = OffsetDateTime::now_utc().date();
    let body = |by: Value| {
        // The day may end during the test.
        let (from, to) = ((today - Duration::DAY).to_string(), (today + Duration::DAY).to_string());
        json!({ "from": from, "to": to, "by": by })
    };
    let report = partner.call("/usage/get", &body(json!(["album", "operation"]))).ok();
    let row = |operation: &str, count: u64, credits: u64| json!({ "albumId": album, "operation": operation, "count": count, "credits": credits });
    let expected =
        [row("face_search", 1, 0), row("photo", 2, 2), row("photo_failed", 1, 0), row("text_search", 2, 0)];
    assert_eq!(report["rows"], json!(expected));
    assert_eq!((&report["total"], &report["mode"]), (&json!({ "count": 6, "credits": 2 }), &json!("live")));
    // Nothing is declined where credits are not enforced.
    let credits = balance(&partner);
    assert_eq!((&credits["unlimited"], &credits["balance"]), (&json!(true), &json!(-2)));
    // Usage outlives its album, and is nobody else's.
    partner.call("/albums/delete", &json!({ "albumId": album })).ok();
    assert_eq!(partner.call("/usage/get", &body(json!(["operation"]))).ok()["total"]["count"], json!(6));
    let stranger = service.partner_with("River Timing", KeyMode::Live, &Scope::ALL);
    assert_eq!(stranger.call("/usage/get", &body(json!(["operation"]))).ok()["rows"], json!([]));
    let by_day = json!({ "from": today.to_string(), "to": today.to_string() });
    for row in partner.call("/usage/get", &by_day).ok()["rows"].as_array().unwrap() {
        assert!(
            row["day"].is_string() && row["operation"].is_string() && row.get("albumId").is_none(),
            "{row}"
        );
    }
}

#[test]
fn usage_needs_days_in_order_and_a_year_at_most() {
    let service = TestService::start();
    let partner = service.partner();
    let issue = |from: &str, to: &str| {
        let issues = partner.call("/usage/get", &json!({ "from": from, "to": to })).issues();
        assert_eq!(issues.len(), 1, "{issues:?}");
        issues.into_iter().next().unwrap()
    };
    let at = |field: &str, code: &str| (format!("[\"{field}\"]"), code.to_owned());
    assert_eq!(issue("2026-10-04", "2026-10-03"), at("to", "too_small"));
    assert_eq!(issue("2026-01-01", "2027-01-02"), at("to", "too_big"));
    assert_eq!(issue("2026-02-30", "2026-03-01"), at("from", "invalid_format"));
    assert_eq!(issue("2026-2-3", "2026-03-01"), at("from", "invalid_format"));
    partner.call("/usage/get", &json!({ "from": "2026-01-01", "to": "2027-01-01" })).ok();
    let nothing = partner.call("/usage/get", &json!({ "from": "2026-01-01", "to": "2026-01-01", "by": [] }));
    assert_eq!(nothing.issues(), [at("by", "too_small")]);
}

#[test]
fn only_managers_are_told_that_credits_are_low() {
    let service = start();
    let manager = service.partner();
    let reader = service.partner_with("Lake Timing", KeyMode::Live, &[Scope::SearchRead]);
    grant(&service, &manager, "1");
    grant(&service, &manager, "-1");
    service.block_on(async {
        let holder = photofinish_store::model::ids::ProcessId::generate();
        let ttl = std::time::Duration::from_secs(60);
        use photofinish_store::model::process::Task;
        let ledger = service.store.tasks.take(Task::Ledger, holder, ttl).await.unwrap().unwrap();
        service.store.ledger_task.run(ledger).await.unwrap();
        let publisher = service.store.tasks.take(Task::EventPublisher, holder, ttl).await.unwrap().unwrap();
        service.store.event_publisher.publish(publisher).await.unwrap();
    });
    let events = manager.call("/events/list", &json!({})).ok()["events"].clone();
    assert_eq!(events[0]["type"], json!("credits.low"));
    let data = &events[0]["data"];
    assert_eq!(
        (&data["balance"], &data["threshold"], &data["mode"]),
        (&json!(0), &json!(0.1), &json!("live"))
    );
    assert_eq!(reader.call("/events/list", &json!({})).ok()["events"], json!([]));
    let refused = reader.call("/events/list", &json!({ "types": ["credits.low"] }));
    assert_eq!(refused.defined_error(403, "FORBIDDEN")["data"]["code"], json!("INSUFFICIENT_SCOPE"));
}

#[test]
fn a_visitor_spends_no_more_by_downloads_than_by_searches() {
    let service = start();
    let partner = service.partner();
    grant(&service, &partner, "10");
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    let gallery =
        json!({ "albumId": album, "enabled": true, "searchesPerVisitor": 2, "downloads": "preview" });
    let gallery = partner.call("/albums/gallery/update", &gallery).ok();
    let mut guest = Guest::at(&service, &gallery["url"]);
    let before = balance(&partner)["spent"].as_f64().unwrap();
    for _ in 0..2 {
        guest.call("download/create", json!({ "photoIds": [photo] })).ok();
    }
    let over = guest.call("download/create", json!({ "photoIds": [photo] }));
    assert_eq!(over.defined_error(429, "TOO_MANY_REQUESTS")["data"]["code"], "TOO_MANY_SEARCHES");
    assert_eq!(balance(&partner)["spent"].as_f64().unwrap() - before, 0.25);
}
