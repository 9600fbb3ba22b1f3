//! Accounts of the console, and their sessions.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::site::{PATIENCE, Site};
use crate::wire::{self, Answer, Endpoint, Reaction};

/// What a page of this service sends.
pub(super) const PAGE_HEADERS: [(&str, &str); 2] =
    [("content-type", "application/json"), ("sec-fetch-site", "same-origin")];
/// The second byte of the addresses from which the console is used.
const CONSOLE_CLIENTS: u8 = 7;

/// An account that is made.
pub(super) struct NewAccount<'a> {
    /// The name of its organization in this round.
    pub(super) organization: &'a str,
    /// Tells its address from others of the organization.
    pub(super) name: &'a str,
    pub(super) role: &'a str,
    pub(super) is_operator: bool,
}

/// The session of an account.
pub(super) struct Session {
    /// The header `cookie`.
    pub(super) cookie: String,
    pub(super) email: String,
    /// The id of the account.
    pub(super) account: Value,
    /// Its own id.
    pub(super) id: Value,
}

/// A client from a network that nobody has used in an earlier round: what one may ask for is counted.
pub(super) fn client(site: &Site, kind: u8) -> Endpoint {
    let round = (site.round() % 250) as u8;
    Endpoint { source: Ipv4Addr::new(127, kind, round, 1), ..site.endpoint(1) }
}

/// Calls an operation of the console with these headers, beside those that a page sends.
pub(super) fn call_console(site: &Site, path: &str, headers: &[(&str, &str)], input: &Value) -> Reaction {
    let headers: Vec<(&str, &str)> = PAGE_HEADERS.iter().chain(headers).copied().collect();
    let target = format!("/console/api{path}");
    let request = wire::request("POST", &target, &headers, input.to_string().as_bytes());
    client(site, CONSOLE_CLIENTS).send(&request, PATIENCE)
}

/// Makes an account and signs in.
pub(super) fn sign_in(site: &Site, account: &NewAccount<'_>) -> anyhow::Result<Session> {
    let organization = site.in_this_round(account.organization);
    let host = organization.to_lowercase().replace(' ', "-");
    let email = format!("{}@{host}.example", account.name);
    let mut arguments = vec!["account", "invite", "--organization", &organization];
    arguments.extend(["--email", &email, "--role", account.role, "--enter"]);
    if account.is_operator {
        arguments.push("--operator");
    }
    let invited = site.service.run(&arguments);
    let token = invited.expect_success().rsplit('/').next().context("a token")?;
    let accepted = call_console(site, "/invitation/accept", &[], &json!({ "token": token }));
    let answer = accepted.answer().with_context(|| format!("no answer to the invitation of {email}"))?;
    begin(&answer, email)
}

fn begin(answer: &Answer, email: String) -> anyhow::Result<Session> {
    anyhow::ensure!(answer.status == 200, "the invitation of {email}: {} {}", answer.status, answer.text());
    let set = answer.header("set-cookie").context("a cookie")?;
    let cookie = set.split(';').next().unwrap_or_default().to_owned();
    let body = answer.json();
    let (account, id) = (body["account"]["id"].clone(), body["session"]["id"].clone());
    Ok(Session { cookie, email, account, id })
}

impl Session {
    /// Calls an operation of the console.
    pub(super) fn call(&self, site: &Site, path: &str, input: &Value) -> Reaction {
        call_console(site, path, &[("cookie", self.cookie.as_str())], input)
    }

    /// Calls an operation of the console that must succeed.
    pub(super) fn call_ok(&self, site: &Site, path: &str, input: &Value) -> anyhow::Result<Value> {
        let reaction = self.call(site, path, input);
        let described = reaction.describe();
        let answer = reaction.answer().filter(|answer| answer.status == 200);
        Ok(answer.with_context(|| format!("{path}: {described}"))?.json())
    }
}
