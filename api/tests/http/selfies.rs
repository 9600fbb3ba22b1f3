//! Selfies: examined once, in turns of the organizations, and deleted.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::key::{KeyMode, Scope};
use photofinish_store::model::object_key::ObjectKey;
use serde_json::{Value, json};

use crate::search::{hit_ids, search_face};
use crate::support::raw::RawConnection;
use crate::support::{DEADLINE, MAX_PROBE_BYTES, Partner, TestService, face, unknown_id};

/// Returns the size of a selfie in the storage.
pub(crate) async fn selfie_bytes(
    service: &TestService,
    partner: &Partner,
    album: AlbumId,
    image: &Value,
) -> Option<u64> {
    let organization = partner.organization_id(service).await;
    let key = ObjectKey::probe(organization, album, image.as_str().unwrap().parse().unwrap());
    service.store.blobs.head(&key).await.unwrap()
}

#[test]
fn a_selfies_bytes_go_as_soon_as_its_vector_is_made() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![]);
    let image = partner.upload_selfie(&album, b"face");
    let bytes = || service.block_on(selfie_bytes(&service, &partner, album_id, &image));
    assert_eq!(bytes(), Some(4));
    for _ in 0..3 {
        assert_eq!(hit_ids(&search_face(&partner, &album, &image).ok()), [photo]);
        assert_eq!(bytes(), None);
    }
    assert_eq!(service.embedder.calls.load(Ordering::SeqCst), 1);
}

#[test]
fn a_selfie_that_cannot_be_searched_says_why_and_is_examined_once() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let ticket = partner.call("/photos/search/face/signed", &json!({ "albumId": album })).ok();
    let missing = search_face(&partner, &album, &ticket["imageId"]).defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(missing["data"], json!({ "code": "UPLOAD_MISSING" }));
    for unknown in [unknown_id(), json!("no id"), json!("")] {
        search_face(&partner, &album, &unknown).defined_error(404, "NOT_FOUND");
    }
    for (selfie, code) in [(b"landscape".as_slice(), "NO_FACE"), (b"noise", "UNREADABLE_IMAGE")] {
        let image = partner.upload_selfie(&album, selfie);
        let before = service.embedder.calls.load(Ordering::SeqCst);
        for _ in 0..3 {
            let declined = search_face(&partner, &album, &image).defined_error(422, "UNPROCESSABLE_CONTENT");
            assert_eq!(declined["data"], json!({ "declineCode": code }));
        }
        assert_eq!(service.embedder.calls.load(Ordering::SeqCst), before + 1, "{code} is not remembered");
        assert_eq!(service.block_on(selfie_bytes(&service, &partner, album_id, &image)), None, "kept");
    }
    let body = search_face(&partner, &album, &partner.upload_selfie(&album, b"other model"));
    body.undefined_error(500, "INTERNAL_SERVER_ERROR");
}

#[test]
fn a_selfie_larger_than_the_limit_is_refused_even_if_storage_took_it() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let image = partner.upload_selfie(&album, b"face");
    let organization = service.block_on(partner.organization_id(&service));
    let key = ObjectKey::probe(organization, album_id, image.as_str().unwrap().parse().unwrap());
    let giant = vec![0; usize::try_from(MAX_PROBE_BYTES).unwrap() + 1];
    service.block_on(service.store.blobs.write(&key, "image/png", giant.into())).unwrap();
    for _ in 0..2 {
        let body = search_face(&partner, &album, &image).defined_error(413, "PAYLOAD_TOO_LARGE");
        assert_eq!(body["data"], json!({ "code": "SELFIE_TOO_LARGE" }));
        assert_eq!(service.block_on(selfie_bytes(&service, &partner, album_id, &image)), None);
    }
}

#[test]
fn an_organization_without_a_place_gets_429_and_others_do_not() {
    let service = TestService::start();
    let [greedy, modest] = ["Greedy Timing", "Lake Timing"]
        .map(|organization| service.partner_with(organization, KeyMode::Live, &Scope::ALL));
    let busy = service.block_on(greedy.organization_id(&service));
    service.embedder.busy.lock().unwrap().insert(busy);
    let (album, _) = greedy.create_album();
    let image = greedy.upload_selfie(&album, b"face");
    let refused = search_face(&greedy, &album, &image);
    assert_eq!(refused.header("retry-after"), "2");
    assert_eq!(refused.defined_error(429, "TOO_MANY_REQUESTS")["data"], json!({ "tryAgainIn": 1.5 }));
    let (others_album, _) = modest.create_album();
    let others_image = modest.upload_selfie(&others_album, b"face");
    search_face(&modest, &others_album, &others_image).ok();
    // A refusal for lack of a place is not remembered.
    service.embedder.busy.lock().unwrap().clear();
    search_face(&greedy, &album, &image).ok();
}

#[test]
fn an_unavailable_probe_service_returns_503() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let image = partner.upload_selfie(&album, b"down");
    for _ in 0..2 {
        let down = search_face(&partner, &album, &image);
        assert!(!down.header("retry-after").is_empty());
        down.defined_error(503, "SERVICE_UNAVAILABLE");
    }
    assert_eq!(service.embedder.calls.load(Ordering::SeqCst), 2, "an outage is not remembered");
}

#[test]
fn a_selfie_is_examined_to_its_end_when_its_search_goes_away() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let image = partner.upload_selfie(&album, b"slow");
    let id = image.as_str().unwrap().parse().unwrap();
    let body = json!({ "albumId": album, "imageId": image }).to_string();
    let mut connection = RawConnection::connect(&service);
    connection.write(&format!(
        "POST /openapi/photos/search/face/list HTTP/1.1\r\nhost: test\r\nx-api-key: {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        partner.key.as_ref().unwrap(),
        body.len()
    ));
    let started = Instant::now();
    while service.embedder.calls.load(Ordering::SeqCst) == 0 {
        assert!(started.elapsed() < DEADLINE, "the selfie is never examined");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(connection);
    // The service notices the end of the connection before it responds to later ones.
    for _ in 0..20 {
        partner.call("/albums/list", &json!({})).ok();
    }
    service.embedder.permits.add_permits(1);
    while service.block_on(service.store.probes.get(album_id, id)).unwrap().outcome.is_none() {
        assert!(started.elapsed() < DEADLINE, "what was found is not stored");
        std::thread::sleep(Duration::from_millis(1));
    }
    search_face(&partner, &album, &image).ok();
    assert_eq!(service.embedder.calls.load(Ordering::SeqCst), 1);
}

#[test]
fn searches_with_one_selfie_at_once_examine_it_once() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let image = partner.upload_selfie(&album, b"slow");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| search_face(&partner, &album, &image).ok());
        }
        let started = Instant::now();
        while service.embedder.calls.load(Ordering::SeqCst) == 0 {
            assert!(started.elapsed() < DEADLINE, "the selfie is never examined");
            std::thread::sleep(Duration::from_millis(1));
        }
        // The other searches arrive meanwhile.
        std::thread::sleep(Duration::from_millis(200));
        service.embedder.permits.add_permits(4);
    });
    assert_eq!(service.embedder.calls.load(Ordering::SeqCst), 1);
}

#[test]
fn an_expired_selfie_is_unknown() {
    let service = TestService::start_with(|settings| settings.probe_ttl = Duration::from_millis(1));
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let ticket = partner.call("/photos/search/face/signed", &json!({ "albumId": album })).ok();
    let started = Instant::now();
    while search_face(&partner, &album, &ticket["imageId"]).status != 404 {
        assert!(started.elapsed() < DEADLINE, "the selfie never expired");
    }
}
