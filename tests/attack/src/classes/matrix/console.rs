//! The operations that only accounts have, below `/console/api`. Those of partners are there too.

use serde_json::json;

use crate::classes::operations::{Accounts, CHANGED, MANAGE, Names, Operation, on_album, operation};

/// The token of no link.
const NO_LINK: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

const fn for_accounts(operation: Operation, accounts: Accounts) -> Operation {
    Operation { accounts, ..operation }
}

const fn with_success(operation: Operation, success: &'static [u16]) -> Operation {
    Operation { success, ..operation }
}

/// Every operation of the console alone, but those that are exempt.
pub(super) static CONSOLE_OPERATIONS: [Operation; 18] = [
    // Wrong passwords, of which a network has so many.
    with_success(
        for_accounts(
            operation(
                "/session/create",
                None,
                Names::Nothing,
                |_| json!({ "email": "nobody@matrix.example", "password": "four wet dogs run" }),
            ),
            Accounts::NotNeeded,
        ),
        &[401, 429, 503],
    ),
    operation("/session/get", None, Names::Nothing, |_| json!({})),
    operation("/sessions/list", None, Names::Nothing, |_| json!({})),
    // Another account's, whoever asks.
    with_success(
        operation("/sessions/end", None, Names::Person, |ids| json!({ "sessionId": ids.session })),
        &[404],
    ),
    with_success(
        for_accounts(
            operation("/invitation/get", None, Names::Nothing, |_| json!({ "token": NO_LINK })),
            Accounts::NotNeeded,
        ),
        &[404],
    ),
    with_success(
        for_accounts(
            operation("/invitation/accept", None, Names::Nothing, |_| json!({ "token": NO_LINK })),
            Accounts::NotNeeded,
        ),
        &[404],
    ),
    operation("/account/update", None, Names::Nothing, |_| json!({ "name": CHANGED })),
    for_accounts(operation("/accounts/list", None, Names::Nothing, |_| json!({})), Accounts::Owners),
    // Whose address it is another organization cannot use.
    with_success(
        for_accounts(
            operation(
                "/accounts/invite",
                None,
                Names::Nothing,
                |_| json!({ "email": "invited@matrix.example", "role": "viewer" }),
            ),
            Accounts::Owners,
        ),
        &[200, 409],
    ),
    for_accounts(
        operation("/accounts/reset", None, Names::Person, |ids| json!({ "accountId": ids.account })),
        Accounts::Owners,
    ),
    for_accounts(
        operation(
            "/accounts/update",
            None,
            Names::Person,
            |ids| json!({ "accountId": ids.account, "role": "viewer" }),
        ),
        Accounts::Owners,
    ),
    // An organization has so many.
    with_success(
        for_accounts(
            operation(
                "/keys/create",
                None,
                Names::Nothing,
                |_| json!({ "label": CHANGED, "mode": "test", "scopes": ["search:read"], "expiresInDays": 1 }),
            ),
            Accounts::Owners,
        ),
        &[200, 409],
    ),
    for_accounts(operation("/keys/list", None, Names::Nothing, |_| json!({})), Accounts::Owners),
    for_accounts(
        operation("/keys/revoke", None, Names::Person, |ids| json!({ "keyId": ids.key })),
        Accounts::Owners,
    ),
    operation("/pipeline/get", None, Names::Nothing, |_| json!({})),
    operation("/usage/dearest", Some(MANAGE), Names::Album, on_album),
    for_accounts(operation("/operator/get", None, Names::Nothing, |_| json!({})), Accounts::Operators),
    // There is no such organization.
    with_success(
        for_accounts(
            operation(
                "/operator/credits/grant",
                None,
                Names::Nothing,
                |_| json!({ "organization": "No such organization", "mode": "test", "credits": 1 }),
            ),
            Accounts::Operators,
        ),
        &[404],
    ),
];

/// Operations of the console that the matrix does not try with every caller, and why.
#[cfg(test)]
pub(super) const EXEMPT: [(&str, &str); 1] =
    [("/session/delete", "ends the session that asks for it: it makes the caller who has signed out")];
