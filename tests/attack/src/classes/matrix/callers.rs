//! Who calls the operations of the matrix: every kind of key and of session, and what each may.

use photofinish_api::key::KeyText;
use photofinish_store::model::key::KeyMode;
use photofinish_tests::harness::ALL_SCOPES;
use serde_json::{Value, json};

use super::console::CONSOLE_OPERATIONS;
use crate::classes::operations::{Accounts, OPERATIONS, Operation, SEARCH};
use crate::classes::sessions::{NewAccount, Session, call_console, sign_in};
use crate::site::Site;
use crate::wire::Reaction;

/// What an account may do in its organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Viewer,
    Organizer,
    Owner,
}

/// What a caller may do with the owner's album.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing at all: 401.
    Refused,
    /// What these scopes permit.
    Scopes(&'static [&'static str]),
    /// What the role of its account permits.
    Account { role: Role, is_operator: bool },
    /// It is valid, but sees another tenant.
    Stranger,
}

impl Standing {
    /// Whether it may call an operation at all.
    pub(super) fn permits(self, operation: &Operation) -> bool {
        match self {
            Self::Refused => operation.accounts == Accounts::NotNeeded,
            Self::Scopes(scopes) => operation.scope.is_none_or(|scope| scopes.contains(&scope)),
            Self::Stranger => operation.accounts != Accounts::Operators,
            Self::Account { role, is_operator } => match operation.accounts {
                Accounts::All | Accounts::NotNeeded => true,
                Accounts::OfScope => {
                    operation.scope.is_none_or(|scope| scope == SEARCH || role != Role::Viewer)
                }
                Accounts::Owners => role == Role::Owner,
                Accounts::Operators => is_operator,
            },
        }
    }
}

/// How a caller shows who it is.
enum Gate {
    /// By a key, which may be empty.
    Key(String),
    /// By these headers, in the console.
    Console(Vec<(&'static str, String)>),
}

/// A caller.
pub(super) struct Caller {
    pub(super) name: String,
    pub(super) standing: Standing,
    gate: Gate,
    /// Whether there are operations that only sessions have, and it calls them.
    has_console: bool,
}

impl Caller {
    fn with_key(name: &str, key: String, standing: Standing) -> Self {
        Self { name: name.to_owned(), standing, gate: Gate::Key(key), has_console: false }
    }

    fn with_session(name: &str, session: &Session, standing: Standing) -> Self {
        Self::with_headers(name, vec![("cookie", session.cookie.clone())], standing)
    }

    fn with_headers(name: &str, headers: Vec<(&'static str, String)>, standing: Standing) -> Self {
        Self { name: name.to_owned(), standing, gate: Gate::Console(headers), has_console: true }
    }

    /// Whether it has a session, or pretends to.
    pub(super) fn is_in_console(&self) -> bool {
        matches!(self.gate, Gate::Console(_))
    }

    /// The operations that are tried with it.
    pub(super) fn operations(&self) -> impl Iterator<Item = &'static Operation> {
        let more: &'static [Operation] = if self.has_console { &CONSOLE_OPERATIONS } else { &[] };
        OPERATIONS.iter().chain(more)
    }

    /// Calls an operation.
    pub(super) fn call(&self, site: &Site, path: &str, input: &Value) -> Reaction {
        match &self.gate {
            Gate::Key(key) => site.call(path, key, input),
            Gate::Console(headers) => {
                let headers: Vec<(&str, &str)> =
                    headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                call_console(site, path, &headers, input)
            }
        }
    }
}

/// All callers. `organization` is the owner's, whose session `owner` is.
pub(super) fn make_callers(site: &Site, organization: &str, owner: &Session) -> anyhow::Result<Vec<Caller>> {
    let mut callers = make_keys(site, organization);
    callers.extend(make_strange_sessions(site, organization, owner)?);
    callers.extend(make_accounts(site, organization, owner)?);
    Ok(callers)
}

fn make_keys(site: &Site, organization: &str) -> Vec<Caller> {
    let caller = Caller::with_key;
    let revoked = site.create_labelled_key(organization, "matrix-revoked", &[]);
    site.revoke_key("matrix-revoked");
    let expired = site.create_labelled_key(organization, "matrix-expired", &["--expires-in-days", "0"]);
    let valid = site.create_key(organization, &ALL_SCOPES, "test");
    let mut malformed = valid.clone();
    malformed.pop();
    let mut callers = vec![
        caller("no key", String::new(), Standing::Refused),
        caller("a malformed key", malformed, Standing::Refused),
        caller("an unknown key", KeyText::generate(KeyMode::Test).reveal().to_owned(), Standing::Refused),
        caller("a revoked key", revoked, Standing::Refused),
        caller("an expired key", expired, Standing::Refused),
        caller("all scopes", valid.clone(), Standing::Scopes(&ALL_SCOPES)),
        caller("another organization", site.tenant("Stranger Timing").key().to_owned(), Standing::Stranger),
        caller("another mode", site.create_key(organization, &ALL_SCOPES, "live"), Standing::Stranger),
    ];
    for scope in &ALL_SCOPES {
        let key = site.create_key(organization, &[scope], "test");
        callers.push(caller(scope, key, Standing::Scopes(std::slice::from_ref(scope))));
    }
    let header = ("x-api-key", valid);
    callers.push(Caller::with_headers("a key in place of a session", vec![header], Standing::Refused));
    callers
}

/// Sessions with which nobody is signed in.
fn make_strange_sessions(site: &Site, organization: &str, owner: &Session) -> anyhow::Result<Vec<Caller>> {
    let account = |name| NewAccount { organization, name, role: "viewer", is_operator: false };
    let ended = sign_in(site, &account("ended"))?;
    ended.call_ok(site, "/session/delete", &json!({}))?;
    let disabled = sign_in(site, &account("disabled"))?;
    site.service.run(&["account", "disable", "--email", &disabled.email]).expect_success();
    let (name, value) = owner.cookie.split_once('=').unwrap_or((owner.cookie.as_str(), ""));
    let unknown = format!("{name}={}", "A".repeat(value.len()));
    Ok(vec![
        Caller::with_headers("no session", Vec::new(), Standing::Refused),
        Caller::with_headers("an unknown session", vec![("cookie", unknown)], Standing::Refused),
        Caller::with_session("a session that has ended", &ended, Standing::Refused),
        Caller::with_session("the session of a disabled account", &disabled, Standing::Refused),
    ])
}

fn make_accounts(site: &Site, organization: &str, owner: &Session) -> anyhow::Result<Vec<Caller>> {
    let account = |name, role| NewAccount { organization, name, role, is_operator: false };
    let viewer = sign_in(site, &account("viewer", "viewer"))?;
    let organizer = sign_in(site, &account("organizer", "organizer"))?;
    let operator = NewAccount { is_operator: true, ..account("operator", "viewer") };
    let operator = sign_in(site, &operator)?;
    let stranger = NewAccount { organization: "Stranger Timing", ..account("stranger", "owner") };
    let stranger = sign_in(site, &stranger)?;
    let standing = |role, is_operator| Standing::Account { role, is_operator };
    let other_mode =
        vec![("cookie", owner.cookie.clone()), ("x-photofinish-mode", KeyMode::Live.as_str().to_owned())];
    let other_mode = Caller::with_headers("an owner in the other mode", other_mode, Standing::Stranger);
    Ok(vec![
        Caller::with_session("a viewer", &viewer, standing(Role::Viewer, false)),
        Caller::with_session("an organizer", &organizer, standing(Role::Organizer, false)),
        Caller::with_session("an owner", owner, standing(Role::Owner, false)),
        Caller::with_session("an operator", &operator, standing(Role::Viewer, true)),
        Caller::with_session("another organization's owner", &stranger, Standing::Stranger),
        // Accounts, sessions and keys are of no mode.
        Caller { has_console: false, ..other_mode },
    ])
}
