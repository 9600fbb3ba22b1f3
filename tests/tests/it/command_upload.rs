//! `photofinish upload`, on the command line.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{CommandOutput, Service, ServiceOptions};
use serde_json::{Value, json};

use crate::shell::Shell;

/// Uploads a folder with the key of the usual partner.
fn upload(service: &Service, album: &str, folder: &Path, more: &[&str]) -> CommandOutput {
    let (origin, partner) = (service.origin(), service.partner());
    let path = folder.to_string_lossy().into_owned();
    let arguments = ["upload", "--url", &origin, "--key", partner.key(), "--album", album, &path];
    service.run(&[&arguments[..], more].concat())
}

#[test]
fn an_upload_sends_what_is_missing_and_reconciles() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Folder");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("a file");
    };
    for number in 0..20 {
        let bib = format!("{}", 300 + number);
        write(
            &format!("day 1/IMG_{number}.JPG"),
            &TestPhoto::new(600, 400).with_bib(&bib, [150, 150]).to_jpeg(),
        );
    }
    write("start.png", &TestPhoto::new(600, 400).with_bib("901", [150, 150]).to_png());
    write("notes.txt", b"not a photo");
    write("broken.jpg", b"not a photo either");
    let run = || upload(&service, &album, folder.path(), &["--stale-after", "0"]);
    let first = run();
    let summary = first.expect_success();
    assert!(summary.contains("22 photos in the folder"), "{summary}");
    assert!(summary.contains("22 sent and confirmed"), "{summary}");
    assert!(summary.contains("1 other files were left out"), "{summary}");
    let progress = partner.wait_until_idle(&album);
    assert_eq!((&progress["ready"], &progress["failed"]), (&21.into(), &1.into()), "{progress}");
    assert_eq!(partner.search_by_bib_exact(&album, "317").len(), 1);
    assert_eq!(partner.search_by_bib_exact(&album, "901").len(), 1);

    write("late.jpg", &TestPhoto::new(600, 400).with_bib("902", [150, 150]).to_jpeg());
    // Left behind by an interrupted run: a photo of a file that the album lacks and one of a file that it has.
    let stale = [("half.jpg", "image/jpeg"), ("start.png", "image/png")]
        .map(|(name, content_type)| partner.sign_photo(&album, name, content_type).photo_id);
    write("half.jpg", &TestPhoto::new(600, 400).with_bib("903", [150, 150]).to_jpeg());
    let second = run();
    let summary = second.expect_success();
    assert!(summary.contains("22 were in the album already, by file name"), "{summary}");
    assert!(summary.contains("2 sent and confirmed"), "{summary}");
    let progress = partner.wait_until_idle(&album);
    assert_eq!((&progress["ready"], &progress["awaitingUpload"]), (&23.into(), &0.into()), "{progress}");
    assert_eq!(partner.search_by_bib_exact(&album, "903").len(), 1);
    let is_stale = |photo: &Value| stale.iter().any(|id| photo["id"] == **id);
    assert!(!partner.list_photos(&album).iter().any(is_stale), "stale photos are removed");
    assert!(run().expect_success().contains("0 sent and confirmed"));
}

#[test]
fn an_upload_leaves_recent_unconfirmed_photos_alone() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Two uploaders");
    let folder = tempfile::tempdir().expect("a folder");
    let picture = TestPhoto::new(600, 400).with_bib("711", [150, 150]).to_jpeg();
    std::fs::write(folder.path().join("a.jpg"), &picture).expect("a file");
    let theirs = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    let ours = upload(&service, &album, folder.path(), &[]);
    let summary = ours.expect_success();
    assert!(summary.contains("1 sent and confirmed"), "{summary}");
    let said = summary.lines().find(|line| line.contains("left alone")).unwrap_or_default();
    assert!(said.starts_with("1 unfinished uploads") && said.contains("--stale-after 0"), "{summary}");
    assert_eq!(partner.put(&theirs.upload_url, "image/jpeg", &picture).status, 200);
    partner.confirm_photo(&album, &theirs.photo_id).expect_ok();
    let progress = partner.wait_until_idle(&album);
    assert_eq!((&progress["ready"], &progress["total"]), (&2.into(), &2.into()), "{progress}");
}

#[test]
fn equal_file_names_of_two_cameras_are_kept_apart_by_prefixes() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Two cameras");
    let cameras = [("cam1/", "311"), ("cam2/", "812")].map(|(prefix, bib)| {
        let folder = tempfile::tempdir().expect("a folder");
        let picture = TestPhoto::new(600, 400).with_bib(bib, [150, 150]).to_jpeg();
        std::fs::write(folder.path().join("IMG_1.JPG"), picture).expect("a file");
        (folder, prefix, bib)
    });
    for (folder, prefix, _) in &cameras {
        let sent = upload(&service, &album, folder.path(), &["--prefix", prefix]);
        assert!(sent.expect_success().contains("1 sent and confirmed"), "{}", sent.stdout);
        let again = upload(&service, &album, folder.path(), &["--prefix", prefix]);
        assert!(
            again.expect_success().contains("1 were in the album already, by file name"),
            "{}",
            again.stdout
        );
    }
    partner.wait_until_idle(&album);
    for (_, prefix, bib) in &cameras {
        assert_eq!(partner.search_by_bib_exact(&album, bib).len(), 1, "{prefix}");
    }
}

#[test]
fn an_upload_that_is_refused_says_so() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.jpg"), TestPhoto::new(64, 64).to_jpeg()).expect("a file");
    let album = service.partner().create_album("Refused");
    let reader = service.create_key(&["search:read"], "test");
    let path = folder.path().to_string_lossy().into_owned();
    let cases = [
        (service.origin(), "svc_test_nonsense".to_owned(), album.clone(), path.clone(), "401"),
        (service.origin(), reader, album.clone(), path.clone(), "403"),
        (
            service.origin(),
            service.partner().key().to_owned(),
            "01890000-0000-7000-8000-000000000000".into(),
            path.clone(),
            "404",
        ),
        (
            service.origin(),
            service.partner().key().to_owned(),
            album,
            "/no/such/folder".into(),
            "/no/such/folder",
        ),
    ];
    for (url, key, album, path, word) in cases {
        let output = service.run(&["upload", "--url", &url, "--key", &key, "--album", &album, &path]);
        assert_eq!(output.code, Some(1), "{}", output.combined_output());
        assert!(output.stderr.contains(word), "does not mention {word}: {}", output.stderr);
        assert!(
            !output.combined_output().contains(&key[12..]) && !output.stderr.contains("panicked"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn an_upload_continues_after_the_service_was_killed() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Cut off");
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..64 {
        let picture = TestPhoto::new(1200, 900).with_bib(&format!("{}", 5000 + number * 11), [300, 300]);
        std::fs::write(folder.path().join(format!("{number:02}.jpg")), picture.to_jpeg()).expect("a file");
    }
    // No other uploader: a photo whose ticket was lost with the response belongs to this test.
    let run = || upload(&service, &album, folder.path(), &["--parallel", "2", "--stale-after", "0"]);
    std::thread::scope(|scope| {
        let upload = scope.spawn(run);
        while partner.album_progress(&album)["total"].as_u64().unwrap_or(0) < 16 {
            assert!(!upload.is_finished(), "the upload ended before anything was confirmed");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        service.kill();
        service.restart();
        upload.join().expect("the upload ends");
    });
    run().expect_success();
    let progress = partner.wait_until_idle(&album);
    assert_eq!(
        (&progress["ready"], &progress["total"]),
        (&64.into(), &64.into()),
        "each photo once: {progress}"
    );
}

#[test]
fn an_expired_upload_url_is_signed_again() {
    let service =
        Scripted::start(Script { listed: json!([]), refused: &["1"], expired: &["2"], ..Script::default() });
    let summary = service.upload(&["a.jpg", "b.jpg"]);
    assert!(summary.contains("2 sent and confirmed"), "{summary}");
    assert!(summary.contains("0 refused"), "{summary}");
    let expected = [
        "list",
        "signed a.jpg b.jpg",
        "put 1",
        "delete 1",
        "signed a.jpg",
        "put 3",
        "delete 2",
        "signed b.jpg",
        "put 4",
        "success 3 4",
    ];
    assert_eq!(service.requests(), expected);
}

#[test]
fn a_stale_upload_is_removed_by_the_clock_of_the_service_and_only_while_unconfirmed() {
    let waiting = |id: &str, created: &str| {
        let (filename, state) = (format!("{id}.jpg"), "awaiting_upload");
        json!({ "id": id, "filename": filename, "state": state, "createdAt": created })
    };
    // All of them are old by this machine's clock.
    let listed = json!([
        waiting("confirmed", "2020-01-01T00:30:00Z"),
        waiting("left", "2020-01-01T00:30:00Z"),
        waiting("young", "2020-01-01T01:30:00Z"),
    ]);
    let service = Scripted::start(Script { listed, confirmed: &["confirmed"], ..Script::default() });
    let summary = service.upload(&["confirmed.jpg", "left.jpg", "young.jpg"]);
    assert!(summary.contains("1 were in the album already"), "{summary}");
    assert!(summary.contains("2 sent and confirmed"), "{summary}");
    assert!(summary.contains("1 unfinished uploads"), "{summary}");
    let expected = [
        "list",
        "get confirmed",
        "get left",
        "delete left",
        "signed left.jpg young.jpg",
        "put 1",
        "put 2",
        "success 1 2",
    ];
    assert_eq!(service.requests(), expected);
}

/// A key is revoked while photos are on their way: the others are not tried one batch after another.
#[test]
fn an_upload_ends_when_its_key_is_revoked() {
    let service = Scripted::start(Script { listed: json!([]), revoked_after: Some(16), ..Script::default() });
    let names: Vec<String> = (0..60).map(|number| format!("{number:02}.jpg")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let output = service.run(&names, &["--parallel", "1"]);
    assert_eq!(output.code, Some(1), "{}", output.combined_output());
    for said in ["60 photos in the folder", "16 sent and confirmed", "0 refused", "44 not sent: ", "401"] {
        assert!(output.stdout.contains(said), "{said}: {}", output.stdout);
    }
    let asked = service.requests().iter().filter(|request| request.starts_with("signed ")).count();
    assert_eq!(asked, 2, "the first batch and the one that was refused");
}

/// The behaviour of a fake service, which a real one could not be made to show at the right moment.
#[derive(Default)]
struct Script {
    /// The photos of the album.
    listed: Value,
    /// Those that their uploader confirms between the list and the next call.
    confirmed: &'static [&'static str],
    /// Numbers of the tickets, from 1, whose upload the storage refuses.
    refused: &'static [&'static str],
    /// Numbers of the tickets that have expired when they are signed.
    expired: &'static [&'static str],
    /// The number of tickets after which the key is revoked.
    revoked_after: Option<u32>,
}

/// A fake service that follows a script until the test process ends. Its clock stands at 2020-01-01 02:00 UTC.
struct Scripted {
    origin: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (recorded, base) = (Arc::clone(&requests), origin.clone());
        let accept = move || {
            let mut signed = 0;
            for connection in listener.incoming().flatten() {
                let Some((path, body)) = read_request(&connection) else { continue };
                let (request, status, body) = script.respond(&path, &body, &base, &mut signed);
                recorded.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                write_response(&connection, status, &body.to_string());
            }
        };
        std::thread::Builder::new().name("scripted".to_owned()).spawn(accept).expect("a thread");
        Self { origin, requests }
    }

    /// Uploads files of these names; returns the summary.
    fn upload(&self, names: &[&str]) -> String {
        self.run(names, &[]).expect_success().to_owned()
    }

    fn run(&self, names: &[&str], more: &[&str]) -> CommandOutput {
        let (shell, folder) = (Shell::new(), tempfile::tempdir().expect("a folder"));
        for name in names {
            std::fs::write(folder.path().join(name), TestPhoto::new(64, 64).to_jpeg()).expect("a file");
        }
        let path = folder.path().to_string_lossy().into_owned();
        let album = "01890000-0000-7000-8000-000000000000";
        let arguments = ["upload", "--url", &self.origin, "--key", "any", "--album", album, &path];
        shell.run(&[&arguments[..], more].concat(), &[])
    }

    /// The requests so far, in order.
    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Script {
    /// The request in short, with the status and the body of its response. `signed` counts the tickets.
    fn respond(&self, path: &str, body: &Value, base: &str, signed: &mut u32) -> (String, u16, Value) {
        if let Some(ticket) = path.strip_prefix("/put/") {
            let status = if self.refused.contains(&ticket) { 403 } else { 200 };
            return (format!("put {ticket}"), status, Value::Null);
        }
        let texts = |values: &Value| -> Vec<String> {
            values.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let photo = body["photoId"].as_str().unwrap_or_default();
        match path.strip_prefix("/openapi/photos/photo/") {
            Some("list") => ("list".to_owned(), 200, json!({ "photos": self.listed, "nextCursor": null })),
            Some("get") => {
                let state = if self.confirmed.contains(&photo) { "queued" } else { "awaiting_upload" };
                (format!("get {photo}"), 200, json!({ "id": photo, "state": state }))
            }
            Some("delete") => (format!("delete {photo}"), 200, json!({ "success": true })),
            Some("signed/batch") if self.revoked_after.is_some_and(|most| *signed >= most) => {
                let error = json!({ "code": "UNAUTHORIZED", "status": 401, "message": "Unauthorized" });
                ("signed not".to_owned(), 401, error)
            }
            Some("signed/batch") => {
                let entries = body["entries"].as_array().expect("entries");
                let names = entries.iter().map(|entry| entry["filename"].clone()).collect();
                let results: Vec<Value> = entries.iter().map(|_| self.ticket(base, signed)).collect();
                (format!("signed {}", texts(&names).join(" ")), 200, json!({ "results": results }))
            }
            Some("success/batch") => {
                let photos = texts(&body["photoIds"]);
                let results: Vec<Value> = photos.iter().map(|_| json!({ "success": true })).collect();
                (format!("success {}", photos.join(" ")), 200, json!({ "results": results }))
            }
            _ => (path.to_owned(), 404, json!({ "message": "Not Found" })),
        }
    }

    fn ticket(&self, base: &str, signed: &mut u32) -> Value {
        *signed += 1;
        let photo = signed.to_string();
        let has_expired = self.expired.contains(&photo.as_str());
        let expires_at = if has_expired { "2020-01-01T01:59:59Z" } else { "2020-01-01T02:15:00Z" };
        let url = format!("{base}/put/{photo}");
        json!({ "success": true, "uploadUrl": url, "photoId": photo, "expiresAt": expires_at })
    }
}

/// One request: its path, and its body if that is JSON.
fn read_request(connection: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0_usize;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, serde_json::from_slice(&body).unwrap_or_default()))
}

fn write_response(mut connection: &TcpStream, status: u16, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\ndate: Wed, 01 Jan 2020 02:00:00 GMT\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all(format!("{head}{body}").as_bytes()).expect("the client reads");
}
