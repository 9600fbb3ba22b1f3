//! Grants of credits by operators.

use photofinish_store::model::account::Role;
use serde_json::{Value, json};

use crate::console::{Browser, PASSWORD, invite};
use crate::support::{TestService, unknown_id};

/// The answer may be lost after the grant is written, and who sees none presses the button again.
#[test]
fn a_grant_that_is_sent_again_counts_once() {
    let service = TestService::start();
    let mut operator = Browser::new(&service);
    let token = invite(&service, "olga@race.example", Role::Owner, true);
    let joined = operator.call("invitation/accept", json!({ "token": token.reveal(), "password": PASSWORD }));
    operator.keep(&joined);
    joined.ok();
    let grant = |credits: u32, id: Value| {
        let body =
            json!({ "organization": "Lake Timing", "mode": "live", "credits": credits, "grantId": id });
        operator.call("operator/credits/grant", body)
    };
    for _ in 0..2 {
        assert_eq!(grant(10_000, unknown_id()).ok()["balance"].as_f64(), Some(10_000.0));
    }
    let changed = grant(20_000, unknown_id()).defined_error(409, "CONFLICT");
    assert_eq!(changed["data"]["code"], "GRANTED_OTHERWISE");
    let another = json!("01932c07-93a1-7c40-8b1f-2d5e6f708193");
    assert_eq!(grant(10_000, another).ok()["balance"].as_f64(), Some(20_000.0));
    grant(1, json!("17")).issues();
    let without = json!({ "organization": "Lake Timing", "mode": "live", "credits": 5 });
    for balance in [20_005.0, 20_010.0] {
        let granted = operator.call("operator/credits/grant", without.clone()).ok();
        assert_eq!(granted["balance"].as_f64(), Some(balance));
    }
}
