//! How much of what visitors of a gallery say of photos is kept.

use photofinish_store::model::gallery::{NewReport, ReportKind, ReportedPhoto};
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::photo::NewPhoto;
use serde_json::{Value, json};

use crate::galleries::open_gallery;
use crate::support::guest::Guest;
use crate::support::{ApiResponse, Partner, TestService};

/// A hundred photos of an album.
fn create_photos(service: &TestService, album: AlbumId) -> Vec<PhotoId> {
    let new = NewPhoto { filename: "a.jpg".to_owned(), content_type: "image/jpeg".to_owned() };
    service.block_on(service.store.photos.create(album, vec![new; 100])).unwrap()
}

fn say(guest: &mut Guest<'_>, photo: &Value, kind: &str) -> ApiResponse {
    guest.call("report", json!({ "photoId": photo, "kind": kind, "note": "?" }))
}

/// Checks that a report is refused because there are too many.
fn expect_refusal(refused: ApiResponse) {
    assert!(!refused.header("retry-after").is_empty());
    let data = refused.defined_error(429, "TOO_MANY_REQUESTS")["data"].clone();
    assert_eq!(data["code"], "TOO_MANY_REPORTS");
    assert!(data["tryAgainIn"].as_f64().unwrap() >= 1.0, "{data}");
}

/// Dismisses the newest report.
fn dismiss_one(partner: &Partner, album: &Value) {
    let reports = partner.call("/albums/gallery/reports", &json!({ "albumId": album })).ok();
    let one = json!({ "albumId": album, "reportId": reports["reports"][0]["id"] });
    partner.call("/albums/gallery/reports/dismiss", &one).ok();
}

#[test]
fn a_network_makes_two_hundred_reports_of_an_album() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, url) = open_gallery(&service, &partner, json!({ "browse": true }));
    let photos = create_photos(&service, album.as_str().unwrap().parse().unwrap());
    let mut guest = Guest::at(&service, &url);
    let page = guest.call("photos/list", json!({})).ok();
    let another = &page["photos"][0]["id"];
    for photo in &photos {
        for kind in ["not_me", "report"] {
            say(&mut guest, &json!(photo), kind).ok();
        }
    }
    expect_refusal(say(&mut guest, another, "report"));
    // Another visitor of the network, who has another cookie.
    expect_refusal(say(&mut Guest::at(&service, &url), another, "report"));
    say(&mut guest, &json!(photos[0]), "not_me").ok();
    let (_, elsewhere) = open_gallery(&service, &partner, json!({ "browse": true }));
    let mut visitor = Guest::at(&service, &elsewhere);
    let page = visitor.call("photos/list", json!({})).ok();
    say(&mut visitor, &page["photos"][0]["id"], "report").ok();
    dismiss_one(&partner, &album);
    say(&mut guest, another, "report").ok();
}

#[test]
fn an_album_has_ten_thousand_reports_of_all_networks() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, url) = open_gallery(&service, &partner, json!({}));
    let album_id: AlbumId = album.as_str().unwrap().parse().unwrap();
    let photos = create_photos(&service, album_id);
    let reported = |photo: &PhotoId| ReportedPhoto { photo: *photo, faces: Vec::new() };
    for network in 0..100 {
        let report = NewReport {
            album: album_id,
            photos: photos.iter().map(reported).collect(),
            kind: ReportKind::NotMe,
            visitor: [network; 32],
            note: String::new(),
            created_at: i64::from(network),
            limits: None,
        };
        assert!(service.block_on(service.store.galleries.report(report)).unwrap());
    }
    let mut guest = Guest::at(&service, &url);
    expect_refusal(say(&mut guest, &json!(photos[0]), "report"));
    // Who asks to be removed is heard.
    guest.call("erase/request", json!({ "text": "1207" })).ok();
    expect_refusal(say(&mut guest, &json!(photos[0]), "report"));
    // The newest is that of the request.
    dismiss_one(&partner, &album);
    dismiss_one(&partner, &album);
    say(&mut guest, &json!(photos[0]), "report").ok();
    expect_refusal(say(&mut guest, &json!(photos[1]), "report"));
}
