//! Parts that do not serve for a while, and processes apart: nobody's photo fails for it.

use photofinish_tests::harness::pictures::Picture;
use photofinish_tests::harness::{Options, Service, wait_until};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

fn photo() -> Vec<u8> {
    Picture::new(800, 600).face(1, [100, 100, 120]).bib("1204", [400, 300]).jpeg()
}

#[test]
fn a_storage_that_does_not_serve_for_a_while_fails_no_photo() {
    // Photos are only queued at first, so that they are all still to be read when the disk goes.
    let service = Service::start(Options::fakes().role("serve"));
    let album = service.partner().album("Disk");
    let large = Picture::new(2400, 1800).bib("1204", [400, 300]).jpeg();
    let upload = |n| service.partner().upload(&album, &format!("{n}.jpg"), &large);
    let photos: Vec<String> = (0..40).map(upload).collect();
    let ticket = service.partner().signed(&album, "late.jpg", "image/jpeg");
    service.kill9();
    let service = service.again(Options::fakes());
    let partner = service.partner();
    let (objects, away) = (service.data_dir().join("objects"), service.data_dir().join("away"));
    std::fs::write(&away, b"no folder").expect("something else to be in its place");
    // In one step each way: workers are at it.
    let exchange = || renameat_with(CWD, &objects, CWD, &away, RenameFlags::EXCHANGE);
    exchange().expect("the disk goes");
    let ready = partner.get(&format!("{}/readyz", service.origin()));
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(ready.text().contains("storage"), "{}", ready.text());
    let alive = partner.get(&format!("{}/healthz", service.origin()));
    assert_eq!(alive.status, 200, "{}", alive.text());
    partner.put(&ticket.url, "image/jpeg", &photo()).defined(503);
    partner.confirm(&album, &ticket.id).defined(503);
    wait_until("the pipeline meets the outage", || {
        let ready = partner.get(&format!("{}/readyz", service.origin())).json();
        ready["parts"].as_array().is_some_and(|parts| {
            parts.iter().any(|part| part["name"] == "pipeline" && part["state"] != "running")
        })
    });
    assert_eq!(partner.progress(&album)["failed"], 0, "an outage is nobody's fault");

    exchange().expect("the disk comes back");
    partner.wait_idle(&album);
    for photo in &photos {
        assert_eq!(partner.photo(&album, photo)["state"], "ready");
    }
    assert_eq!(partner.put(&ticket.url, "image/jpeg", &photo()).status, 200);
    partner.confirm(&album, &ticket.id).ok();
    assert_eq!(partner.wait_idle(&album)["ready"], 41);
    wait_until("the service is ready again", || {
        partner.get(&format!("{}/readyz", service.origin())).status == 200
    });
}

#[test]
fn api_and_worker_run_as_two_processes() {
    let api = Service::start(Options::fakes().role("serve"));
    let partner = api.partner();
    let album = partner.album("Apart");
    partner.upload(&album, "before.jpg", &photo());
    assert_eq!(partner.progress(&album)["queued"], 1, "an API alone reads no photos");
    let worker = api.beside(Options::fakes().role("work"));
    partner.wait_idle(&album);
    partner.upload(&album, "after.jpg", &photo());
    partner.wait_idle(&album);
    assert_eq!(partner.find_text(&album, "1204").len(), 2);
    assert_eq!(
        partner.find_face(&album, &Picture::selfie(1).jpeg()).len(),
        2,
        "the API's index follows the rows"
    );
    let metrics = partner.get(&format!("{}/metrics", worker.origin()));
    assert_eq!(metrics.status, 200, "a worker serves its health and metrics");
    let call = worker.partner().call("/albums/list", &json!({}));
    assert_eq!(call.status, 404, "and no API: {}", call.text());
}

#[test]
fn a_photo_that_became_too_large_fails_with_its_reason() {
    let service = Service::start(Options::fakes().role("serve"));
    let album = service.partner().album("Shrunk limits");
    let mut large = photo();
    large.resize(1_500_000, 0);
    let wide = Picture::new(1500, 1000).jpeg();
    let (large, wide, fine) = {
        let partner = service.partner();
        let upload = |name: &str, bytes: &[u8]| partner.upload(&album, name, bytes);
        (upload("large.jpg", &large), upload("wide.jpg", &wide), upload("fine.jpg", &photo()))
    };
    service.kill9();
    let limits =
        Options::fakes().with("PHOTOFINISH_MAX_PHOTO_MB", "1").with("PHOTOFINISH_MAX_MEGAPIXELS", "1");
    let service = service.again(limits);
    let partner = service.partner();
    partner.wait_idle(&album);
    assert_eq!(partner.photo(&album, &large)["failure"], "TOO_LARGE");
    assert_eq!(partner.photo(&album, &wide)["failure"], "TOO_MANY_PIXELS");
    assert_eq!(partner.photo(&album, &fine)["state"], "ready");
}

#[test]
fn more_selfies_than_can_be_looked_at_are_told_to_come_again() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Rush");
    // Slow to decode, so that the desk fills.
    let selfie = Picture::new(4000, 3000).face(1, [1000, 800, 1200]).progressive_jpeg();
    let images: Vec<String> = (0..64).map(|_| partner.selfie(&album, &selfie)).collect();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let (partner, album) = (&partner, &album);
        let asked: Vec<_> =
            images.iter().map(|image| scope.spawn(move || partner.face_search(album, image))).collect();
        asked.into_iter().map(|answer| answer.join().expect("an answer")).collect()
    });
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!(!refused.is_empty(), "64 selfies at once found a seat each");
    assert!(refused.len() < answers.len(), "nobody was served");
    for answer in refused {
        let data = answer.defined(429);
        assert!(data["tryAgainIn"].as_f64().is_some_and(|seconds| seconds > 0.0), "{data}");
        assert!(answer.header("retry-after").is_some(), "{:?}", answer.headers);
    }
    for image in &images[..3] {
        wait_until("a refused selfie is served later", || partner.face_search(&album, image).status == 200);
    }
}
