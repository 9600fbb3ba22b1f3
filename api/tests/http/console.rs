//! The console: signing in, what accounts may do, and requests that other sites make a browser send.

use photofinish_api::token::Token;
use photofinish_store::model::account::{LinkPurpose, NewAccount, NewLink, Role};
use photofinish_store::model::cost::Spent;
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::photo::{FailureReason, NewPhoto};
use photofinish_store::model::rate::RateClass;
use photofinish_store::traits::{LeaseKind, LeaseRequest};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use crate::support::{ApiResponse, Partner, TestService};

pub(crate) const PASSWORD: &str = "four wet dogs run";

/// A browser on a page of the console.
pub(crate) struct Browser<'s> {
    service: &'s TestService,
    cookie: Option<String>,
    mode: Option<&'static str>,
}

impl<'s> Browser<'s> {
    pub(crate) fn new(service: &'s TestService) -> Self {
        Self { service, cookie: None, mode: None }
    }

    pub(crate) fn send(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> ApiResponse {
        let mut all = vec![("content-type", "application/json")];
        all.extend(self.cookie.as_deref().map(|cookie| ("cookie", cookie)));
        all.extend(self.mode.map(|mode| ("x-photofinish-mode", mode)));
        all.extend_from_slice(headers);
        stranger(self.service).send(&format!("POST /console/api/{path}"), &all, body.to_string())
    }

    pub(crate) fn call(&self, path: &str, body: Value) -> ApiResponse {
        self.send(path, &body, &[("sec-fetch-site", "same-origin")])
    }

    /// The lines of a request's head that show whose it is.
    pub(crate) fn head_lines(&self) -> String {
        let cookie = self.cookie.as_deref().unwrap_or_default();
        format!("cookie: {cookie}\r\nsec-fetch-site: same-origin\r\ncontent-type: application/json\r\n")
    }

    /// Keeps the cookie that a response sets.
    pub(crate) fn keep(&mut self, response: &ApiResponse) {
        let set = response.header("set-cookie");
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Lax") && set.contains("Path=/"), "{set}");
        self.cookie = Some(set.split(';').next().unwrap().to_owned());
    }
}

fn stranger(service: &TestService) -> Partner {
    Partner::new(service, None)
}

/// The organization of all accounts here.
fn organization(service: &TestService) -> OrganizationId {
    service.block_on(service.store.keys.get_or_create_organization("Lake Timing")).unwrap()
}

/// Invites an account and returns its token.
pub(crate) fn invite(service: &TestService, email: &str, role: Role, is_operator: bool) -> Token {
    let token = Token::generate();
    let link = NewLink {
        purpose: LinkPurpose::Welcome,
        digest: token.digest(),
        expires_at: OffsetDateTime::now_utc() + Duration::HOUR,
    };
    let account =
        NewAccount { organization: organization(service), email: email.to_owned(), role, is_operator };
    service.block_on(service.store.accounts.invite(account, link)).unwrap();
    token
}

/// A browser in which somebody with this role is signed in.
pub(crate) fn signed_in<'s>(service: &'s TestService, email: &str, role: Role) -> Browser<'s> {
    let token = invite(service, email, role, false);
    let mut browser = Browser::new(service);
    let joined = browser
        .call("invitation/accept", json!({ "token": token.reveal(), "password": PASSWORD, "name": "Anna" }));
    browser.keep(&joined);
    joined.ok();
    browser
}

#[test]
fn an_invitation_leads_to_a_password_and_the_password_to_sessions() {
    let service = TestService::start();
    let token = invite(&service, "anna@race.example", Role::Owner, false);
    let mut browser = Browser::new(&service);
    let invitation = browser.call("invitation/get", json!({ "token": token.reveal() })).ok();
    assert_eq!(invitation["email"], "anna@race.example");
    assert_eq!((&invitation["role"], &invitation["purpose"]), (&json!("owner"), &json!("welcome")));
    let weak = json!({ "token": token.reveal(), "password": "password1234" });
    let refused = browser.call("invitation/accept", weak).undefined_error(400, "BAD_REQUEST");
    assert_eq!(refused["data"]["issues"][0]["code"], "too_common");
    let accepted = json!({ "token": token.reveal(), "password": PASSWORD });
    let session = browser.call("invitation/accept", accepted.clone());
    browser.keep(&session);
    assert_eq!(session.ok()["account"]["role"], "owner");
    browser.call("invitation/accept", accepted).defined_error(404, "NOT_FOUND");
    let got = browser.call("session/get", json!({})).ok();
    assert_eq!((&got["modes"], &got["environment"]), (&json!(["test", "live"]), &json!("local")));

    let mut second = Browser::new(&service);
    let wrong = json!({ "email": "anna@race.example", "password": "four wet dogs ran" });
    let refused = second.call("session/create", wrong).defined_error(401, "UNAUTHORIZED");
    assert_eq!(refused["data"]["code"], "WRONG_CREDENTIALS");
    let nobody = json!({ "email": "nobody@race.example", "password": PASSWORD });
    assert_eq!(second.call("session/create", nobody).defined_error(401, "UNAUTHORIZED"), refused);
    let created =
        second.call("session/create", json!({ "email": " Anna@Race.example", "password": PASSWORD }));
    second.keep(&created);
    created.ok();
    let sessions = second.call("sessions/list", json!({})).ok();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(sessions["sessions"][0]["current"], true);

    second.call("session/delete", json!({})).ok();
    let ended = second.call("session/get", json!({})).defined_error(401, "UNAUTHORIZED");
    assert_eq!(ended["data"]["code"], "SESSION_ENDED");
    let none = Browser::new(&service).call("albums/list", json!({})).defined_error(401, "UNAUTHORIZED");
    assert_eq!(none["data"]["code"], "SESSION_MISSING");
    browser.call("session/get", json!({})).ok();
}

#[test]
fn requests_of_other_sites_are_refused() {
    let service = TestService::start();
    let browser = signed_in(&service, "anna@race.example", Role::Owner);
    let body = json!({ "title": "Theirs" });
    let host = format!("http://{}", service.address);
    let accepted: [&[(&str, &str)]; 2] = [&[("sec-fetch-site", "same-origin")], &[("origin", &host)]];
    for headers in accepted {
        browser.send("albums/list", &json!({}), headers).ok();
    }
    let refused: [&[(&str, &str)]; 7] = [
        &[],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site"), ("origin", &host)],
    ];
    for headers in refused {
        let error = browser.send("albums/create", &body, headers).defined_error(403, "FORBIDDEN");
        assert_eq!(error["data"]["code"], "CROSS_SITE", "{headers:?}");
    }
    for form in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let cookie = browser.cookie.as_deref().unwrap();
        let headers = [("content-type", form), ("cookie", cookie), ("sec-fetch-site", "same-origin")];
        let sent = stranger(&service).send("POST /console/api/albums/create", &headers, body.to_string());
        assert_eq!(sent.defined_error(403, "FORBIDDEN")["data"]["code"], "CROSS_SITE");
    }
    assert_eq!(browser.call("albums/list", json!({})).ok()["total"], 0);
}

#[test]
fn roles_permit_what_they_say() {
    let service = TestService::start();
    let owner = signed_in(&service, "owner@race.example", Role::Owner);
    let organizer = signed_in(&service, "organizer@race.example", Role::Organizer);
    let viewer = signed_in(&service, "viewer@race.example", Role::Viewer);
    let album = organizer.call("albums/create", json!({ "title": "Lake Marathon" })).ok();
    let one = json!({ "albumId": album["id"] });
    assert_eq!(viewer.call("albums/get", one.clone()).ok()["title"], "Lake Marathon");
    viewer.call("albums/progress", one.clone()).ok();
    let erase = json!({ "albumId": album["id"], "bib": "1207", "dryRun": true });
    let refused = [
        (&viewer, "albums/create", json!({ "title": "x" })),
        (&viewer, "albums/delete", one.clone()),
        (
            &viewer,
            "photos/photo/signed",
            json!({ "albumId": album["id"], "filename": "a.jpg", "contentType": "image/jpeg" }),
        ),
        (&viewer, "keys/list", json!({})),
        (&organizer, "keys/create", json!({ "mode": "test", "scopes": ["search:read"] })),
        (&organizer, "accounts/list", json!({})),
        (&organizer, "people/erase", erase.clone()),
        (&owner, "operator/get", json!({})),
        (&owner, "operator/credits/grant", json!({ "organization": "x", "mode": "live", "credits": 1 })),
    ];
    for (browser, path, body) in refused {
        let error = browser.call(path, body).defined_error(403, "FORBIDDEN");
        assert_eq!(error["data"]["code"], "INSUFFICIENT_ROLE", "{path}");
    }
    owner.call("people/erase", erase).ok();
    // An album of test keys is not there for live ones.
    let live = Browser { mode: Some("live"), cookie: owner.cookie.clone(), ..Browser::new(&service) };
    live.call("albums/get", one).defined_error(404, "NOT_FOUND");
    let mut operator = Browser::new(&service);
    let token = invite(&service, "operator@race.example", Role::Viewer, true);
    let joined = operator.call("invitation/accept", json!({ "token": token.reveal(), "password": PASSWORD }));
    operator.keep(&joined);
    assert_eq!(operator.call("operator/get", json!({})).ok()["components"][0]["name"], "database");
    assert_eq!(operator.call("pipeline/get", json!({})).ok()["processes"], json!([]));
}

#[test]
fn the_dearest_photos_of_an_album_are_shown() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    let album = owner.call("albums/create", json!({ "title": "Costs" })).ok()["id"].clone();
    let album_id = AlbumId(album.as_str().unwrap().parse().unwrap());
    let dearest = || owner.call("usage/dearest", json!({ "albumId": album })).ok();
    assert_eq!(dearest(), json!({ "photos": [], "looked": 0, "total": 0 }));
    let store = &service.store;
    let photos: Vec<PhotoId> = service.block_on(async {
        let new = ["cheap.jpg", "dear.jpg", "waiting.jpg"]
            .map(|name| NewPhoto { filename: name.to_owned(), content_type: "image/jpeg".to_owned() });
        let photos = store.photos.create(album_id, new.to_vec()).await.unwrap();
        store.queue.confirm(album_id, &photos[..2]).await.unwrap();
        let request = LeaseRequest { limit: 2, ttl: Duration::HOUR.unsigned_abs(), kind: LeaseKind::Fresh };
        for lease in store.queue.lease(request).await.unwrap() {
            // A CPU second costs a thousandth.
            let seconds = if lease.photo == photos[1] { 4 } else { 2 };
            let cpu = std::time::Duration::from_secs(seconds);
            lease.spent.add("read", Spent { cpu, bytes_read: 7, ..Spent::default() });
            store.queue.fail(&lease, FailureReason::CorruptImage, "for a test").await.unwrap();
        }
        photos
    });
    let shown = dearest();
    let expected = json!({
        "photoId": photos[1].0, "filename": "dear.jpg", "thumbnailUrl": null,
        "cpuSeconds": 4.0, "gpuSeconds": 0.0, "bytesRead": 7.0, "bytesWritten": 0.0, "money": 0.004,
    });
    assert_eq!(shown["photos"][0], expected);
    assert_eq!((&shown["photos"][1]["filename"], &shown["photos"][2]), (&json!("cheap.jpg"), &Value::Null));
    assert_eq!((&shown["looked"], &shown["total"]), (&json!(3), &json!(3)));
    // It is not for partners, and not for other modes.
    let live = Browser { mode: Some("live"), cookie: owner.cookie.clone(), ..Browser::new(&service) };
    live.call("usage/dearest", json!({ "albumId": album })).defined_error(404, "NOT_FOUND");
}

#[test]
fn keys_made_in_the_console_work_until_they_are_revoked() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    let create = json!({ "label": "gate 3", "mode": "test", "scopes": ["search:read"], "expiresInDays": 1, "limits": { "read": 7 } });
    let created = owner.call("keys/create", create).ok();
    let mut partner = stranger(&service);
    partner.key = Some(created["key"].as_str().unwrap().to_owned());
    let listed = partner.call("/albums/list", &json!({}));
    assert_eq!((listed.status, listed.header("ratelimit-limit")), (200, "7"), "a limit of its own");
    let listed = owner.call("keys/list", json!({})).ok();
    let found = listed["keys"].as_array().unwrap().iter().find(|key| key["id"] == created["id"]).unwrap();
    assert_eq!((&found["label"], found.get("key")), (&json!("gate 3"), None));
    let limits = json!({ "read": 7, "manage": null, "upload": null, "search": null });
    assert_eq!((&created["limits"], &found["limits"]), (&limits, &limits));
    owner.call("keys/revoke", json!({ "keyId": created["id"] })).ok();
    partner.call("/albums/list", &json!({})).defined_error(401, "UNAUTHORIZED");
    let elsewhere = service.block_on(service.store.keys.get_or_create_organization("Elsewhere")).unwrap();
    let foreign = photofinish_store::model::key::NewKey {
        organization: elsewhere,
        mode: photofinish_store::model::key::KeyMode::Test,
        label: String::new(),
        hint: String::new(),
        scopes: Vec::new(),
        limits: Default::default(),
        expires_at: None,
        digest: [3; 32],
    };
    let foreign = service.block_on(service.store.keys.create(foreign)).unwrap();
    owner.call("keys/revoke", json!({ "keyId": foreign.id })).defined_error(404, "NOT_FOUND");
}

#[test]
fn an_owner_manages_accounts_and_a_changed_password_ends_other_sessions() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    let invited =
        owner.call("accounts/invite", json!({ "email": "Ben@Race.example", "role": "viewer" })).ok();
    let link = invited["link"].as_str().unwrap();
    let token = link.strip_prefix("http://127.0.0.1:8080/console/welcome/").unwrap();
    let mut ben = Browser::new(&service);
    let joined = ben.call("invitation/accept", json!({ "token": token, "password": PASSWORD }));
    ben.keep(&joined);
    joined.ok();
    let taken = owner.call("accounts/invite", json!({ "email": "ben@race.example", "role": "viewer" }));
    assert_eq!(taken.defined_error(409, "CONFLICT")["data"]["code"], "ADDRESS_TAKEN");
    let me = owner.call("session/get", json!({})).ok();
    let demote = json!({ "accountId": me["account"]["id"], "role": "viewer" });
    let error = owner.call("accounts/update", demote).defined_error(409, "CONFLICT");
    assert_eq!(error["data"]["code"], "LAST_OWNER");

    let mut elsewhere = Browser::new(&service);
    let created =
        elsewhere.call("session/create", json!({ "email": "anna@race.example", "password": PASSWORD }));
    elsewhere.keep(&created);
    let wrong = json!({ "password": { "current": "not this one", "new": "five dry cats sit" } });
    let error = owner.call("account/update", wrong).defined_error(403, "FORBIDDEN");
    assert_eq!(error["data"]["code"], "WRONG_PASSWORD");
    let change = json!({ "name": "Änne", "password": { "current": PASSWORD, "new": "five dry cats sit" } });
    assert_eq!(owner.call("account/update", change).ok()["name"], "Änne");
    owner.call("session/get", json!({})).ok();
    elsewhere.call("session/get", json!({})).defined_error(401, "UNAUTHORIZED");

    let disable = json!({ "accountId": invited["account"]["id"], "disabled": true });
    owner.call("accounts/update", disable).ok();
    ben.call("session/get", json!({})).defined_error(401, "UNAUTHORIZED");
    let back = json!({ "email": "ben@race.example", "password": PASSWORD });
    ben.call("session/create", back).defined_error(401, "UNAUTHORIZED");
}

#[test]
fn an_owner_gets_into_no_account_of_an_operator() {
    let service = TestService::start();
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    let mut operator = Browser::new(&service);
    let token = invite(&service, "olga@race.example", Role::Owner, true);
    let joined = operator.call("invitation/accept", json!({ "token": token.reveal(), "password": PASSWORD }));
    operator.keep(&joined);
    let olga = joined.ok()["account"]["id"].clone();
    for (operation, body) in [
        ("accounts/reset", json!({ "accountId": olga })),
        ("accounts/update", json!({ "accountId": olga, "disabled": true })),
        ("accounts/update", json!({ "accountId": olga, "role": "viewer" })),
    ] {
        let refused = owner.call(operation, body).defined_error(403, "FORBIDDEN");
        assert_eq!(refused["data"]["code"], "INSUFFICIENT_ROLE", "{operation}");
    }
    operator.call("operator/get", json!({})).ok();
    operator.call("accounts/reset", json!({ "accountId": olga })).ok();
}

#[test]
fn guessing_is_slowed_down_and_does_not_tell_which_addresses_have_an_account() {
    let service = TestService::start();
    let _owner = signed_in(&service, "anna@race.example", Role::Owner);
    let browser = Browser::new(&service);
    for email in ["anna@race.example", "nobody@race.example"] {
        let guess = json!({ "email": email, "password": "a wrong password" });
        for _ in 0..6 {
            browser.call("session/create", guess.clone()).defined_error(401, "UNAUTHORIZED");
        }
        let right = json!({ "email": email, "password": PASSWORD });
        let blocked = browser.call("session/create", right).defined_error(429, "TOO_MANY_REQUESTS");
        assert!(blocked["data"]["tryAgainIn"].as_f64().unwrap() <= 1.0);
    }
}

#[test]
fn pages_are_locked_down_and_files_are_not_pages() {
    let service = TestService::start();
    let partner = stranger(&service);
    let page = partner.send("GET /console/albums/anything", &[], "");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    for part in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"));
    assert_eq!((page.header("referrer-policy"), page.header("cache-control")), ("no-referrer", "no-cache"));
    let again = partner.send("GET /console", &[("if-none-match", page.header("etag"))], "");
    assert_eq!((again.status, again.bytes.len()), (304, 0));
    assert_eq!(partner.send("HEAD /console", &[], "").bytes.len(), 0);
    partner.send("GET /assets/../Cargo.toml", &[], "").defined_error(404, "NOT_FOUND");
    partner.send("GET /assets/console.html", &[], "").defined_error(404, "NOT_FOUND");
    partner.send("GET /console/api/nothing", &[], "").defined_error(404, "NOT_FOUND");
    partner.send("POST /console", &[], "").defined_error(405, "METHOD_NOT_SUPPORTED");
    let root = partner.send("GET /", &[], "");
    assert_eq!((root.status, root.header("location")), (303, "/console"));
    // Operations of the console are not there for keys.
    partner.call("/keys/list", &json!({})).defined_error(404, "NOT_FOUND");
    let without = TestService::start_with(|settings| settings.console.is_enabled = false);
    stranger(&without).send("GET /console", &[], "").defined_error(404, "NOT_FOUND");
    stranger(&without).send("POST /console/api/session/get", &[], "{}").defined_error(404, "NOT_FOUND");
}

#[test]
fn an_account_sees_the_usage_of_either_mode() {
    let service = TestService::start();
    let browser = signed_in(&service, "anna@race.example", Role::Owner);
    for mode in ["live", "test"] {
        let usage = json!({ "from": "2026-10-01", "to": "2026-10-31", "mode": mode });
        assert_eq!(browser.call("usage/get", usage).ok()["mode"], mode);
    }
}

#[test]
fn an_owner_makes_no_key_that_may_more_than_the_service_permits() {
    let service = TestService::start_with(|settings| settings.rate_limits.set(RateClass::Search, 100));
    let owner = signed_in(&service, "anna@race.example", Role::Owner);
    let create = |limit: u32| {
        let limits = json!({ "search": limit });
        let scopes = ["search:read"];
        owner.call("keys/create", json!({ "mode": "test", "scopes": scopes, "limits": limits }))
    };
    for more in [0, 101] {
        let refused = create(more).defined_error(403, "FORBIDDEN");
        assert_eq!(refused["data"]["code"], "INSUFFICIENT_ROLE", "{more}");
    }
    create(100).ok();
}
