//! Downloads: which photos, and a client of a ZIP file that goes away before the end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::rate::RateClass;
use serde_json::{Value, json};

use crate::connections::wait_until;
use crate::galleries::TakenElsewhere;
use crate::support::guest::{Guest, PUBLIC_URL};
use crate::support::raw::RawConnection;
use crate::support::{ApiResponse, Partner, TestService, bib};

/// More than connections buffer.
const LARGE: usize = 16 << 20;

#[test]
fn exactly_one_selection_is_required() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    for (body, expected) in [
        (json!({ "albumId": album }), ("[]", "required")),
        (json!({ "albumId": album, "bib": "1207", "imageId": "x" }), ("[]", "invalid_value")),
        (json!({ "albumId": album, "bib": 1207 }), (r#"["bib"]"#, "invalid_type")),
    ] {
        let issues = partner.call("/photos/download/create", &body).issues();
        let issues: Vec<_> = issues.iter().map(|(path, code)| (path.as_str(), code.as_str())).collect();
        assert_eq!(issues, [expected], "{body}");
    }
    let both = partner.call("/photos/download/create", &json!({ "albumId": "x" })).issues();
    let both: Vec<_> = both.iter().map(|(path, code)| (path.as_str(), code.as_str())).collect();
    assert_eq!(both, [(r#"["albumId"]"#, "invalid_format"), ("[]", "required")]);
}

#[test]
fn a_client_that_leaves_in_the_middle_gives_its_place_back() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photos: Vec<PhotoId> =
        (0..3).map(|_| service.ready_photo(&partner, album_id, Vec::new(), Vec::new())).collect();
    service.block_on(async {
        let organization = partner.organization_id(&service).await;
        let large = Bytes::from(vec![0; LARGE]);
        for photo in &photos {
            let key = ObjectKey::photo(organization, album_id, *photo, ObjectRole::Original);
            service.store.blobs.write(&key, "image/jpeg", large.clone()).await.unwrap();
        }
    });
    let asked = json!({ "albumId": album, "photoIds": photos, "size": "original" });
    let ticket = partner.call("/photos/download/create", &asked).ok();
    let path = ticket["url"].as_str().unwrap().strip_prefix(PUBLIC_URL).unwrap();
    let begin = || {
        let mut raw = RawConnection::connect(&service);
        raw.write(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
        let head = raw.read_until("\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        raw
    };
    // As many as one network may have.
    let clients = [begin(), begin()];
    let status = || partner.send(&format!("HEAD {path}"), &[], "").status;
    assert_eq!(status(), 503);
    drop(clients);
    // Not as often as possible: each request spends the limit of the network.
    let is_free = || {
        std::thread::sleep(Duration::from_millis(50));
        status() == 200
    };
    wait_until("a place is free", is_free);
    let _another = begin();
    wait_until("the other place is free", is_free);
}

#[test]
fn a_file_spends_the_limit_of_its_network_by_its_photos() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photos: Vec<PhotoId> =
        (0..41).map(|_| service.ready_photo(&partner, album_id, Vec::new(), Vec::new())).collect();
    let address = |photos: &[PhotoId]| {
        let asked = json!({ "albumId": album, "photoIds": photos });
        let ticket = partner.call("/photos/download/create", &asked).ok();
        ticket["url"].as_str().unwrap().strip_prefix(PUBLIC_URL).unwrap().to_owned()
    };
    let (many, one) = (address(&photos), address(&photos[..1]));
    let mut left = 600;
    for (line, status, units) in [
        (format!("HEAD {many}"), 200, 3),
        (format!("GET {many}"), 200, 3),
        (format!("GET {one}"), 200, 1),
        ("GET /downloads/none".to_owned(), 404, 1),
    ] {
        let answer = partner.send(&line, &[], "");
        assert_eq!((answer.status, answer.header("ratelimit-policy")), (status, "\"read\";q=600;w=60"));
        let remaining: u32 = answer.header("ratelimit-remaining").parse().unwrap();
        // The second where the next minute of the network has just begun.
        assert!([left - units, 600 - units].contains(&remaining), "{line}: {remaining} of {left}");
        left = remaining;
    }
}

/// Asks for addresses one after the other: each spends so many units of a limit of 600.
fn check_units(bib: &str, photos: &[PhotoId], mut create: impl FnMut(Value) -> ApiResponse) {
    let mut left = 600;
    for (asked, status, units) in [
        (json!({ "photoIds": photos }), 200, 3),
        (json!({ bib: "1207" }), 200, 3),
        (json!({ "photoIds": photos[..1] }), 200, 1),
        (json!({ bib: "99" }), 404, 1),
    ] {
        let what = asked.to_string();
        let answer = create(asked);
        assert_eq!((answer.status, answer.header("ratelimit-policy")), (status, "\"search\";q=600;w=60"));
        let remaining: u32 = answer.header("ratelimit-remaining").parse().unwrap();
        // The second where the next minute has just begun.
        assert!([left - units, 600 - units].contains(&remaining), "{what}: {remaining} of {left}");
        left = remaining;
    }
}

#[test]
fn an_address_spends_a_limit_by_the_photos_of_its_file() {
    let service = TestService::start_with(|settings| settings.rate_limits.set(RateClass::Search, 600));
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photos: Vec<PhotoId> =
        (0..41).map(|_| service.ready_photo(&partner, album_id, Vec::new(), vec![bib("1207")])).collect();
    check_units("bib", &photos, |mut asked| {
        asked["albumId"] = album.clone();
        partner.call("/photos/download/create", &asked)
    });
    let opened = partner.call("/albums/gallery/update", &json!({ "albumId": album, "enabled": true })).ok();
    let mut guest = Guest::at(&service, &opened["url"]);
    check_units("text", &photos, |asked| guest.call("download/create", asked));
}

#[test]
fn a_bib_of_more_photos_than_a_limit_is_left_for_is_refused() {
    let service = TestService::start_with(|settings| settings.rate_limits.set(RateClass::Search, 3));
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    for _ in 0..21 {
        service.ready_photo(&partner, album_id, Vec::new(), vec![bib("1207")]);
    }
    let create = || partner.call("/photos/download/create", &json!({ "albumId": album, "bib": "1207" }));
    create().ok();
    // One unit is left, unless the next minute has just begun: then there is enough once more.
    let refused = (0..4).map(|_| create()).find(|answer| answer.status != 200).unwrap();
    assert_eq!(refused.header("ratelimit-remaining"), "0");
    refused.defined_error(429, "TOO_MANY_REQUESTS");
}

#[test]
fn files_are_refused_above_the_limit_of_a_network() {
    let taken = Arc::new(TakenElsewhere::default());
    let service = TestService::start_as(|setup| setup.rate_windows = Some(taken));
    for line in ["GET /downloads/none", "HEAD /downloads/none"] {
        let refused = Partner::new(&service, None).send(line, &[], "");
        let wait: f64 = refused.header("retry-after").parse().unwrap();
        assert!((1.0..=60.0).contains(&wait));
        if line.starts_with("HEAD") {
            assert_eq!(refused.status, 429);
            continue;
        }
        let body = refused.defined_error(429, "TOO_MANY_REQUESTS");
        assert_eq!(body["data"]["tryAgainIn"].as_f64().unwrap(), wait);
    }
}
