//! The start and the end of a process: what may fail comes before photos are taken, and it reports until its last answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, Signal, wait_until};
use sqlx::{Connection, SqliteConnection};

use crate::uploads::count_partial_files;

/// What the log says before photos are taken.
const PIPELINE_STARTS: &str = "starting the pipeline";

/// Reads one number of the database of a service; `None` without a row.
fn query_number(service: &Service, sql: &'static str) -> Option<i64> {
    let url = format!("sqlite:{}", service.data_dir().join("photofinish.sqlite").display());
    let read = async {
        let mut connection = SqliteConnection::connect(&url).await?;
        let number = sqlx::query_scalar::<_, i64>(sql).fetch_optional(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(number)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(read).expect("a number of the database")
}

/// What ends a process counts as an attempt for the photos that it has.
#[test]
fn an_address_that_is_taken_ends_the_start_before_photos_are_taken() {
    let options = || ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_ATTEMPT_LIMIT", "1");
    let service = Service::start(options().with_role("serve"));
    let album = service.partner().create_album("Waiting");
    let photo = service.partner().upload_photo(&album, "a.jpg", &TestPhoto::new(640, 480).to_jpeg());
    service.terminate(Duration::from_secs(60));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    for (flag, setting) in [
        ("--console-listen", "PHOTOFINISH_CONSOLE_LISTEN"),
        ("--admin-listen", "PHOTOFINISH_ADMIN_LISTEN"),
        ("--listen", "PHOTOFINISH_LISTEN"),
    ] {
        let ended = service.run(&["all", flag, &address]);
        assert_eq!(ended.code, Some(1), "{}", ended.combined_output());
        assert!(ended.stderr.contains(setting), "{setting} is not named: {}", ended.stderr);
        assert!(!ended.stderr.contains(PIPELINE_STARTS), "{setting}: {}", ended.stderr);
    }
    assert_eq!(query_number(&service, "select attempts from photo"), Some(0));
    let service = service.restart_with(options());
    let progress = service.partner().wait_until_idle(&album);
    assert_eq!(progress["ready"], 1, "{progress}");
    assert_eq!(service.partner().get_photo(&album, &photo)["state"], "ready");
    assert!(service.log().contains(PIPELINE_STARTS), "no start would say so: {}", service.log());
}

/// By its report erasures know that it has faces in memory.
#[test]
fn a_process_reports_until_its_last_request_was_answered() {
    let service = Service::start(ServiceOptions::with_fake_models().with_role("serve"));
    let partner = service.partner();
    let album = partner.create_album("Last answer");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    let path = ticket.upload_url.strip_prefix(&service.origin()).expect("the service's own URL");
    let photo = TestPhoto::new(64, 64).to_jpeg();
    let (first, rest) = photo.split_at(photo.len() / 2);
    let mut connection = TcpStream::connect(("127.0.0.1", service.port())).expect("the service listens");
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: image/jpeg\r\ncontent-length: {}\r\n\r\n",
        photo.len()
    );
    connection.write_all(head.as_bytes()).expect("the service reads");
    connection.write_all(first).expect("the service reads");
    wait_until("the upload has begun", || count_partial_files(&service) == 1);
    let reported = || query_number(&service, "select seen_at from process where role = 'serve'");
    wait_until("the process reports", || reported().is_some());
    service.send_signal(Signal::TERM);
    wait_until("the stop has begun", || service.log().contains("run: stopping"));
    // Two of them: one may have been under way when the stop began.
    for _ in 0..2 {
        let before = reported();
        wait_until("the process reports while it answers", || reported() > before);
    }
    connection.write_all(rest).expect("the service reads");
    let mut status = [0; "HTTP/1.1 200".len()];
    connection.read_exact(&mut status).expect("an answer");
    assert_eq!(std::str::from_utf8(&status), Ok("HTTP/1.1 200"));
    let end = service.terminate(Duration::from_secs(60));
    assert_eq!(end.code, Some(0), "{}", service.log());
    let could_not_write = || service.log().contains("failed to remove the report of this process");
    assert!(reported().is_none() || could_not_write(), "nobody takes it for a running one");
}
