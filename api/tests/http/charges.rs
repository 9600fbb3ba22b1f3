//! What is charged beside photos: further pages of searches, and downloads.

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use crate::credits::{balance, grant, start};
use crate::galleries::open_gallery;
use crate::support::bib;
use crate::support::guest::Guest;

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
