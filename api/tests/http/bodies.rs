//! Request bodies cost what an operation takes of them, and all of them together have a budget.

use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_api::context::BodyBudget;
use photofinish_store::model::key::{KeyMode, Scope};
use serde_json::{Value, json};

use crate::support::raw::RawConnection;
use crate::support::{ApiResponse, DEADLINE, Partner, TestService, unknown_id};

const JSON: (&str, &str) = ("content-type", "application/json");

fn post(partner: &Partner, path: &str, body: &str) -> ApiResponse {
    partner.send(&format!("POST /openapi{path}"), &[JSON], body)
}

/// A body of `albums/get` with one more member, whose value is `more`.
fn body_with(album: &Value, more: &str) -> String {
    format!(r#"{{"more": {more}, "albumId": {album}}}"#)
}

#[test]
fn an_operation_on_one_object_takes_64_kilobytes_and_a_batch_takes_more() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    post(&partner, "/albums/get", &body_with(&album, &text(65_000))).ok();
    let too_large = body_with(&album, &text(65_536));
    post(&partner, "/albums/get", &too_large).defined_error(413, "PAYLOAD_TOO_LARGE");
    let entry = json!({ "filename": "x".repeat(200), "contentType": "image/jpeg" });
    let batch = json!({ "albumId": album, "entries": vec![entry; 1000] }).to_string();
    assert!(batch.len() > 200_000);
    post(&partner, "/photos/photo/signed/batch", &batch).ok();
}

#[test]
fn the_photos_of_a_download_are_named_in_128_kilobytes() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let photos: Vec<Value> = (0..2000).map(|_| unknown_id()).collect();
    let most = serde_json::to_string_pretty(&json!({ "albumId": album, "photoIds": photos })).unwrap();
    post(&partner, "/photos/download/create", &most).defined_error(404, "NOT_FOUND");
    let too_large = "x".repeat(131_073);
    post(&partner, "/photos/download/create", &too_large).defined_error(413, "PAYLOAD_TOO_LARGE");
}

#[test]
fn an_unknown_field_of_any_depth_is_skipped() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let deep = format!("{}1{}", "[".repeat(30_000), "]".repeat(30_000));
    post(&partner, "/albums/get", &body_with(&album, &deep)).ok();
    let unclosed = body_with(&album, &"[".repeat(30_000));
    post(&partner, "/albums/get", &unclosed).undefined_error(400, "BAD_REQUEST");
}

#[test]
fn a_batch_of_small_nodes_is_refused_by_its_number_of_entries() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let nodes = "{},".repeat(300_000);
    let body = format!(r#"{{"albumId": {album}, "entries": [{nodes}{{}}]}}"#);
    let issues = post(&partner, "/photos/photo/signed/batch", &body).issues();
    assert_eq!(issues, [(r#"["entries"]"#.to_owned(), "too_big".to_owned())]);
}

/// Sends a batch of 800 kB with an unknown album, which no other limit refuses.
fn send_large_batch(partner: &Partner) -> ApiResponse {
    let photos = vec!["x".repeat(800); 1000];
    let body = json!({ "albumId": unknown_id(), "photoIds": photos }).to_string();
    post(partner, "/photos/photo/success/batch", &body)
}

/// Sends four large batches of each of eight organizations at once; returns the statuses.
fn send_many_batches(service: &TestService) -> Vec<u16> {
    let partner = |index| service.partner_with(&format!("Timing {index}"), KeyMode::Live, &Scope::ALL);
    let partners: Vec<_> = (0..8).map(partner).collect();
    let send = |partner: &Partner| {
        let response = send_large_batch(partner);
        response.check_envelope();
        response.status
    };
    std::thread::scope(|scope| {
        let senders: Vec<_> = partners
            .iter()
            .flat_map(|partner| [partner; 4])
            .map(|partner| scope.spawn(move || send(partner)))
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    })
}

#[test]
fn many_large_bodies_at_once_wait_for_a_budget_that_is_free_afterwards() {
    let budget = BodyBudget::new(4 << 20, DEADLINE);
    let service = TestService::start_as(|setup| setup.body_budget = budget.clone());
    assert_eq!(send_many_batches(&service), [404; 32]);
    assert_eq!(budget.bytes_in_use(), 0);
}

#[test]
fn a_body_that_finds_no_room_in_time_is_refused() {
    let budget = BodyBudget::new(4 << 20, Duration::ZERO);
    let service = TestService::start_as(|setup| setup.body_budget = budget.clone());
    let statuses = send_many_batches(&service);
    assert!(statuses.iter().all(|status| [404, 429, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&404), "{statuses:?}");
    assert_eq!(budget.bytes_in_use(), 0);
}

#[test]
fn a_body_in_flight_uses_the_share_of_its_organization_alone() {
    let budget = BodyBudget::new(4 << 20, Duration::ZERO);
    let service = TestService::start_as(|setup| setup.body_budget = budget.clone());
    let partner = service.partner();
    let slow = begin_batch(&service, &partner);
    wait_for_bytes(&budget, 1_000_000);
    // An organization has a quarter.
    let refused = send_large_batch(&partner).defined_error(429, "TOO_MANY_REQUESTS");
    assert!(refused["data"]["tryAgainIn"].as_f64().unwrap() > 0.0);
    partner.call("/albums/list", &json!({})).ok();
    let other = service.partner_with("River Timing", KeyMode::Live, &Scope::ALL);
    send_large_batch(&other).defined_error(404, "NOT_FOUND");
    drop(slow);
    wait_for_bytes(&budget, 0);
    send_large_batch(&partner).defined_error(404, "NOT_FOUND");
}

#[test]
fn visitors_of_one_network_that_declare_bodies_and_send_none_use_up_their_own_part() {
    let budget = BodyBudget::new(4 << 20, Duration::ZERO);
    let service = TestService::start_as(|setup| setup.body_budget = budget.clone());
    let begin = |operation: &str, bytes: usize| {
        let mut raw = RawConnection::connect(&service);
        raw.write(&format!(
            "POST /g/4fQ2aBc8/api/gallery/{operation} HTTP/1.1\r\nhost: x\r\nsec-fetch-site: same-origin\r\n\
             content-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
        ));
        raw
    };
    // A network has a 64th of the budget.
    let slow = begin("get", 65_536);
    wait_for_bytes(&budget, 65_536);
    let mut refused = begin("get", 2);
    refused.write("{}");
    refused.read_response().defined_error(429, "TOO_MANY_REQUESTS");
    let partner = service.partner();
    send_large_batch(&partner).defined_error(404, "NOT_FOUND");
    drop(slow);
    wait_for_bytes(&budget, 0);
    // The ids of 2,000 photos are the most that a visitor sends.
    let mut large = begin("download/create", 131_073);
    large.write(&"x".repeat(131_073));
    large.read_response().defined_error(413, "PAYLOAD_TOO_LARGE");
}

/// Sends the head of a batch of a megabyte.
fn begin_batch(service: &TestService, partner: &Partner) -> RawConnection {
    let key = partner.key.as_ref().unwrap();
    let mut raw = RawConnection::connect(service);
    raw.write(&format!(
        "POST /openapi/photos/photo/success/batch HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\
         content-length: 1000000\r\n\r\n"
    ));
    raw
}

fn wait_for_bytes(budget: &BodyBudget, bytes: usize) {
    let deadline = Instant::now() + DEADLINE;
    while budget.bytes_in_use() != bytes {
        assert!(Instant::now() < deadline, "{} bytes are in use, not {bytes}", budget.bytes_in_use());
        std::thread::yield_now();
    }
}

#[test]
fn operations_are_answered_while_a_large_batch_is_parsed() {
    let service = TestService::start();
    let partner = Arc::new(service.partner());
    let (album, _) = partner.create_album();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| send_large_batch(&partner).defined_error(404, "NOT_FOUND"));
        }
        for _ in 0..20 {
            partner.call("/albums/get", &json!({ "albumId": album })).ok();
        }
    });
}
