//! Outages of storage, limits that changed, and processes of separate roles: no photo fails because of them.

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, wait_until};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

fn photo() -> Vec<u8> {
    TestPhoto::new(800, 600).with_face(1, [100, 100, 120]).with_bib("1204", [400, 300]).to_jpeg()
}

#[test]
fn a_storage_outage_fails_no_photo() {
    // At first photos are only queued, so that none is read before the outage.
    let service = Service::start(ServiceOptions::with_fake_models().with_role("serve"));
    let album = service.partner().create_album("Disk");
    let large = TestPhoto::new(2400, 1800).with_bib("1204", [400, 300]).to_jpeg();
    let upload = |n| service.partner().upload_photo(&album, &format!("{n}.jpg"), &large);
    let photos: Vec<String> = (0..40).map(upload).collect();
    let ticket = service.partner().sign_photo(&album, "late.jpg", "image/jpeg");
    service.kill();
    let service = service.restart_with(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let (objects, away) = (service.data_dir().join("objects"), service.data_dir().join("away"));
    std::fs::write(&away, b"no folder").expect("a file in the place of the folder");
    // Atomic in both directions: workers access the folder meanwhile.
    let exchange = || renameat_with(CWD, &objects, CWD, &away, RenameFlags::EXCHANGE);
    exchange().expect("the outage begins");
    let ready = partner.get(&format!("{}/readyz", service.origin()));
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(ready.text().contains("storage"), "{}", ready.text());
    let alive = partner.get(&format!("{}/healthz", service.origin()));
    assert_eq!(alive.status, 200, "{}", alive.text());
    partner.put(&ticket.upload_url, "image/jpeg", &photo()).expect_defined_error(503);
    partner.confirm_photo(&album, &ticket.photo_id).expect_defined_error(503);
    wait_until("the pipeline notices the outage", || {
        let ready = partner.get(&format!("{}/readyz", service.origin())).json();
        ready["parts"].as_array().is_some_and(|parts| {
            parts.iter().any(|part| part["name"] == "pipeline" && part["state"] != "running")
        })
    });
    assert_eq!(partner.album_progress(&album)["failed"], 0, "an outage fails no photo");

    exchange().expect("the outage ends");
    partner.wait_until_idle(&album);
    for photo in &photos {
        assert_eq!(partner.get_photo(&album, photo)["state"], "ready");
    }
    assert_eq!(partner.put(&ticket.upload_url, "image/jpeg", &photo()).status, 200);
    partner.confirm_photo(&album, &ticket.photo_id).expect_ok();
    assert_eq!(partner.wait_until_idle(&album)["ready"], 41);
    wait_until("the service is ready again", || {
        partner.get(&format!("{}/readyz", service.origin())).status == 200
    });
}

#[test]
fn api_and_worker_run_as_two_processes() {
    let api = Service::start(ServiceOptions::with_fake_models().with_role("serve"));
    let partner = api.partner();
    let album = partner.create_album("Apart");
    partner.upload_photo(&album, "before.jpg", &photo());
    assert_eq!(partner.album_progress(&album)["queued"], 1, "an API alone reads no photos");
    let worker = api.start_beside(ServiceOptions::with_fake_models().with_role("work"));
    partner.wait_until_idle(&album);
    partner.upload_photo(&album, "after.jpg", &photo());
    partner.wait_until_idle(&album);
    assert_eq!(partner.search_by_bib(&album, "1204").len(), 2);
    assert_eq!(
        partner.search_by_selfie(&album, &TestPhoto::selfie(1).to_jpeg()).len(),
        2,
        "the API's index follows the database"
    );
    let metrics = partner.get(&format!("{}/metrics", worker.origin()));
    assert_eq!(metrics.status, 200, "a worker serves its health and metrics");
    let call = worker.partner().call("/albums/list", &json!({}));
    assert_eq!(call.status, 404, "and no API: {}", call.text());
}

#[test]
fn a_photo_that_became_too_large_fails_with_its_reason() {
    let service = Service::start(ServiceOptions::with_fake_models().with_role("serve"));
    let album = service.partner().create_album("Shrunk limits");
    let mut large = photo();
    large.resize(1_500_000, 0);
    let wide = TestPhoto::new(1500, 1000).to_jpeg();
    let (large, wide, fine) = {
        let partner = service.partner();
        let upload = |name: &str, bytes: &[u8]| partner.upload_photo(&album, name, bytes);
        (upload("large.jpg", &large), upload("wide.jpg", &wide), upload("fine.jpg", &photo()))
    };
    service.kill();
    let limits = ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_MAX_PHOTO_MB", "1")
        .with_setting("PHOTOFINISH_MAX_MEGAPIXELS", "1");
    let service = service.restart_with(limits);
    let partner = service.partner();
    partner.wait_until_idle(&album);
    assert_eq!(partner.get_photo(&album, &large)["failure"], "TOO_LARGE");
    assert_eq!(partner.get_photo(&album, &wide)["failure"], "TOO_MANY_PIXELS");
    assert_eq!(partner.get_photo(&album, &fine)["state"], "ready");
}

#[test]
fn selfies_beyond_the_queue_capacity_are_429_with_retry_after() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Rush");
    // Slow to decode, so that the queue of selfies fills up.
    let selfie = TestPhoto::new(4000, 3000).with_face(1, [1000, 800, 1200]).to_progressive_jpeg();
    let images: Vec<String> = (0..64).map(|_| partner.upload_selfie(&album, &selfie)).collect();
    let responses: Vec<_> = std::thread::scope(|scope| {
        let (partner, album) = (&partner, &album);
        let searches: Vec<_> =
            images.iter().map(|image| scope.spawn(move || partner.search_by_image(album, image))).collect();
        searches.into_iter().map(|search| search.join().expect("a response")).collect()
    });
    let refused: Vec<_> = responses.iter().filter(|response| response.status != 200).collect();
    assert!(!refused.is_empty(), "64 selfies at once were all accepted");
    assert!(refused.len() < responses.len(), "all selfies were refused");
    for response in refused {
        let data = response.expect_defined_error(429);
        assert!(data["tryAgainIn"].as_f64().is_some_and(|seconds| seconds > 0.0), "{data}");
        assert!(response.header("retry-after").is_some(), "{:?}", response.headers);
    }
    for image in &images[..3] {
        wait_until("a refused selfie is served later", || {
            partner.search_by_image(&album, image).status == 200
        });
    }
}
