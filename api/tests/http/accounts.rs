//! What ends in the console by itself: links that were not used, sessions, and the patience with a network that guesses.

use std::time::Duration;

use photofinish_api::key::KeyText;
use photofinish_store::model::account::Role;
use photofinish_store::model::ids::{KeyId, SessionId};
use photofinish_store::model::key::KeyMode;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::console::{Browser, PASSWORD, signed_in};
use crate::support::{ApiResponse, Partner, TestService};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn let_pass(service: &TestService, time: Duration) {
    service.block_on(service.store.age_accounts(time)).unwrap();
}

#[test]
fn an_invitation_can_be_used_for_three_days() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    let invite = json!({ "email": "ben@race.example", "role": "viewer" });
    let invited = owner.call("accounts/invite", invite).ok();
    let token = invited["link"].as_str().unwrap().rsplit('/').next().unwrap();
    let browser = Browser::new(&service);
    let get = || browser.call("invitation/get", json!({ "token": token }));
    let_pass(&service, 71 * HOUR);
    assert_eq!(get().ok()["email"], "ben@race.example");
    let_pass(&service, HOUR);
    get().defined_error(404, "NOT_FOUND");
    let accept = json!({ "token": token, "password": PASSWORD });
    browser.call("invitation/accept", accept).defined_error(404, "NOT_FOUND");
    let ben = service.block_on(service.store.accounts.find("ben@race.example")).unwrap().unwrap();
    assert!(!ben.has_password);
}

fn assert_ended(browser: &Browser<'_>) {
    let ended = browser.call("session/get", json!({})).defined_error(401, "UNAUTHORIZED");
    assert_eq!(ended["data"]["code"], "SESSION_ENDED");
}

#[test]
fn a_session_that_is_not_used_ends_after_twelve_hours() {
    let service = TestService::start();
    let busy = signed_in(&service, "anna@race.example", Role::Owner);
    let idle = signed_in(&service, "ben@race.example", Role::Viewer);
    let_pass(&service, 11 * HOUR);
    busy.call("session/get", json!({})).ok();
    let_pass(&service, HOUR);
    assert_ended(&idle);
}

#[test]
fn a_session_ends_after_two_weeks_however_much_it_is_used() {
    let service = TestService::start();
    let browser = signed_in(&service, "anna@race.example", Role::Owner);
    let session = browser.call("session/get", json!({})).ok()["session"]["id"].clone();
    let session = SessionId(session.as_str().unwrap().parse().unwrap());
    let_pass(&service, 14 * DAY - HOUR);
    // As a request does, but before the next one for certain.
    let used = service.store.accounts.touch_session(session, OffsetDateTime::now_utc());
    service.block_on(used).unwrap();
    browser.call("session/get", json!({})).ok();
    let_pass(&service, HOUR);
    assert_ended(&browser);
}

/// Tries passwords from a network, each for another address, until they are refused; returns how many were tried, and for how
/// long, in seconds, none is tried any more.
fn guess_until_refused(sign_in: impl Fn(&Value, &[(&str, &str)]) -> ApiResponse) -> (usize, f64) {
    for tried in 0..=200 {
        let guess = json!({ "email": format!("runner{tried}@race.example"), "password": "a wrong password" });
        let address = format!("192.0.2.{tried}");
        let headers = [("sec-fetch-site", "same-origin"), ("x-forwarded-for", address.as_str())];
        let answer = sign_in(&guess, &headers);
        if answer.status == 429 {
            let refused = answer.defined_error(429, "TOO_MANY_REQUESTS");
            return (tried, refused["data"]["tryAgainIn"].as_f64().unwrap());
        }
        answer.defined_error(401, "UNAUTHORIZED");
    }
    panic!("no guess was refused");
}

#[test]
fn a_network_that_guesses_a_hundred_times_waits_for_the_next_hour() {
    // Another hour may begin meanwhile, and with it another count.
    for _ in 0..2 {
        let service = TestService::start_with(|settings| settings.console.proxies = 1);
        let _owner = signed_in(&service, "anna@race.example", Role::Owner);
        let browser = Browser::new(&service);
        let hour = || OffsetDateTime::now_utc().unix_timestamp().div_euclid(3600);
        let begun = hour();
        let (tried, wait) =
            guess_until_refused(|guess, headers| browser.send("session/create", guess, headers));
        let right = json!({ "email": "anna@race.example", "password": PASSWORD });
        let sign_in = |address: &str| {
            let headers = [("sec-fetch-site", "same-origin"), ("x-forwarded-for", address)];
            browser.send("session/create", &right, &headers)
        };
        let (same, other) = (sign_in("192.0.2.250"), sign_in("198.51.100.1"));
        if hour() == begun {
            assert_eq!(tried, 100);
            assert!(wait > 0.0 && wait <= 3600.0, "{wait}");
            same.defined_error(429, "TOO_MANY_REQUESTS");
            other.ok();
            return;
        }
    }
    panic!("an hour passed twice");
}

/// Whoever connects to it writes the header.
#[test]
fn a_console_on_its_own_address_believes_no_proxy_of_the_api() {
    // Another hour may begin meanwhile, and with it another count.
    for _ in 0..2 {
        let service = TestService::start_with(|settings| settings.console.proxies = 1);
        let listener = service.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let target = format!("POST http://{}/console/api/session/create", listener.local_addr().unwrap());
        let context = service.context.clone();
        let (_stop, stopped) = oneshot::channel::<()>();
        service.runtime.spawn(async move {
            photofinish_api::serve_console(listener, context, async { drop(stopped.await) }).await;
        });
        let hour = || OffsetDateTime::now_utc().unix_timestamp().div_euclid(3600);
        let (begun, partner) = (hour(), Partner::new(&service, None));
        // Each from a network of its own, as it says.
        let networks = std::cell::Cell::new(0);
        let (tried, _) = guess_until_refused(|guess, _| {
            networks.set(networks.get() + 1);
            let network = format!("198.51.{}.1", networks.get());
            let headers = [
                ("content-type", "application/json"),
                ("sec-fetch-site", "same-origin"),
                ("x-forwarded-for", network.as_str()),
            ];
            partner.send(&target, &headers, guess.to_string())
        });
        if hour() == begun {
            assert_eq!(tried, 100);
            return;
        }
    }
    panic!("an hour passed twice");
}

/// Sends the same request this often at once; returns the statuses of the answers.
fn send_at_once(requests: usize, send: impl Fn() -> ApiResponse + Sync) -> Vec<u16> {
    let send = &send;
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..requests).map(|_| scope.spawn(move || send().status)).collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    })
}

#[test]
fn passwords_that_are_tried_at_once_wait_as_those_that_are_tried_in_a_row() {
    let service = TestService::start();
    let _owner = signed_in(&service, "anna@race.example", Role::Owner);
    let browser = Browser::new(&service);
    let guess = json!({ "email": "anna@race.example", "password": "a wrong password" });
    let member = signed_in(&service, "ben@race.example", Role::Viewer);
    let change = json!({ "password": { "current": "a wrong password", "new": "five dry cats sit" } });
    for (wrong, answers) in [
        (401, send_at_once(60, || browser.call("session/create", guess.clone()))),
        (403, send_at_once(60, || member.call("account/update", change.clone()))),
    ] {
        let count = |status: u16| answers.iter().filter(|answer| **answer == status).count();
        assert_eq!(count(wrong) + count(429), 60, "{answers:?}");
        // Five cost no wait. Two are tried at once, and both of these may be after the fifth. A slow machine may answer the last
        // ones after the first wait, which ends for two at once again.
        assert!((6..=9).contains(&count(wrong)), "{answers:?}");
    }
}

#[test]
fn an_organization_has_a_hundred_keys_that_are_live() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    let add = |expires_at: Option<OffsetDateTime>| {
        let text = KeyText::generate(KeyMode::Test);
        service.create_key("Lake Timing", &text, |key| key.expires_at = expires_at)
    };
    add(Some(OffsetDateTime::now_utc() - DAY));
    let keys: Vec<KeyId> = (0..100).map(|_| add(None)).collect();
    let create =
        || owner.call("keys/create", json!({ "label": "gate 3", "mode": "test", "scopes": ["search:read"] }));
    let refused = create().defined_error(409, "CONFLICT");
    assert_eq!(refused["data"]["code"], "TOO_MANY_KEYS");
    owner.call("keys/revoke", json!({ "keyId": keys[0] })).ok();
    create().ok();
    create().defined_error(409, "CONFLICT");
}
