//! What each role may do in the console, operation by operation. A new operation has to be put into a table here.

use std::collections::BTreeSet;

use photofinish_store::model::account::Role;
use serde_json::json;

use crate::console::{Browser, PASSWORD, invite, signed_in};
use crate::support::TestService;

/// For whoever is not signed in too.
const ANYBODY: [&str; 4] = ["session/create", "session/delete", "invitation/get", "invitation/accept"];

/// For everybody who is signed in.
const VIEWERS: [&str; 17] = [
    "albums/list",
    "albums/get",
    "albums/progress",
    "albums/cameras/list",
    "photos/photo/list",
    "photos/photo/get",
    "photos/search/face/signed",
    "photos/search/face/list",
    "photos/search/text/list",
    "photos/download/create",
    "events/list",
    "credits/get",
    "session/get",
    "sessions/list",
    "sessions/end",
    "account/update",
    "pipeline/get",
];

/// For organizers and owners.
const ORGANIZERS: [&str; 39] = [
    "albums/create",
    "albums/update",
    "albums/delete",
    "albums/reprocess",
    "albums/startlist/import",
    "albums/startlist/check",
    "albums/startlist/get",
    "albums/startlist/entries",
    "albums/startlist/delete",
    "albums/gallery/get",
    "albums/gallery/update",
    "albums/gallery/reports",
    "albums/gallery/reports/dismiss",
    "albums/watermark/get",
    "albums/watermark/signed",
    "albums/watermark/set",
    "photos/photo/signed",
    "photos/photo/signed/batch",
    "photos/photo/success",
    "photos/photo/success/batch",
    "photos/photo/delete",
    "photos/photo/retry",
    "erasures/list",
    "erasures/get",
    "erasures/verify",
    "webhooks/create",
    "webhooks/list",
    "webhooks/get",
    "webhooks/update",
    "webhooks/delete",
    "webhooks/rotate",
    "webhooks/test",
    "webhooks/deliveries/list",
    "webhooks/deliveries/get",
    "webhooks/redeliver",
    "credits/mock/set",
    "usage/get",
    "usage/costs",
    "usage/dearest",
];

/// For owners alone.
const OWNERS: [&str; 10] = [
    "faces/erase",
    "people/erase",
    "albums/gallery/reports/erase",
    "accounts/list",
    "accounts/invite",
    "accounts/reset",
    "accounts/update",
    "keys/create",
    "keys/list",
    "keys/revoke",
];

/// For operators of the service alone, whatever their role is.
const OPERATORS: [&str; 2] = ["operator/get", "operator/credits/grant"];

/// Every operation of the console, from the types that its pages compile with.
fn operations() -> Vec<String> {
    let types = photofinish_api::typescript_types();
    let (_, interface) = types.split_once("export interface Operations {\n").unwrap();
    let (operations, _) = interface.split_once("\n}").unwrap();
    operations.lines().map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
}

/// The least role that may call an operation; `None` for what operators alone may.
fn least_role(operation: &str) -> Option<Role> {
    let by_role =
        [(Role::Viewer, &VIEWERS[..]), (Role::Organizer, &ORGANIZERS[..]), (Role::Owner, &OWNERS[..])];
    by_role.into_iter().find(|(_, operations)| operations.contains(&operation)).map(|(role, _)| role)
}

#[test]
fn each_operation_is_for_the_roles_that_the_tables_say() {
    let operations = operations();
    let listed: BTreeSet<&str> =
        [&ANYBODY[..], &VIEWERS, &ORGANIZERS, &OWNERS, &OPERATORS].concat().into_iter().collect();
    assert_eq!(listed, operations.iter().map(String::as_str).collect::<BTreeSet<_>>());
    let service = TestService::start();
    for (role, email) in [
        (Role::Viewer, "viewer@race.example"),
        (Role::Organizer, "organizer@race.example"),
        (Role::Owner, "owner@race.example"),
    ] {
        let browser = signed_in(&service, email, role);
        for operation in operations.iter().filter(|operation| !ANYBODY.contains(&operation.as_str())) {
            // The role is judged before the body, and no operation takes a list: nothing is changed.
            let response = browser.call(operation, json!([]));
            if least_role(operation).is_some_and(|least| role >= least) {
                assert_ne!(response.status, 403, "{role:?}: {operation}");
            } else {
                let refused = response.defined_error(403, "FORBIDDEN");
                assert_eq!(refused["data"]["code"], "INSUFFICIENT_ROLE", "{role:?}: {operation}");
            }
        }
    }
    let mut operator = Browser::new(&service);
    let token = invite(&service, "operator@race.example", Role::Viewer, true);
    let joined = operator.call("invitation/accept", json!({ "token": token.reveal(), "password": PASSWORD }));
    operator.keep(&joined);
    for operation in OPERATORS {
        assert_ne!(operator.call(operation, json!([])).status, 403, "{operation}");
    }
}
