//! Invitations in the console: whom an owner may let in again, and which links end.

use photofinish_store::model::account::{LinkPurpose, NewAccount, NewLink, Role};
use serde_json::json;
use time::{Duration, OffsetDateTime};

use crate::console::{Browser, PASSWORD, invite, signed_in};
use crate::support::TestService;

#[test]
fn an_owner_takes_over_no_account_of_an_operator_by_an_invitation() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    // Without a password, as of an operator who signs in by links alone.
    let token = invite(&service, "olga@race.example", Role::Owner, true);
    let find = || service.block_on(service.store.accounts.find("olga@race.example")).unwrap().unwrap();
    let before = find();
    let again = json!({ "email": "Olga@race.example", "role": "viewer" });
    let refused = owner.call("accounts/invite", again.clone()).defined_error(403, "FORBIDDEN");
    assert_eq!(refused["data"]["code"], "INSUFFICIENT_ROLE");
    assert_eq!(find(), before);
    let own_link = json!({ "token": token.reveal() });
    Browser::new(&service).call("invitation/get", own_link).ok();

    let mut operator = Browser::new(&service);
    let token = invite(&service, "otto@race.example", Role::Owner, true);
    let joined = operator.call("invitation/accept", json!({ "token": token.reveal(), "password": PASSWORD }));
    operator.keep(&joined);
    joined.ok();
    let invited = operator.call("accounts/invite", again).ok()["account"].clone();
    assert_eq!((&invited["role"], &invited["operator"]), (&json!("viewer"), &json!(true)));
}

/// Who is an operator elsewhere is nobody's business.
#[test]
fn an_address_of_another_organization_is_taken_whoever_has_it() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    for is_operator in [false, true] {
        let email = format!("{is_operator}@forest.example");
        let organization = service.store.keys.get_or_create_organization("Forest Timing");
        let organization = service.block_on(organization).unwrap();
        let account = NewAccount { organization, email: email.clone(), role: Role::Owner, is_operator };
        let expires_at = OffsetDateTime::now_utc() + Duration::HOUR;
        let digest = [u8::from(is_operator); 32];
        let link = NewLink { purpose: LinkPurpose::Enter, digest, expires_at };
        service.block_on(service.store.accounts.invite(account, link)).unwrap();
        let taken = owner.call("accounts/invite", json!({ "email": email, "role": "viewer" }));
        assert_eq!(taken.defined_error(409, "CONFLICT")["data"]["code"], "ADDRESS_TAKEN");
    }
}

#[test]
fn an_invitation_enables_no_disabled_account() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    let invite = json!({ "email": "ben@race.example", "role": "viewer" });
    let ben = owner.call("accounts/invite", invite.clone()).ok()["account"]["id"].clone();
    let disable = |disabled: bool| {
        owner.call("accounts/update", json!({ "accountId": ben, "disabled": disabled })).ok();
    };
    disable(true);
    // As `accounts/reset` answers.
    let again = owner.call("accounts/invite", invite).ok();
    assert_eq!(again["account"]["disabled"], true);
    let token = again["link"].as_str().unwrap().rsplit('/').next().unwrap();
    let get = || Browser::new(&service).call("invitation/get", json!({ "token": token }));
    get().defined_error(404, "NOT_FOUND");
    disable(false);
    assert_eq!(get().ok()["email"], "ben@race.example");
}

#[test]
fn another_password_ends_the_links_that_were_made_before() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    let ben = signed_in(&service, "ben@race.example", Role::Viewer);
    let account = ben.call("session/get", json!({})).ok()["account"]["id"].clone();
    let reset = owner.call("accounts/reset", json!({ "accountId": account })).ok();
    let token = reset["link"].as_str().unwrap().rsplit('/').next().unwrap();
    let get = || Browser::new(&service).call("invitation/get", json!({ "token": token }));
    assert_eq!(get().ok()["purpose"], "reset");
    let change = json!({ "password": { "current": PASSWORD, "new": "five dry cats sit" } });
    ben.call("account/update", change).ok();
    get().defined_error(404, "NOT_FOUND");
    ben.call("session/get", json!({})).ok();
}
