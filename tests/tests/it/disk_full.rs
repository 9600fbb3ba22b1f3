//! A full disk in the embedded profile: no confirmed photo is lost, reads succeed, and processing resumes by itself when
//! there is free space.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{
    Partner, Service, ServiceOptions, UploadTicket, expect_string, skip_or_fail, wait_until,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Every photo shows this person and its own bib.
const COMMON_PERSON: u16 = 1;

fn own_bib(number: usize) -> String {
    format!("{}", 50_100 + 7 * number)
}

fn photo(number: usize) -> Vec<u8> {
    TestPhoto::new(1600, 1200)
        .with_face(COMMON_PERSON, [200, 150, 140])
        .with_bib(&own_bib(number), [200, 600])
        .to_jpeg()
}

#[test]
fn a_full_disk_refuses_writes_and_serves_reads_and_loses_no_confirmed_photo() {
    let Some(disk) = SmallDisk::mount(32) else { return };
    let service = disk.service(ServiceOptions::with_fake_models());
    service.restart();
    let album = service.partner().create_album("Full");
    let gallery = open_gallery(&service.partner(), &album);
    let mut confirmed = upload_some(&service.partner(), &album, 0..4);
    service.partner().wait_until_idle(&album);
    let image = service.partner().upload_selfie(&album, &TestPhoto::selfie(COMMON_PERSON).to_jpeg());
    service.partner().search_by_image(&album, &image).expect_ok();
    service.terminate(Duration::from_secs(15));
    // Without a pipeline only this test writes to the disk.
    let service = service.restart_with(ServiceOptions::with_fake_models().with_role("serve"));
    let partner = service.partner();
    let (sent, late) =
        (upload_unconfirmed(&partner, &album, 4), partner.sign_photo(&album, "late.jpg", "image/jpeg"));

    disk.fill(2 << 20);
    let (accepted, refused) = upload_until_refused(&partner, &album, 5);
    assert!(
        !accepted.is_empty() && refused > 0,
        "{} photos were accepted, {refused} refused",
        accepted.len()
    );
    confirmed.extend(accepted);
    disk.fill(0);
    create_albums_until_refused(&partner);
    change_gallery_until_refused(&partner, &album);
    for _ in 0..3 {
        partner.put(&late.upload_url, "image/jpeg", &photo(0)).expect_defined_error(503);
        partner.confirm_photo(&album, &sent.photo_id).expect_defined_error(503);
        partner.call("/albums/create", &json!({ "title": "Another" })).expect_defined_error(503);
        check_reads(&partner, &album, &confirmed);
        visit(&partner, &gallery, "get");
        visit(&partner, &gallery, "photos/list");
        assert_eq!(partner.search_by_image(&album, &image).expect_ok()["total"], 4, "a selfie seen before");
    }
    // In memory: nothing is written for them.
    wait_until("its visits are counted", || count_visits(&partner, &album) == json!(3));
    check_that_readiness_names_the_disk(&service);

    // A power cut changes nothing.
    service.kill();
    service.spawn();
    wait_until("it starts on a full disk", || is_alive(&service));
    // Moving the write-ahead log into the database has freed some space.
    disk.fill(0);
    check_that_readiness_names_the_disk(&service);
    check_reads(&partner, &album, &confirmed);
    partner.confirm_photo(&album, &sent.photo_id).expect_defined_error(503);

    disk.free_space();
    wait_until("it is ready again", || is_ready(&service));
    partner.confirm_photo(&album, &sent.photo_id).expect_ok();
    confirmed.insert(4, sent.photo_id);
    assert_eq!(partner.put(&late.upload_url, "image/jpeg", &photo(confirmed.len())).status, 200);
    partner.confirm_photo(&album, &late.photo_id).expect_ok();
    confirmed.push(late.photo_id);
    service.kill();
    let service = service.restart_with(ServiceOptions::with_fake_models());
    check_all_ready(&service.partner(), &album, &confirmed);
}

#[test]
fn a_disk_that_fills_up_under_the_pipeline_fails_no_photo_and_processing_resumes_with_free_space() {
    let Some(disk) = SmallDisk::mount(32) else { return };
    // At first photos are only queued, so that none is read before the disk is full.
    let service = disk.service(ServiceOptions::with_fake_models().with_role("serve"));
    service.restart();
    let album = service.partner().create_album("Filling");
    let mut confirmed = upload_some(&service.partner(), &album, 0..24);
    service.kill();
    disk.fill(1 << 20);
    // A photo in flight at each of several kills must not be accepted for the cause of the crashes.
    let service = service
        .spawn_with(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_ATTEMPT_LIMIT", "12"));
    let partner = service.partner();
    wait_until("it starts on a full disk", || is_alive(&service));
    wait_until("the pipeline notices the full disk", || {
        let parts = readiness(&service)["parts"].clone();
        parts.as_array().is_some_and(|parts| {
            parts.iter().any(|part| part["name"] == "pipeline" && says_full(&part["reason"]))
        })
    });
    let (accepted, refused) = upload_until_refused(&partner, &album, confirmed.len());
    assert!(refused > 0, "{} more photos were accepted", accepted.len());
    confirmed.extend(accepted);
    for _ in 0..3 {
        disk.fill(0);
        check_reads(&partner, &album, &confirmed);
        service.kill();
        service.spawn();
        wait_until("it starts on a full disk", || is_alive(&service));
        disk.fill(0);
        check_that_none_fails(&partner, &album, Duration::from_secs(2));
    }

    disk.free_space();
    check_all_ready(&partner, &album, &confirmed);
    wait_until("it is ready again", || is_ready(&service));
    confirmed.push(partner.upload_photo(&album, "after.jpg", &photo(confirmed.len())));
    check_all_ready(&partner, &album, &confirmed);
}

#[test]
fn a_first_start_on_a_full_disk_says_so_and_one_with_free_space_succeeds() {
    let Some(disk) = SmallDisk::mount(8) else { return };
    disk.fill(0);
    let service = disk.service(ServiceOptions::with_fake_models());
    assert!(!service.try_restart(), "a service without space for its database became ready");
    assert!(says_full(&json!(service.log())), "{}", service.log());
    assert!(!service.log().contains("panicked"), "{}", service.log());
    disk.free_space();
    service.restart();
    let album = service.partner().create_album("First");
    let confirmed = upload_some(&service.partner(), &album, 0..1);
    check_all_ready(&service.partner(), &album, &confirmed);
}

fn upload_some(partner: &Partner, album: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| partner.upload_photo(album, &format!("{number}.jpg"), &photo(number))).collect()
}

/// Uploads a photo without confirming it.
fn upload_unconfirmed(partner: &Partner, album: &str, number: usize) -> UploadTicket {
    let ticket = partner.sign_photo(album, &format!("{number}.jpg"), "image/jpeg");
    assert_eq!(partner.put(&ticket.upload_url, "image/jpeg", &photo(number)).status, 200);
    ticket
}

/// Uploads until ten uploads were refused, each with a 503. Returns the confirmed photos and the number of refusals.
fn upload_until_refused(partner: &Partner, album: &str, first: usize) -> (Vec<String>, usize) {
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for _ in 0..200 {
        let number = first + accepted.len();
        match try_upload(partner, album, number) {
            Some(photo) => accepted.push(photo),
            None => refused += 1,
        }
        if refused == 10 {
            break;
        }
    }
    (accepted, refused)
}

/// Uploads a photo; `None` when the service refused with a 503.
fn try_upload(partner: &Partner, album: &str, number: usize) -> Option<String> {
    let input = json!({ "albumId": album, "filename": format!("{number}.jpg"), "contentType": "image/jpeg" });
    let signed = partner.call("/photos/photo/signed", &input);
    if signed.status != 200 {
        signed.expect_defined_error(503);
        return None;
    }
    let ticket = signed.expect_ok();
    let put = partner.put(&expect_string(&ticket["uploadUrl"]), "image/jpeg", &photo(number));
    if put.status != 200 {
        put.expect_defined_error(503);
        return None;
    }
    let id = expect_string(&ticket["photoId"]);
    let response = partner.confirm_photo(album, &id);
    if response.status != 200 {
        response.expect_defined_error(503);
        return None;
    }
    Some(id)
}

/// Checks that lists, single photos and searches succeed, and that every confirmed photo is listed.
fn check_reads(partner: &Partner, album: &str, confirmed: &[String]) {
    let photos = partner.list_photos(album);
    for id in confirmed {
        let photo = photos.iter().find(|photo| photo["id"] == id.as_str());
        let state = photo.map(|photo| photo["state"].clone()).unwrap_or_default();
        assert!(
            ["queued", "processing", "ready"].contains(&state.as_str().unwrap_or_default()),
            "{id}: {state}"
        );
    }
    let ready: Vec<_> = photos.iter().filter(|photo| photo["state"] == "ready").collect();
    for photo in &ready {
        let seen = partner.get_photo(album, &expect_string(&photo["id"]));
        assert_eq!(partner.get(&expect_string(&seen["url"])).status, 200);
    }
    let progress = partner.album_progress(album);
    assert_eq!(progress["failed"], 0, "{progress}");
    assert_eq!(partner.search_by_bib_exact(album, &own_bib(999)).len(), 0);
}

/// Opens the gallery of an album; returns its path.
fn open_gallery(partner: &Partner, album: &str) -> String {
    let opened = json!({ "albumId": album, "enabled": true, "browse": true });
    let url = expect_string(&partner.call_ok("/albums/gallery/update", &opened)["url"]);
    format!("/g/{}", url.rsplit('/').next().expect("a link"))
}

/// Calls an operation of a gallery, which must succeed.
fn visit(partner: &Partner, gallery: &str, operation: &str) {
    let headers = [("content-type", "application/json"), ("sec-fetch-site", "same-origin")];
    let target = format!("{gallery}/api/gallery/{operation}");
    let seen = partner.client().raw("POST", &target, &headers, b"{}").expect("a response");
    assert_eq!(seen.status, 200, "{operation}: {}", seen.text());
}

/// Writes as little as possible until there is no space for that either.
fn change_gallery_until_refused(partner: &Partner, album: &str) {
    const MOST: usize = 100;
    for number in 0..MOST {
        let change = json!({ "albumId": album, "intro": number.to_string() });
        let response = partner.call("/albums/gallery/update", &change);
        if response.status != 200 {
            response.expect_defined_error(503);
            return;
        }
    }
    panic!("{MOST} changes of a gallery were written on a full disk");
}

/// How often the gallery of an album was opened.
fn count_visits(partner: &Partner, album: &str) -> Value {
    partner.call_ok("/albums/gallery/get", &json!({ "albumId": album }))["opened"].clone()
}

/// Checks that all confirmed photos become ready, no photo fails, and searches find each once.
fn check_all_ready(partner: &Partner, album: &str, confirmed: &[String]) {
    let progress = partner.wait_until_idle(album);
    assert_eq!((&progress["ready"], &progress["failed"]), (&json!(confirmed.len()), &json!(0)), "{progress}");
    for (number, id) in confirmed.iter().enumerate() {
        let hits = partner.search_by_bib_exact(album, &own_bib(number));
        assert_eq!(hits.iter().map(|hit| &hit["id"]).collect::<Vec<_>>(), [&json!(id)], "photo {number}");
    }
    let everyone = partner.search_by_selfie(album, &TestPhoto::selfie(COMMON_PERSON).to_jpeg());
    assert_eq!(everyone.len(), confirmed.len(), "one hit a photo");
}

fn check_that_none_fails(partner: &Partner, album: &str, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        assert_eq!(partner.album_progress(album)["failed"], 0, "a full disk fails no photo");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A transaction that found no space leaves what it had written at the end of the write-ahead log, where smaller ones still
/// fit.
fn create_albums_until_refused(partner: &Partner) {
    const MOST: usize = 100;
    for _ in 0..MOST {
        let response = partner.call("/albums/create", &json!({ "title": "Another" }));
        if response.status != 200 {
            response.expect_defined_error(503);
            return;
        }
    }
    panic!("{MOST} albums were created on a full disk");
}

fn check_that_readiness_names_the_disk(service: &Service) {
    let ready = readiness(service);
    assert_eq!(ready["ready"], false, "{ready}");
    let storage =
        ready["parts"].as_array().and_then(|parts| parts.iter().find(|part| part["name"] == "storage"));
    assert!(storage.is_some_and(|storage| says_full(&storage["reason"])), "{ready}");
}

fn says_full(reason: &Value) -> bool {
    let reason = reason.as_str().unwrap_or_default();
    reason.contains("No space left on device") || reason.contains("disk is full")
}

fn readiness(service: &Service) -> Value {
    service.partner_with("").get(&format!("{}/readyz", service.origin())).json()
}

fn is_ready(service: &Service) -> bool {
    readiness(service)["ready"] == true
}

/// Whether it responds to requests; it may take a while to start.
fn is_alive(service: &Service) -> bool {
    assert!(!service.has_exited(), "the service ended; its log:\n{}", service.log());
    service.is_alive()
}

/// A small file system in memory for a service's data. Unmounted when dropped.
struct SmallDisk {
    folder: Arc<TempDir>,
}

impl SmallDisk {
    /// Mounts one. `None`, with a line that the test is skipped, where this user may not mount.
    fn mount(megabytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder for the disk");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("an empty folder");
        let size = format!("size={megabytes}m,mode=0755");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&data).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { folder: Arc::new(folder) }),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                skip_or_fail("a full disk", &format!("no file system may be mounted here: {why}"));
                None
            }
            Err(error) => {
                skip_or_fail("a full disk", &format!("no program `mount`: {error}"));
                None
            }
        }
    }

    /// A service with its data on this disk, not started.
    fn service(&self, options: ServiceOptions) -> Service {
        Service::new_stopped(options, Arc::clone(&self.folder))
    }

    /// Fills it, except for so many bytes.
    fn fill(&self, free_bytes: u64) {
        let file = OpenOptions::new().create(true).append(true).open(self.filler());
        let mut file = file.expect("an empty file needs no space");
        for piece in [1 << 20, 4096] {
            let piece = vec![b'x'; piece];
            let refused = loop {
                if let Err(refused) = file.write_all(&piece) {
                    break refused;
                }
            };
            assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
        }
        let length = file.metadata().expect("a length").len();
        file.set_len(length - free_bytes).expect("a shorter file");
    }

    fn free_space(&self) {
        std::fs::remove_file(self.filler()).expect("the filler");
    }

    fn filler(&self) -> PathBuf {
        self.folder.path().join("data/filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let data = self.folder.path().join("data");
        // Lazily: a process may still have a file open in it.
        let gone = Command::new("umount").arg("--lazy").arg(&data).status();
        if !gone.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", data.display());
        }
    }
}
