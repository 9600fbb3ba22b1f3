//! Erasures, and receipts as whoever gets one checks them.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Verifier, VerifyingKey};
use photofinish_store::model::account::Role;
use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::key::{KeyMode, Scope};
use photofinish_store::model::photo::{BoundingBox, DetectedFace};
use photofinish_store::model::process::{Process, ProcessReport};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::connections::wait_until;
use crate::console::signed_in;
use crate::galleries::open_gallery;
use crate::search::{hit_ids, search_face};
use crate::support::guest::Guest;
use crate::support::raw::RawConnection;
use crate::support::{ApiResponse, Partner, TestService, bib, face, unknown_id};

/// Asks for what a request would erase, then erases it; returns both.
fn erase(partner: &Partner, path: &str, mut request: Value) -> (Value, Value) {
    request["dryRun"] = json!(true);
    let shown = partner.call(path, &request).ok();
    assert_eq!(shown["dryRun"], json!(true));
    request["dryRun"] = json!(false);
    request["confirm"] = shown["confirm"].clone();
    let mut erased = partner.call(path, &request).ok();
    assert_eq!(erased.as_object_mut().unwrap().remove("dryRun"), Some(json!(false)));
    (shown, erased)
}

fn get_keys(partner: &Partner) -> Value {
    let response = partner.send("GET /.well-known/photofinish-keys.json", &[], "");
    assert_eq!((response.status, response.header("content-type")), (200, "application/json"));
    response.json()["keys"].clone()
}

/// Checks the signature of a receipt with the published keys and another implementation; returns what was signed.
fn verify(keys: &Value, jws: &str) -> Option<Value> {
    let mut parts = jws.split('.');
    let [header, payload, signature] = [parts.next()?, parts.next()?, parts.next()?];
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
    let key = keys.as_array()?.iter().find(|key| key["kid"] == header["kid"])?;
    assert_eq!(
        (&key["kty"], &key["crv"], &header["alg"]),
        (&json!("OKP"), &json!("Ed25519"), &json!("EdDSA"))
    );
    let public_key: [u8; 32] = decode(key["x"].as_str()?)?.try_into().ok()?;
    let signature = Signature::from_slice(&decode(signature)?).ok()?;
    let signed = &jws[..jws.rfind('.')?];
    VerifyingKey::from_bytes(&public_key).ok()?.verify(signed.as_bytes(), &signature).ok()?;
    serde_json::from_slice(&decode(payload)?).ok()
}

#[test]
fn a_face_is_erased_after_a_confirmation_and_the_receipt_can_be_checked() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let aside = DetectedFace {
        bounding_box: BoundingBox { top: 0.25, left: 0.1, width: 0.125, height: 0.0625 },
        ..face(0.1)
    };
    let photo = service.ready_photo(&partner, album_id, vec![face(0.95), aside], vec![bib("1207")]);
    let stranger = service.ready_photo(&partner, album_id, vec![face(0.2)], vec![]);
    let image = partner.upload_selfie(&album, b"face");
    assert_eq!(hit_ids(&search_face(&partner, &album, &image).ok()), [photo]);

    let request = json!({ "albumId": album, "imageId": image });
    let refused = partner.call("/faces/erase", &request).defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(refused["data"]["code"], json!("CONFIRM_REQUIRED"));
    let (preview, receipt) = erase(&partner, "/faces/erase", request);
    assert_eq!((&preview["faces"], &preview["probes"]), (&json!(1), &json!(1)));
    assert_eq!(preview["photoIds"], json!([photo.to_string()]));
    assert_eq!((&receipt["state"], &receipt["removed"]["vectors"]), (&json!("done"), &json!(1)));
    assert_eq!((&receipt["scan"]["left"], &receipt["subject"]), (&json!(0), &json!({ "kind": "face" })));

    let jws = receipt["jws"].as_str().unwrap();
    let keys = get_keys(&partner);
    let signed = verify(&keys, jws).expect("the signature is right");
    for name in [
        "receiptId",
        "issuedAt",
        "organizationId",
        "albumId",
        "subject",
        "removed",
        "kept",
        "scan",
        "backups",
    ] {
        assert_eq!(signed[name], receipt[name], "{name}");
    }
    let middle = jws.len() / 2;
    let changed = if &jws[middle..=middle] == "A" { "B" } else { "A" };
    let forged = format!("{}{changed}{}", &jws[..middle], &jws[middle + 1..]);
    assert_eq!(verify(&keys, &forged), None, "one changed character");

    search_face(&partner, &album, &image).defined_error(404, "NOT_FOUND");
    let again = partner.upload_selfie(&album, b"face");
    assert_eq!(hit_ids(&search_face(&partner, &album, &again).ok()), []);
    let shown = partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok();
    let reasons: Vec<&Value> =
        shown["faces"].as_array().unwrap().iter().map(|face| &face["reason"]).collect();
    assert_eq!(reasons, [&json!("ERASED"), &json!(null)]);
    partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": stranger })).ok();

    let one = json!({ "receiptId": receipt["receiptId"] });
    assert_eq!(partner.call("/erasures/get", &one).ok(), receipt);
    let checked = partner.call("/erasures/verify", &one).ok();
    // All but the files of the database, which were cleaned before.
    let stores = checked["stores"].as_array().unwrap().iter();
    let stores: Vec<&str> = stores.map(|scan| scan["store"].as_str().unwrap()).collect();
    assert_eq!((&checked["left"], stores), (&json!(0), vec!["rows", "objects", "face indexes"]));
    let listed = partner.call("/erasures/list", &json!({ "albumId": album })).ok();
    assert_eq!((&listed["erasures"], &listed["total"]), (&json!([receipt]), &json!(1)));
}

#[test]
fn a_bib_is_erased_with_photos_in_which_nobody_else_is() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let alone = service.ready_photo(&partner, album_id, vec![], vec![bib("1207")]);
    let shared = service.ready_photo(&partner, album_id, vec![], vec![bib("1207"), bib("33")]);
    let request = json!({ "albumId": album, "bib": "12 07", "photos": "delete" });
    let (preview, receipt) = erase(&partner, "/people/erase", request);
    assert_eq!(preview["deletedPhotoIds"], json!([alone.to_string()]));
    assert_eq!((&receipt["removed"]["texts"], &receipt["removed"]["photos"]), (&json!(2), &json!(1)));
    assert_eq!(receipt["removed"]["objects"], json!(3));
    partner
        .call("/photos/photo/get", &json!({ "albumId": album, "photoId": alone }))
        .defined_error(404, "NOT_FOUND");
    let shown = partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": shared })).ok();
    let texts: Vec<(&Value, &Value)> =
        shown["texts"].as_array().unwrap().iter().map(|text| (&text["text"], &text["reason"])).collect();
    assert_eq!(texts, [(&json!(""), &json!("ERASED")), (&json!("33"), &json!(null))]);
    let found = partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "1207" })).ok();
    assert_eq!(found["total"], json!(0));
    // Whatever album there is.
    let nothing = json!({ "albumId": unknown_id(), "bib": "-!-" });
    let refused = [(r#"["bib"]"#.to_owned(), "too_small".to_owned())];
    assert_eq!(partner.call("/people/erase", &nothing).issues(), refused);
}

#[test]
fn a_person_is_erased_by_a_selfie_also_after_faces_were_switched_off() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.95)], vec![]);
    let off = json!({ "albumId": album, "config": { "face": { "enabled": false } } });
    partner.call("/albums/update", &off).ok();
    let sign = |partner: &Partner, for_erasure: bool| {
        let body = json!({ "albumId": album, "forErasure": for_erasure });
        partner.call("/photos/search/face/signed", &body)
    };
    let declined = |response: ApiResponse| {
        let refused = response.defined_error(422, "UNPROCESSABLE_CONTENT");
        assert_eq!(refused["data"], json!({ "declineCode": "FACE_SEARCH_DISABLED" }));
    };
    declined(sign(&partner, false));
    let searcher = service.partner_with("Lake Timing", KeyMode::Live, &[Scope::SearchRead]);
    let refused = sign(&searcher, true).defined_error(403, "FORBIDDEN");
    assert_eq!(refused["data"]["code"], json!("INSUFFICIENT_SCOPE"));
    let ticket = sign(&partner, true).ok();
    assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", b"face").status, 200);
    let image = &ticket["imageId"];
    declined(search_face(&partner, &album, image));
    let (preview, receipt) = erase(&partner, "/faces/erase", json!({ "albumId": album, "imageId": image }));
    assert_eq!(preview["photoIds"], json!([photo.to_string()]));
    assert_eq!((&receipt["state"], &receipt["removed"]["vectors"]), (&json!("done"), &json!(1)));
    // Nothing is left that another could find.
    declined(sign(&partner, true));
}

#[test]
fn an_organizer_who_is_signed_in_erases_nobody() {
    let service = TestService::start();
    let organizer = signed_in(&service, "organizer@race.example", Role::Organizer);
    let owner = signed_in(&service, "owner@race.example", Role::Owner);
    let album = organizer.call("albums/create", json!({ "title": "Lake Marathon" })).ok()["id"].clone();
    let image =
        organizer.call("photos/search/face/signed", json!({ "albumId": album })).ok()["imageId"].clone();
    let request = json!({ "albumId": album, "imageId": image, "dryRun": true });
    let refused = organizer.call("faces/erase", request.clone()).defined_error(403, "FORBIDDEN");
    assert_eq!(refused["data"]["code"], "INSUFFICIENT_ROLE");
    let missing = owner.call("faces/erase", request).defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(missing["data"]["code"], "UPLOAD_MISSING");
}

#[test]
fn a_confirmation_is_of_one_request_and_one_tenant() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let request = json!({ "albumId": album, "bib": "1207", "dryRun": true });
    let confirm = partner.call("/people/erase", &request).ok()["confirm"].clone();
    let refused =
        |partner: &Partner, request: Value| -> ApiResponse { partner.call("/people/erase", &request) };
    for other in [
        json!({ "albumId": album, "bib": "1208", "confirm": confirm }),
        json!({ "albumId": album, "bib": "1207", "faces": false, "confirm": confirm }),
        json!({ "albumId": album, "bib": "1207", "photos": "delete", "confirm": confirm }),
        json!({ "albumId": album, "bib": "1207", "confirm": format!("99{}", confirm.as_str().unwrap()) }),
    ] {
        refused(&partner, other).defined_error(412, "PRECONDITION_FAILED");
    }
    let malformed = json!({ "albumId": album, "bib": "1207", "confirm": "yes" });
    assert_eq!(refused(&partner, malformed).issues()[0].0, "[\"confirm\"]");
    let stranger = service.partner_with("Forest Timing", KeyMode::Live, &Scope::ALL);
    let (theirs, _) = stranger.create_album();
    let of_theirs = json!({ "albumId": theirs, "bib": "1207", "confirm": confirm });
    refused(&stranger, of_theirs).defined_error(412, "PRECONDITION_FAILED");
    let ours = json!({ "albumId": album, "bib": "1207", "confirm": confirm });
    refused(&stranger, ours.clone()).defined_error(404, "NOT_FOUND");
    let searcher =
        service.partner_with("Lake Timing", KeyMode::Live, &[Scope::SearchRead, Scope::PhotoUpload]);
    refused(&searcher, ours.clone()).defined_error(403, "FORBIDDEN");
    let receipt = refused(&partner, ours).ok();
    assert_eq!(receipt["state"], json!("done"));
    let one = json!({ "receiptId": receipt["receiptId"] });
    for path in ["/erasures/get", "/erasures/verify"] {
        stranger.call(path, &one).defined_error(404, "NOT_FOUND");
        partner.call(path, &json!({ "receiptId": unknown_id() })).defined_error(404, "NOT_FOUND");
    }
    assert_eq!(stranger.call("/erasures/list", &json!({})).ok()["total"], json!(0));
}

#[test]
fn deletions_answer_with_their_erasure() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    service.ready_photo(&partner, album_id, vec![face(0.9)], vec![]);
    let on_photo = json!({ "albumId": album, "photoId": photo });
    let deleted = partner.call("/photos/photo/delete", &on_photo).ok()["receipt"].clone();
    assert_eq!((&deleted["state"], &deleted["jws"]), (&json!("running"), &json!(null)));
    assert_eq!(
        (&deleted["removed"]["objects"], &deleted["subject"]),
        (&json!(3), &json!({ "kind": "photo" }))
    );
    let removed = partner.call("/albums/delete", &json!({ "albumId": album })).ok()["receipt"].clone();
    assert_eq!((&removed["removed"]["photos"], &removed["removed"]["objects"]), (&json!(1), &json!(3)));
    service.block_on(async {
        let running = service.store.erasures.list_running(None).await.unwrap();
        assert_eq!(service.store.erasures.finish(&running).await.unwrap(), 2);
    });
    for erasure in [deleted, removed] {
        let done = partner.call("/erasures/get", &json!({ "receiptId": erasure["receiptId"] })).ok();
        assert_eq!(done["state"], json!("done"));
        assert!(verify(&get_keys(&partner), done["jws"].as_str().unwrap()).is_some());
    }
}

/// They are committed: whoever was told of a failure would ask again, and be told that there is no such photo.
#[test]
fn deletions_answer_with_their_erasure_while_the_storage_is_away() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    service.ready_photo(&partner, album_id, vec![face(0.9)], vec![]);
    let folder = |name: &str| service.folder.path().join(name);
    std::fs::rename(folder("objects"), folder("away")).unwrap();
    let on_photo = json!({ "albumId": album, "photoId": photo });
    let deleted = partner.call("/photos/photo/delete", &on_photo).ok()["receipt"].clone();
    partner.call("/photos/photo/get", &on_photo).defined_error(404, "NOT_FOUND");
    let removed = partner.call("/albums/delete", &json!({ "albumId": album })).ok()["receipt"].clone();
    partner.call("/albums/get", &json!({ "albumId": album })).defined_error(404, "NOT_FOUND");
    for receipt in [&deleted, &removed] {
        assert_eq!((&receipt["state"], &receipt["removed"]["objects"]), (&json!("running"), &json!(0)));
    }
    std::fs::rename(folder("away"), folder("objects")).unwrap();
    service.block_on(async {
        let running = service.store.erasures.list_running(None).await.unwrap();
        for id in &running {
            service.store.erasures.remove_objects(*id).await.unwrap();
        }
        assert_eq!(service.store.erasures.finish(&running).await.unwrap(), 2);
    });
    for erasure in [deleted, removed] {
        let done = partner.call("/erasures/get", &json!({ "receiptId": erasure["receiptId"] })).ok();
        assert_eq!((&done["state"], &done["removed"]["objects"]), (&json!("done"), &json!(3)));
    }
}

/// Has a visitor ask to be removed; returns the organizer's confirmed request to do so.
fn ask_to_be_removed(partner: &Partner, album: &Value, mut guest: Guest<'_>) -> Value {
    let agree = json!({ "consent": true, "consentVersion": 1, "language": "de" });
    let ticket = guest.call("search/face/signed", agree).ok();
    assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", b"face").status, 200);
    let shown = guest.call("erase/faces", json!({ "imageId": ticket["imageId"] })).ok();
    guest.call("erase/faces", json!({ "imageId": ticket["imageId"], "confirm": shown["confirm"] })).ok();
    let reports = partner.call("/albums/gallery/reports", &json!({ "albumId": album })).ok();
    let mut request = json!({ "albumId": album, "reportId": reports["reports"][0]["id"], "dryRun": true });
    let shown = partner.call("/albums/gallery/reports/erase", &request).ok();
    (request["dryRun"], request["confirm"]) = (json!(false), shown["confirm"].clone());
    request
}

/// It has the places of the faces. The receipt may take longer than the organizer waits.
#[test]
fn what_a_visitor_asked_for_is_gone_before_there_is_a_receipt() {
    // Half of the time that a request waits for its receipt.
    const SOON: Duration = Duration::from_secs(5);
    let service = TestService::start();
    let partner = service.partner();
    let rules = json!({ "selfieSearch": true, "contact": "privacy@race.example", "privacyUrl": "https://race.example/privacy" });
    let (album, url) = open_gallery(&service, &partner, rules);
    let request = ask_to_be_removed(&partner, &album, Guest::at(&service, &url)).to_string();
    // The receipt waits for the face index of this process, which stays behind.
    let report = ProcessReport { knows_erasures: true, faces_as_of: Some(0), ..ProcessReport::default() };
    let behind = Process {
        id: ProcessId::generate(),
        role: "serve".into(),
        host: "behind".into(),
        version: "0.1.0".into(),
        started_at: OffsetDateTime::UNIX_EPOCH,
        report,
    };
    service.block_on(service.store.processes.report(&behind)).unwrap();
    let list = |path: &str| partner.call(path, &json!({ "albumId": album })).ok();
    let mut organizer = RawConnection::connect(&service);
    let (key, length) = (partner.key.as_ref().unwrap(), request.len());
    organizer.write(&format!(
        "POST /openapi/albums/gallery/reports/erase HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{request}"
    ));
    wait_until("the erasure has begun", || list("/erasures/list")["total"] == 1);
    let begun = Instant::now();
    drop(organizer);
    wait_until("the request is gone", || list("/albums/gallery/reports")["reports"] == json!([]));
    assert!(begun.elapsed() < SOON, "it waited for the receipt");
    let erased = list("/erasures/list")["erasures"][0].clone();
    assert_eq!((&erased["state"], &erased["removed"]["vectors"]), (&json!("running"), &json!(1)));
}
