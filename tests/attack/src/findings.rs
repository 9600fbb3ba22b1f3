//! What an attack found: how much was tried, and what was wrong. Threads share one [`Findings`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use photofinish_api::errors::table::ErrorKind;
use serde_json::Value;

use crate::wire::{Answer, Reaction};

/// Descriptions that are kept of each kind; all are counted.
const KEPT_DESCRIPTIONS: usize = 20;
/// The status with which the service refuses work that it has no room for.
const BUSY: u16 = 503;

/// Events of one kind: their number, and the first of them in words.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many.
    pub count: usize,
    /// The first of them.
    pub first: Vec<String>,
}

impl Tally {
    fn add(&mut self, text: String) {
        self.count += 1;
        if self.first.len() < KEPT_DESCRIPTIONS {
            self.first.push(text);
        }
    }
}

/// The numbers of one class.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Hostile requests, files and connections.
    pub tried: usize,
    /// What the contract does not permit.
    pub wrong: Tally,
    /// Responses with a status from 500 on.
    pub server_errors: usize,
    /// Those of them that the contract does not permit there.
    pub unexpected_errors: Tally,
    /// Error responses without the contract's body or without a request id.
    pub envelope_breaks: Tally,
    /// Responses by status.
    pub statuses: BTreeMap<u16, usize>,
    /// What is worth printing that is neither right nor wrong.
    pub notes: Vec<String>,
    /// Figures for the page of results.
    pub figures: Vec<Figure>,
    /// How many times as long the calls of another client took (99th percentile), where the class measures it itself.
    pub slowdown: Option<f64>,
}

/// A figure that only one class has.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// The result, with units.
    pub value: String,
}

/// Collects what an attack finds.
#[derive(Debug, Default)]
pub struct Findings(Mutex<Counts>);

impl Findings {
    /// Counts a hostile act that has no response of its own, such as a connection that is held.
    pub fn tried(&self, count: usize) {
        self.counts().tried += count;
    }

    /// Records what the contract does not permit.
    pub fn wrong(&self, text: impl Into<String>) {
        self.counts().wrong.add(text.into());
    }

    /// Records something wrong unless `holds`.
    pub fn check(&self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.wrong(text());
        }
    }

    /// Records a figure for the page of results.
    pub fn figure(&self, what: &str, value: impl Into<String>) {
        self.counts().figures.push(Figure { what: what.to_owned(), value: value.into() });
    }

    /// Records how many times as long the calls of another client took.
    pub fn slowdown(&self, times: f64) {
        let worst = &mut self.counts().slowdown;
        *worst = Some(worst.map_or(times, |known| known.max(times)));
    }

    /// Records what is only printed.
    pub fn note(&self, text: impl Into<String>) {
        self.counts().notes.push(text.into());
    }

    /// Counts a request and what it led to: its status, whether the contract knows its body, and any failure of the service but
    /// a 503, with which it says that it is busy.
    pub fn record(&self, case: &str, reaction: &Reaction) {
        self.record_beside(case, reaction, &[BUSY]);
    }

    /// As [`Self::record`]; `permitted` are the failures that the contract permits.
    fn record_beside(&self, case: &str, reaction: &Reaction, permitted: &[u16]) {
        let mut counts = self.counts();
        counts.tried += 1;
        let Reaction::Answered(answer) = reaction else { return };
        *counts.statuses.entry(answer.status).or_default() += 1;
        counts.server_errors += usize::from(answer.status >= 500);
        if answer.status >= 500 && !permitted.contains(&answer.status) {
            counts.unexpected_errors.add(format!("{case}: {}", reaction.describe()));
        }
        if answer.status == 500 {
            counts.wrong.add(format!("{case}: {}", reaction.describe()));
        }
        if let Err(reason) = check_envelope(answer) {
            counts.envelope_breaks.add(format!("{case}: status {}: {reason}", answer.status));
        }
    }

    /// As [`Self::record`], and the response must have one of these statuses; returns the response.
    pub fn expect(&self, case: &str, reaction: Reaction, statuses: &[u16]) -> Option<Answer> {
        self.record_beside(case, &reaction, statuses);
        let is_expected =
            matches!(&reaction, Reaction::Answered(answer) if statuses.contains(&answer.status));
        self.check(is_expected, || format!("{case}: expected {statuses:?}, got {}", reaction.describe()));
        reaction.answer().filter(|_| is_expected)
    }

    /// The numbers so far.
    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers at the end.
    pub fn into_counts(self) -> Counts {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that a response has a request id, and an error the contract's body. The pages for operators are JSON of their
/// own, but not used here with an error.
///
/// # Errors
/// What is missing or different.
pub fn check_envelope(answer: &Answer) -> Result<(), String> {
    if answer.header("x-request-id").is_none_or(str::is_empty) {
        return Err("no request id".to_owned());
    }
    let has_no_body = answer.body.is_empty() && answer.header("content-length") != Some("0");
    if answer.status < 400 || has_no_body {
        return Ok(());
    }
    if answer.header("content-type") != Some("application/json") {
        return Err(format!("content type {:?}", answer.header("content-type")));
    }
    let body = answer.json();
    let fields = body.as_object().ok_or("the body is no object")?;
    let known = ["defined", "code", "status", "message", "data"];
    if let Some(other) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("the body has the key {other}"));
    }
    let row = ErrorKind::ALL.into_iter().find(|kind| kind.status() == answer.status);
    // Too large a head, which no operation sees, is an undefined error: its status has no row in the contract's table.
    let code = match row {
        Some(row) => row.code(),
        None if answer.status == 431 && body["defined"] == false => "REQUEST_HEADER_FIELDS_TOO_LARGE",
        None => return Err("a status that the contract's table has not".to_owned()),
    };
    if body["status"] != answer.status || body["code"] != code {
        return Err(format!("status and code are {} and {}", body["status"], body["code"]));
    }
    if !body["defined"].is_boolean() || !body["message"].is_string() {
        return Err("`defined` or `message` is missing".to_owned());
    }
    if fields.get("data").is_some_and(Value::is_null) {
        return Err("`data` is null".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let headers = [("x-request-id", "1"), ("content-type", "application/json")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Answer { status, headers, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn the_contracts_envelope_is_told_from_others() {
        let good = r#"{"defined":true,"code":"NOT_FOUND","status":404,"message":"Not Found"}"#;
        assert_eq!(check_envelope(&answer(404, good)), Ok(()));
        assert_eq!(check_envelope(&answer(200, "anything")), Ok(()));
        for broken in [
            good.replace("404", "400"),
            good.replace("NOT_FOUND", "MISSING"),
            good.replace("\"defined\":true,", ""),
            good.replace('}', ",\"data\":null}"),
            good.replace('}', ",\"trace\":1}"),
            "Not Found".to_owned(),
        ] {
            assert!(check_envelope(&answer(404, &broken)).is_err(), "{broken}");
        }
        let anonymous = Answer { headers: Vec::new(), ..answer(200, "") };
        assert!(check_envelope(&anonymous).is_err());
        let bare = Answer { headers: vec![("content-length".into(), "0".into())], ..answer(400, "") };
        assert!(check_envelope(&bare).is_err());
    }

    #[test]
    fn a_failure_of_the_service_is_unexpected_unless_the_contract_permits_it_there() {
        let findings = Findings::default();
        let failed = |status| Reaction::Answered(answer(status, "{}"));
        findings.record("busy", &failed(503));
        findings.expect("busy where it may be", failed(503), &[200, 503]);
        findings.record("a gateway", &failed(502));
        findings.expect("busy where it may not be", failed(503), &[200]);
        let counts = findings.into_counts();
        assert_eq!((counts.server_errors, counts.unexpected_errors.count), (4, 2));
    }

    #[test]
    fn an_unexpected_answer_and_a_500_are_wrong() {
        let findings = Findings::default();
        let good = r#"{"defined":true,"code":"NOT_FOUND","status":404,"message":"Not Found"}"#;
        assert!(findings.expect("a", Reaction::Answered(answer(404, good)), &[404]).is_some());
        assert!(findings.expect("b", Reaction::Answered(answer(404, good)), &[200]).is_none());
        assert!(findings.expect("c", Reaction::Silent, &[200]).is_none());
        findings.record("d", &Reaction::Answered(answer(500, "{}")));
        let counts = findings.into_counts();
        assert_eq!((counts.tried, counts.wrong.count, counts.server_errors), (4, 3, 1));
        assert_eq!(counts.envelope_breaks.count, 1);
    }
}
