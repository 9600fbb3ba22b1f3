//! Limits of keys over HTTP.

use photofinish_api::key::KeyText;
use photofinish_store::model::key::KeyMode;
use photofinish_store::model::rate::{RateClass, RateLimits};
use serde_json::{Value, json};

use crate::support::{ApiResponse, Partner, TestService};

/// What must be left of a window for a test to end in it, seconds.
const ENOUGH_LEFT: u32 = 30;

fn limits(entries: &[(RateClass, u32)]) -> RateLimits {
    let mut limits = RateLimits::default();
    for (class, limit) in entries {
        limits.set(*class, *limit);
    }
    limits
}

fn start(entries: &[(RateClass, u32)]) -> TestService {
    let limits = limits(entries);
    TestService::start_with(|settings| settings.rate_limits = limits)
}

/// Creates a key with much of its window left. Returns it with the response to its first request.
fn begin_window(service: &TestService, request: impl Fn(&Partner) -> ApiResponse) -> (Partner, ApiResponse) {
    // The windows of keys begin at different seconds.
    for _ in 0..100 {
        let partner = service.partner();
        let response = request(&partner);
        if response.header("ratelimit-reset").parse::<u32>().unwrap() >= ENOUGH_LEFT {
            return (partner, response);
        }
    }
    panic!("the windows of all keys are nearly over");
}

#[test]
fn a_request_above_the_limit_is_429_with_the_seconds_to_wait() {
    let service = start(&[(RateClass::Read, 3), (RateClass::Manage, 0)]);
    let list = |partner: &Partner| partner.call("/albums/list", &json!({}));
    let (partner, first) = begin_window(&service, list);
    let responses = [first, list(&partner), list(&partner)];
    for (left, response) in (0..3).rev().zip(responses) {
        assert_eq!(response.status, 200);
        assert_eq!(response.header("ratelimit-policy"), "\"read\";q=3;w=60");
        assert_eq!(response.header("ratelimit-limit"), "3");
        assert_eq!(response.header("ratelimit-remaining"), left.to_string());
        let reset: u32 = response.header("ratelimit-reset").parse().unwrap();
        assert_eq!(response.header("ratelimit"), format!("\"read\";r={left};t={reset}"));
        assert!((1..=60).contains(&reset));
    }
    let refused = partner.call("/credits/get", &json!({}));
    assert_eq!(refused.header("ratelimit-remaining"), "0");
    let wait: f64 = refused.header("retry-after").parse().unwrap();
    let body = refused.defined_error(429, "TOO_MANY_REQUESTS");
    assert_eq!(body["data"]["tryAgainIn"].as_f64().unwrap(), wait);
    assert!((1.0..=60.0).contains(&wait));
    // Other classes, other keys and the document have limits of their own, or none.
    let created = partner.call("/albums/create", &json!({ "title": "A" }));
    assert_eq!((created.status, created.header("ratelimit-limit")), (200, ""));
    assert_eq!(service.partner().call("/albums/list", &json!({})).status, 200);
    assert_eq!(partner.send("GET /openapi/openapi.json", &[], "").status, 200);
}

#[test]
fn refusals_of_a_key_and_of_an_input_have_no_limit_and_one() {
    let service = start(&[(RateClass::Read, 100)]);
    let refused = service.partner().call("/albums/list", &json!([]));
    assert_eq!((refused.status, refused.header("ratelimit-remaining")), (400, "99"));
    let anonymous = Partner::new(&service, None).call("/albums/list", &json!({}));
    assert_eq!((anonymous.status, anonymous.header("ratelimit-limit")), (401, ""));
}

#[test]
fn a_batch_costs_a_unit_for_each_twenty_entries() {
    let service = start(&[(RateClass::Upload, 10)]);
    let (album, _) = service.partner().create_album();
    let sign = |partner: &Partner, count: usize| {
        let file = json!({ "filename": "a.jpg", "contentType": "image/jpeg" });
        partner.call("/photos/photo/signed/batch", &json!({ "albumId": album, "entries": vec![file; count] }))
    };
    let (partner, first) = begin_window(&service, |partner| sign(partner, 41));
    assert_eq!((first.status, first.header("ratelimit-remaining")), (200, "7"));
    let refused = sign(&partner, 161);
    // Nothing for this request. One unit was spent for the attempt.
    assert_eq!((refused.status, refused.header("ratelimit-remaining")), (429, "0"));
    let last = sign(&partner, 120);
    assert_eq!((last.status, last.header("ratelimit-remaining")), (200, "0"));
    assert_eq!(sign(&partner, 1).status, 429);
}

#[test]
fn a_start_list_costs_a_unit_for_each_five_thousand_bibs_with_its_ranges_spelled_out() {
    let service = start(&[(RateClass::Manage, 100)]);
    let (album, _) = service.partner().create_album();
    let call = |partner: &Partner, operation: &str, mut list: Value| {
        list["albumId"] = album.clone();
        partner.call(&format!("/albums/startlist/{operation}"), &list)
    };
    let range = |to: &str| json!({ "ranges": [{ "from": "1", "to": to }] });
    let (partner, first) = begin_window(&service, |partner| call(partner, "import", range("12000")));
    assert_eq!((first.status, first.header("ratelimit-remaining")), (200, "97"));
    let checked = call(&partner, "check", range("5001"));
    assert_eq!((checked.status, checked.header("ratelimit-remaining")), (200, "95"));
    let rows: String = (1..=5000).map(|bib| format!("{bib}\n")).collect();
    let file = call(&partner, "import", json!({ "csv": format!("bib\n{rows}") }));
    assert_eq!((file.status, file.header("ratelimit-remaining")), (200, "94"));
    let with_others = json!({ "csv": format!("bib\n{rows}"), "exclude": ["7"], "mode": "merge" });
    let file = call(&partner, "import", with_others);
    assert_eq!((file.status, file.header("ratelimit-remaining")), (200, "92"));
    // So many are not spelled out.
    let refused = call(&partner, "import", range("999999999"));
    assert_eq!((refused.status, refused.header("ratelimit-remaining")), (422, "91"));
}

/// Otherwise no window would ever admit it, and its 429 would say when to try again in vain.
#[test]
fn a_batch_that_costs_more_than_the_limit_costs_the_whole_limit() {
    for limit in [1, 3] {
        let service = start(&[(RateClass::Upload, limit)]);
        let (album, _) = service.partner().create_album();
        let sign = |partner: &Partner, count: usize| {
            let file = json!({ "filename": "a.jpg", "contentType": "image/jpeg" });
            let body = json!({ "albumId": album, "entries": vec![file; count] });
            partner.call("/photos/photo/signed/batch", &body)
        };
        let (partner, whole) = begin_window(&service, |partner| sign(partner, 101));
        assert_eq!((whole.status, whole.header("ratelimit-remaining")), (200, "0"), "{limit}");
        assert_eq!(sign(&partner, 1).status, 429, "{limit}");
    }
}

#[test]
fn a_key_may_have_limits_of_its_own() {
    let service = start(&[(RateClass::Read, 1), (RateClass::Search, 5)]);
    let key = KeyText::generate(KeyMode::Live);
    let own = limits(&[(RateClass::Read, 7), (RateClass::Search, 0)]);
    service.create_key("Lake Timing", &key, |new| new.limits = own);
    let partner = Partner::new(&service, Some(key.reveal().to_owned()));
    assert_eq!(partner.call("/albums/list", &json!({})).header("ratelimit-limit"), "7");
    let (album, _) = partner.create_album();
    let search = partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "7" }));
    assert_eq!((search.status, search.header("ratelimit-limit")), (200, ""));
}
