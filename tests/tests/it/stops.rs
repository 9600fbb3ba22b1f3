//! Stops while photos are read slowly: each ends within the grace period, gives the photos back, and counts no attempt.
//! Issue 9: a sound photo that met three stops ended as crashed, and each stop took 40 s.

use std::time::Duration;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Exit, Service, ServiceOptions, wait_until};
use serde_json::json;

/// Longer than a stop takes, with a grace period of a second; also on a busy machine.
const LONGEST_STOP: Duration = Duration::from_secs(18);

/// A single attempt that a stop counts would fail the photo.
fn options(read_delay_ms: u64) -> ServiceOptions {
    ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_ATTEMPT_LIMIT", "1")
        .with_setting("PHOTOFINISH_DRAIN_SECONDS", "1")
        .with_setting("PHOTOFINISH_FAKE_DELAY_MS", read_delay_ms.to_string())
}

/// Stops the service while it reads a photo, three times; then lets it read the photo at full speed.
#[track_caller]
fn check_three_stops(read_delay_ms: u64, album: &serde_json::Value, picture: &TestPhoto) -> String {
    let service = Service::start(options(read_delay_ms));
    let album = service.partner().create_album_with(album);
    let photo = service.partner().upload_photo(&album, "slow.jpg", &picture.to_jpeg());
    for stop in 1..=3 {
        wait_until("the photo is processed", || service.partner().album_progress(&album)["processing"] == 1);
        let Exit { code, took } = service.terminate(Duration::from_secs(120));
        assert_eq!(code, Some(0), "stop {stop} is no failure; log:\n{}", service.log());
        assert!(took < LONGEST_STOP, "stop {stop} took {took:?}; log:\n{}", service.log());
        if stop < 3 {
            service.restart();
        }
    }
    let service = service.restart_with(options(0));
    let progress = service.partner().wait_until_idle(&album);
    assert_eq!(progress["ready"], 1, "{progress}; log:\n{}", service.log());
    assert_eq!(service.partner().get_photo(&album, &photo)["state"], "ready");
    service.log()
}

#[test]
fn a_photo_whose_network_hangs_at_three_stops_is_ready_in_the_end() {
    let picture = TestPhoto::new(1600, 1200).with_face(1, [200, 150, 140]).with_bib("4242", [200, 600]);
    // One call of the network takes longer than a stop waits for any thread.
    let log = check_three_stops(50_000, &json!({ "title": "Hanging" }), &picture);
    let left = log.lines().filter(|line| line.contains("threads did not exit in time"));
    assert_eq!(left.count(), 3, "the calls did not outlast the stops, so the test proves nothing:\n{log}");
}

#[test]
fn a_stop_ends_between_two_cells_of_a_photo() {
    let grid =
        json!({ "mode": "grid", "grid": { "rows": 16, "columns": 16, "cellWidth": 640, "cellHeight": 640 } });
    let album = json!({ "title": "Grid", "config": { "text": grid } });
    // 16 cells and the whole photo: 51 s, three for each step.
    let log = check_three_stops(3000, &album, &TestPhoto::new(2600, 2600).with_bib("4242", [200, 600]));
    assert!(!log.contains("threads did not exit in time"), "{log}");
}
