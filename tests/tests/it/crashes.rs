//! Power cuts and stops in the middle of an event: every confirmed photo becomes ready, exactly once.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Exit, Partner, Service, ServiceOptions, wait_until};
use serde_json::{Value, json};

/// Photos of the event: enough that a kill hits every stage.
const PHOTOS: usize = 60;
/// Every photo shows its own bib, this person, and this bib.
const COMMON_PERSON: u16 = 1;
const COMMON_BIB: &str = "4242";

/// The bib that only this photo shows. None is one edit away from the common one.
fn own_bib(number: usize) -> String {
    format!("{}", 70_100 + number)
}

fn photo(number: usize) -> Vec<u8> {
    TestPhoto::new(1600, 1200)
        .with_face(COMMON_PERSON, [200, 150, 140])
        .with_bib(COMMON_BIB, [200, 600])
        .with_face(2, [900, 150, 140])
        .with_bib(&own_bib(number), [900, 600])
        .to_jpeg()
}

/// Uploads the event; returns the ids of the confirmed photos.
fn upload_event(partner: &Partner, album: &str) -> Vec<String> {
    (0..PHOTOS).map(|number| partner.upload_photo(album, &format!("{number}.jpg"), &photo(number))).collect()
}

/// Checks that every confirmed photo is ready once, with its own faces and texts, and that searches find each once.
#[track_caller]
fn check_event(partner: &Partner, album: &str, confirmed: &[String]) {
    let progress = partner.wait_until_idle(album);
    let photos = partner.list_photos(album);
    let states: HashMap<&str, &str> =
        photos.iter().filter_map(|photo| Some((photo["id"].as_str()?, photo["state"].as_str()?))).collect();
    assert_eq!(states.len(), photos.len(), "no photo is listed twice");
    for id in confirmed {
        assert_eq!(states.get(id.as_str()), Some(&"ready"), "{id} of {progress}");
    }
    for id in confirmed {
        let photo = partner.get_photo(album, id);
        let counts = (photo["faces"].as_array().map(Vec::len), photo["texts"].as_array().map(Vec::len));
        assert_eq!(counts, (Some(2), Some(2)), "nothing is duplicated or lost: {photo}");
        assert_eq!(partner.get(photo["url"].as_str().expect("a preview")).status, 200);
    }
    let by_text = partner.search_by_bib_exact(album, COMMON_BIB);
    check_hits(&by_text, confirmed);
    let image = partner.upload_selfie(album, &TestPhoto::selfie(COMMON_PERSON).to_jpeg());
    let by_face = partner.search_by_image(album, &image).expect_ok();
    check_hits(by_face["photos"].as_array().expect("hits"), confirmed);
    for (number, id) in confirmed.iter().enumerate() {
        let own = partner.search_by_bib_exact(album, &own_bib(number));
        assert_eq!(
            own.iter().map(|hit| &hit["id"]).collect::<Vec<_>>(),
            [&json!(id)],
            "bib of photo {number}"
        );
    }
}

#[track_caller]
fn check_hits(hits: &[Value], confirmed: &[String]) {
    let found: HashSet<&str> = hits.iter().filter_map(|hit| hit["id"].as_str()).collect();
    assert_eq!(found.len(), hits.len(), "one hit a photo");
    assert_eq!(
        found,
        confirmed.iter().map(String::as_str).collect(),
        "search finds exactly the confirmed photos"
    );
}

#[test]
fn power_cuts_in_the_middle_of_an_event_lose_nothing_and_duplicate_nothing() {
    // A photo in flight at each of several cuts must not be taken for the cause of the crashes.
    let options = || ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_ATTEMPT_LIMIT", "12");
    // At first photos are only queued, so that none is read before the first cut.
    let service = Service::start(options().with_role("serve"));
    let album = service.partner().create_album("Storm");
    let confirmed = upload_event(&service.partner(), &album);
    service.kill();
    let service = service.restart_with(options());
    let mut cuts = 0;
    for wait in [0, 150, 40, 400, 90, 250] {
        let before = service.partner().album_progress(&album);
        std::thread::sleep(Duration::from_millis(wait));
        service.kill();
        service.restart();
        cuts += 1;
        if before["ready"] == PHOTOS {
            break;
        }
    }
    assert!(cuts >= 3, "the photos were read before the third cut: use more photos");
    check_event(&service.partner(), &album, &confirmed);
}

#[test]
fn a_power_cut_between_uploads_loses_no_confirmed_photo() {
    // As above: the photos in flight at a cut are crash suspects, and the same ones come first after each restart.
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_ATTEMPT_LIMIT", "12"));
    let album = service.partner().create_album("Uploads");
    let bytes = photo(0);
    let mut confirmed = Vec::new();
    for _ in 0..3 {
        // The service is killed while a thread uploads: every photo that was confirmed to the thread counts.
        let (sender, receiver) = std::sync::mpsc::sync_channel(PHOTOS);
        std::thread::scope(|scope| {
            let partner = service.partner();
            let (album, bytes) = (&album, &bytes);
            scope.spawn(move || {
                for number in 0..PHOTOS {
                    let Some(id) = partner.try_upload_photo(album, &format!("{number}.jpg"), bytes) else {
                        return;
                    };
                    if sender.send(id).is_err() {
                        return;
                    }
                }
            });
            confirmed.extend(receiver.iter().take(8));
            service.kill();
            confirmed.extend(receiver.iter());
        });
        service.restart();
    }
    let partner = service.partner();
    partner.wait_until_idle(&album);
    let ready: HashSet<String> = partner
        .list_photos(&album)
        .iter()
        .filter(|photo| photo["state"] == "ready")
        .filter_map(|photo| photo["id"].as_str().map(str::to_owned))
        .collect();
    for id in &confirmed {
        assert!(ready.contains(id), "{id} was confirmed and is not ready");
    }
}

#[test]
fn a_stop_under_load_is_clean_and_the_rest_is_processed_after_the_next_start() {
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_DRAIN_SECONDS", "5"));
    let album = service.partner().create_album("Stopped");
    let confirmed = upload_event(&service.partner(), &album);
    for _ in 0..3 {
        let Exit { code, took } = service.terminate(Duration::from_secs(40));
        assert_eq!(code, Some(0), "a stop is no failure; log:\n{}", service.log());
        assert!(took < Duration::from_secs(20), "a stop took {took:?} with a drain limit of 5 s");
        service.restart();
    }
    check_event(&service.partner(), &album, &confirmed);
}

#[test]
fn a_stop_of_an_idle_service_is_quick() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let Exit { code, took } = service.terminate(Duration::from_secs(20));
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_stop_in_the_middle_of_progress_streams_is_quick() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Watched");
    let _promised = upload_event(&partner, &album);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| partner.client().stream_progress(&album).map(Iterator::count).ok());
        wait_until("the first photo is ready", || partner.album_progress(&album)["ready"] != 0);
        let Exit { code, took } = service.terminate(Duration::from_secs(40));
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_secs(25), "{took:?}");
        watcher.join().expect("the watcher does not panic");
    });
}

#[test]
fn a_photo_that_crashes_its_process_each_time_fails_alone() {
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_ATTEMPT_LIMIT", "3"));
    let album = service.partner().create_album("Killer");
    let upload = |name: &str, bytes: &[u8]| service.partner().try_upload_photo(&album, name, bytes);
    let mut neighbours: Vec<String> = (0..6).filter_map(|n| upload(&format!("{n}.jpg"), &photo(n))).collect();
    let killer = upload("killer.jpg", &TestPhoto::new(1600, 1200).with_bib("ABORT", [200, 600]).to_jpeg());
    neighbours.extend((6..12).filter_map(|n| upload(&format!("{n}.jpg"), &photo(n))));
    assert!(neighbours.len() >= 6 && killer.as_ref().is_none_or(|killer| !neighbours.contains(killer)));

    // A supervisor restarts the service whenever it ends, until no photo is queued or processed.
    let mut starts = 0;
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        assert!(Instant::now() < deadline, "photos are left after {starts} restarts");
        if service.has_exited() {
            starts += 1;
            service.try_restart();
        } else if service.partner().client().album_progress(&album).is_ok_and(|progress| progress.is_idle()) {
            break;
        }
    }
    assert!(
        (2..=4).contains(&starts),
        "the limit of attempts is 3, and the process was restarted {starts} times"
    );
    let partner = service.partner();
    for neighbour in &neighbours {
        assert_eq!(
            partner.get_photo(&album, neighbour)["state"],
            "ready",
            "a photo next to the one that crashes the process"
        );
    }
    let failed = partner.call_ok("/photos/photo/list", &json!({ "albumId": album, "state": "failed" }));
    assert_eq!(failed["total"], 1, "{failed}");
    let failed = &failed["photos"][0];
    assert_eq!(
        (&failed["filename"], &failed["failure"]),
        (&json!("killer.jpg"), &json!("PROCESSING_CRASHED"))
    );
    let progress = partner.album_progress(&album);
    assert_eq!((&progress["queued"], &progress["processing"]), (&json!(0), &json!(0)), "{progress}");
    // Counted by the process that finds the limit reached: those that crashed could not.
    let metrics = partner.get(&format!("{}/metrics", service.origin())).text();
    let counted = "photofinish_photos_failed_total{reason=\"PROCESSING_CRASHED\"} 1";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
}

#[test]
fn a_second_process_on_the_same_data_is_refused() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let second =
        service.run(&["all", "--listen", &format!("127.0.0.1:{}", photofinish_tests::harness::free_port())]);
    assert_eq!(second.code, Some(1), "{}", second.combined_output());
    assert!(second.stderr.contains("another photofinish"), "{}", second.stderr);
    assert!(!second.stderr.contains("panicked"), "{}", second.stderr);
}

#[test]
fn a_second_data_folder_on_the_same_database_is_refused() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (data_dir, port) = (elsewhere.path().to_string_lossy(), photofinish_tests::harness::free_port());
    let database = format!("sqlite:{}", service.data_dir().join("photofinish.sqlite").display());
    let listen = format!("127.0.0.1:{port}");
    let second =
        service.run(&["all", "--listen", &listen, "--data-dir", &data_dir, "--database-url", &database]);
    assert_eq!(second.code, Some(1), "{}", second.combined_output());
    assert!(second.stderr.contains("another photofinish"), "{}", second.stderr);
}

#[test]
fn a_photo_whose_bytes_are_missing_fails_with_missing_object() {
    let service = Service::start(ServiceOptions::with_fake_models().with_role("serve"));
    let partner = service.partner();
    let album = partner.create_album("Vanished");
    let kept = partner.upload_photo(&album, "kept.jpg", &photo(1));
    let lost = partner.upload_photo(&album, "lost.jpg", &photo(2));
    assert_eq!(partner.album_progress(&album)["queued"], 2, "an API alone reads no photos");
    for object in service.list_objects() {
        if object.to_string_lossy().contains(&lost) {
            std::fs::remove_file(object).expect("an object can be removed");
        }
    }
    let code = service.terminate(Duration::from_secs(20)).code;
    assert_eq!(code, Some(0));
    let service = service.restart_with(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let begun = Instant::now();
    partner.wait_until_idle(&album);
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(partner.get_photo(&album, &kept)["state"], "ready");
    let lost = partner.get_photo(&album, &lost);
    assert_eq!((&lost["state"], &lost["failure"]), (&json!("failed"), &json!("MISSING_OBJECT")));
}
