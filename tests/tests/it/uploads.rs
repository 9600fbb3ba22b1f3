//! Upload URLs, confirmation and selfies: what is bound to what, and what is left lying.

use photofinish_tests::harness::raw_http::RawConnection;
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, SharedService, SharedServiceRef, wait_until};
use serde_json::json;

static GROUP: SharedService = SharedService::new();

/// How many bodies are being received.
fn parts(service: &Service) -> usize {
    let scratch = service.data_dir().join("objects/scratch").read_dir().expect("the folder of parts");
    let names = scratch.map(|entry| entry.expect("an entry of the folder").path());
    names.filter(|path| path.extension().is_some_and(|kind| kind == "part")).count()
}

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

#[test]
fn an_upload_url_is_bound_to_its_content_type() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Typed");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    let photo = TestPhoto::new(64, 64).to_jpeg();
    assert_eq!(partner.put(&ticket.url, "image/png", &photo).status, 403);
    assert_eq!(
        partner.confirm_photo(&album, &ticket.id).status,
        412,
        "nothing was kept of the refused upload"
    );
    assert_eq!(partner.put(&ticket.url, "image/jpeg", &photo).status, 200);
}

#[test]
fn an_upload_url_that_was_tampered_with_is_403() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Tampered");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    let other = partner.sign_photo(&album, "b.jpg", "image/jpeg");
    let photo = TestPhoto::new(64, 64).to_jpeg();
    let (_, query) = ticket.url.split_once('?').expect("the signature is in the query");
    for (place, letter) in query.char_indices().filter(|(_, letter)| letter.is_ascii_alphanumeric()) {
        let replacement = if letter == '1' { "2" } else { "1" };
        let mut tampered = query.to_owned();
        tampered.replace_range(place..=place, replacement);
        let url = ticket.url.replace(query, &tampered);
        let answer = partner.put(&url, "image/jpeg", &photo);
        assert_eq!(
            answer.status,
            403,
            "taken with the query {tampered} in place of {query}: {}",
            answer.text()
        );
    }
    let swapped = ticket.url.replace(&ticket.id, &other.id);
    assert_ne!(swapped, ticket.url, "the URL names its photo");
    assert_eq!(partner.put(&swapped, "image/jpeg", &photo).status, 403);
    let bare = ticket.url.split('?').next().expect("a URL");
    assert_eq!(partner.put(bare, "image/jpeg", &photo).status, 403);
    assert!(partner.put(&ticket.url, "image/jpeg", &photo).status == 200, "the URL itself still holds");
}

#[test]
fn an_upload_url_takes_no_other_method() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Methods");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    partner.put(&ticket.url, "image/jpeg", &TestPhoto::new(64, 64).to_jpeg());
    let path = ticket.url.strip_prefix(&service.origin()).expect("the service's own URL");
    for method in ["GET", "POST", "DELETE", "PATCH"] {
        let mut connection = RawConnection::connect(service.port());
        connection.send_head(method, path, &[("content-type", "image/jpeg"), ("content-length", "0")]);
        let status = connection.read_response().status;
        assert!(status == 403 || status == 405, "{method}: {status}");
    }
    let album_id = json!({ "albumId": album });
    assert_eq!(partner.call_ok("/photos/photo/list", &album_id)["total"], 1, "nothing was deleted");
    partner.confirm_photo(&album, &ticket.id).expect_ok();
}

#[test]
fn a_download_url_takes_no_put() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Downloads");
    let photo = partner.upload_photo(&album, "a.jpg", &TestPhoto::new(320, 240).to_jpeg());
    partner.wait_until_idle(&album);
    let url = partner.get_photo(&album, &photo)["url"].as_str().expect("a preview").to_owned();
    let before = partner.get(&url).body;
    let status = partner.put(&url, "image/jpeg", b"replaced").status;
    assert!(status == 403 || status == 405, "{status}");
    assert_eq!(partner.get(&url).body, before);
}

#[test]
fn expired_upload_and_download_urls_are_403() {
    let options = ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_UPLOAD_SECONDS", "20")
        .with_setting("PHOTOFINISH_DOWNLOAD_SECONDS", "20");
    let service = Service::start(options);
    let partner = service.partner();
    let album = partner.create_album("Late");
    let photo = partner.upload_photo(&album, "a.jpg", &TestPhoto::new(320, 240).to_jpeg());
    partner.wait_until_idle(&album);
    let upload = partner.sign_photo(&album, "b.jpg", "image/jpeg").url;
    let preview = partner.get_photo(&album, &photo)["url"].as_str().expect("a preview").to_owned();
    assert_eq!(partner.get(&preview).status, 200);
    wait_until("the URLs expire", || {
        partner.put(&upload, "image/jpeg", b"x").status == 403 && partner.get(&preview).status == 403
    });
}

#[test]
fn an_upload_over_the_limit_is_413_with_and_without_a_length() {
    let service = Service::start(
        ServiceOptions::with_fake_models()
            .with_setting("PHOTOFINISH_MAX_PHOTO_MB", "1")
            .with_setting("PHOTOFINISH_MAX_SELFIE_MB", "1"),
    );
    let partner = service.partner();
    let album = partner.create_album("Large");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    let large = vec![0xff; 1_000_001];
    assert_eq!(partner.put(&ticket.url, "image/jpeg", &large).status, 413);
    assert_eq!(partner.put(&partner.sign_selfie(&album).url, "image/jpeg", &large).status, 413);
    let path = ticket.url.strip_prefix(&service.origin()).expect("the service's own URL");
    let mut connection = RawConnection::connect(service.port());
    connection.send_head("PUT", path, &[("content-type", "image/jpeg"), ("transfer-encoding", "chunked")]);
    for _ in 0..40 {
        if !connection.send_chunk(&[0xff; 1 << 15]) {
            break;
        }
    }
    assert_eq!(connection.read_response().status, 413);
    assert_eq!(partner.confirm_photo(&album, &ticket.id).status, 412, "nothing was kept");
    assert_eq!(service.list_objects(), Vec::<std::path::PathBuf>::new());
    assert_eq!(partner.put(&ticket.url, "image/jpeg", &large[..1_000_000]).status, 200, "exactly the limit");
}

#[test]
fn an_interrupted_upload_leaves_nothing() {
    // One of its own: other tests' uploads have parts too.
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Broken off");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    let path = ticket.url.strip_prefix(&service.origin()).expect("the service's own URL").to_owned();
    let mut connection = RawConnection::connect(service.port());
    connection.send_head("PUT", &path, &[("content-type", "image/jpeg"), ("content-length", "100000")]);
    connection.send_body(&[0xff; 5000]);
    wait_until("the upload has begun", || parts(&service) == 1);
    drop(connection);
    wait_until("the service has noticed the end", || parts(&service) == 0);
    assert_eq!(partner.confirm_photo(&album, &ticket.id).status, 412);
    partner.put(&ticket.url, "image/jpeg", &TestPhoto::new(64, 64).to_jpeg());
    partner.confirm_photo(&album, &ticket.id).expect_ok();
}

#[test]
fn a_confirmation_can_be_repeated() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Twice");
    let photo = partner.upload_photo(
        &album,
        "a.jpg",
        &TestPhoto::new(320, 240).with_bib("4711", [100, 100]).to_jpeg(),
    );
    for _ in 0..3 {
        assert_eq!(partner.confirm_photo(&album, &photo).expect_ok()["success"], true);
    }
    partner.wait_until_idle(&album);
    assert_eq!(partner.confirm_photo(&album, &photo).expect_ok()["success"], true);
    let progress = partner.wait_until_idle(&album);
    assert_eq!((&progress["ready"], &progress["total"]), (&json!(1), &json!(1)));
    assert_eq!(partner.get_photo(&album, &photo)["texts"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_selfie_is_deleted_as_soon_as_its_embedding_is_computed() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Private");
    let image = partner.upload_selfie(&album, &TestPhoto::selfie(3).to_jpeg());
    assert_eq!(service.list_objects().len(), 1, "the selfie waits for its search");
    partner.search_by_image(&album, &image).expect_ok();
    assert_eq!(service.list_objects(), Vec::<std::path::PathBuf>::new());
    partner.search_by_image(&album, &image).expect_ok();
}

#[test]
fn a_declined_selfie_is_declined_again_and_gone_when_it_expires() {
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_PROBE_SECONDS", "20"));
    let partner = service.partner();
    let album = partner.create_album("Declined");
    let faceless = partner.upload_selfie(&album, &TestPhoto::new(320, 240).to_jpeg());
    let unreadable = partner.upload_selfie(&album, b"not a picture");
    for _ in 0..2 {
        assert_eq!(
            partner.search_by_image(&album, &faceless).expect_defined_error(422)["declineCode"],
            "NO_FACE"
        );
        assert_eq!(
            partner.search_by_image(&album, &unreadable).expect_defined_error(422)["declineCode"],
            "UNREADABLE_IMAGE"
        );
    }
    wait_until("declined selfies are removed", || service.list_objects().is_empty());
    partner.search_by_image(&album, &faceless).expect_defined_error(404);
}

#[test]
fn a_probe_lives_as_long_as_configured_and_is_then_unknown() {
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_PROBE_SECONDS", "20"));
    let partner = service.partner();
    let album = partner.create_album("Short-lived");
    // In this order: once the used one is unknown, the other is too.
    let unused = partner.upload_selfie(&album, &TestPhoto::selfie(4).to_jpeg());
    let used = partner.upload_selfie(&album, &TestPhoto::selfie(3).to_jpeg());
    partner.search_by_image(&album, &used).expect_ok();
    wait_until("the probe expires", || partner.search_by_image(&album, &used).status != 200);
    partner.search_by_image(&album, &used).expect_defined_error(404);
    partner.search_by_image(&album, &unused).expect_defined_error(404);
    wait_until("the selfie that was never used is removed", || service.list_objects().is_empty());
}

#[test]
fn a_batch_signs_and_confirms_each_photo_with_its_own_result() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Batch");
    let entry = |name: &str, content_type: &str| json!({ "filename": name, "contentType": content_type });
    let input = json!({ "albumId": album, "entries": [
        entry("a.jpg", "image/jpeg"), entry("b.gif", "image/gif"), entry("c.png", "image/png"), entry("d.jpg", "image/jpeg"),
    ]});
    let signed = partner.call_ok("/photos/photo/signed/batch", &input);
    let results = signed["results"].as_array().expect("a result per photo");
    let taken: Vec<bool> = results.iter().map(|result| result["success"] == true).collect();
    assert_eq!(taken, [true, false, true, true], "{signed}");
    assert_eq!(results[1]["error"]["code"], "UNSUPPORTED_MEDIA_TYPE", "{signed}");
    let url = |at: usize| results[at]["uploadUrl"].as_str().expect("a URL");
    let id = |at: usize| results[at]["photoId"].clone();
    let picture = TestPhoto::new(320, 240);
    assert_eq!(partner.put(url(0), "image/jpeg", &picture.to_jpeg()).status, 200);
    assert_eq!(partner.put(url(2), "image/png", &picture.to_png()).status, 200);
    let nowhere = "01890000-0000-7000-8000-000000000000";
    let confirm = json!({ "albumId": album, "photoIds": [id(0), id(2), id(3), nowhere, id(0)] });
    let confirmed = partner.call_ok("/photos/photo/success/batch", &confirm);
    let results = confirmed["results"].as_array().expect("a result per photo");
    let taken: Vec<bool> = results.iter().map(|result| result["success"] == true).collect();
    assert_eq!(taken, [true, true, false, false, true], "{confirmed}");
    assert_eq!(results[2]["error"]["code"], "PRECONDITION_FAILED", "{confirmed}");
    assert_eq!(results[2]["error"]["data"]["code"], "UPLOAD_MISSING", "{confirmed}");
    assert_eq!(results[3]["error"]["code"], "NOT_FOUND", "{confirmed}");
    let progress = partner.wait_until_idle(&album);
    assert_eq!(progress["ready"], 2, "{progress}");
    assert_eq!(progress["awaitingUpload"], 1, "{progress}");
}

#[test]
fn a_batch_of_more_than_a_thousand_is_an_input_issue() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Thousand");
    let photos = |count: usize| {
        let entries: Vec<_> = (0..count)
            .map(|n| json!({ "filename": format!("{n}.jpg"), "contentType": "image/jpeg" }))
            .collect();
        json!({ "albumId": album, "entries": entries })
    };
    assert_eq!(partner.call("/photos/photo/signed/batch", &photos(1001)).expect_issues(), ["entries"]);
    let signed = partner.call_ok("/photos/photo/signed/batch", &photos(1000));
    assert_eq!(signed["results"].as_array().map(Vec::len), Some(1000));
    assert_eq!(partner.album_progress(&album)["awaitingUpload"], 1000);
}
