//! Malformed requests: heads, targets, media types, JSON bodies and sizes, each changed at random. Whatever comes, the
//! answer is the contract's, or the connection ends; the service goes on.

mod bodies;
mod case;
mod heads;
mod sizes;
mod targets;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use photofinish_tests::harness::Partner;
use rand::rngs::StdRng;

use self::case::{Case, Expectation, Valid};
use super::class::{Class, no_settings};
use crate::findings::Findings;
use crate::site::{PATIENCE, Site};
use crate::wire::Reaction;

pub(super) const MALFORMED: Class = Class {
    name: "malformed",
    description: "2,000 requests with mutated heads, targets (authority-form and CONNECT too), media types, JSON bodies, \
                  lengths and chunks",
    settings: no_settings,
    stops_service: false,
    run,
};

/// How long a request that the service may take for unfinished waits before its connection is ended.
const SHORT_PATIENCE: Duration = Duration::from_millis(400);
/// Requests that are sent at once.
const THREADS: usize = 8;

/// A family of cases: how many of them, in thousandths of all, and how one is made.
type Family = (usize, fn(&Valid, &mut StdRng) -> Case);

const FAMILIES: [Family; 5] = [
    (300, heads::make_case),
    (150, targets::make_case),
    (100, sizes::make_type_case),
    (350, bodies::make_case),
    (100, sizes::make_case),
];

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let partner: Partner = site.tenant("Malformed Timing");
    let valid = Valid { key: partner.key().to_owned(), album: partner.create_album("Malformed") };
    let mut rng = site.rng("malformed");
    let count = site.extent.pick(400, 2000);
    let mut cases: Vec<Case> = targets::fixed_cases();
    for (thousandths, make) in FAMILIES {
        cases.extend((0..count * thousandths / 1000).map(|_| make(&valid, &mut rng)));
    }
    let (waiting, answered) = (Mutex::new(cases.iter()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (waiting, answered) = (&waiting, &answered);
            scope.spawn(move || {
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(case) = next() {
                    try_case(site, findings, case, thread as u8 + 1, answered);
                }
            });
        }
    });
    check_answered(findings, &cases, answered.into_inner());
    Ok(())
}

/// Most changes leave a whole request, or one that is refused: a service that only ends connections answers none of them.
fn check_answered(findings: &Findings, cases: &[Case], answered: usize) {
    let free = cases.iter().filter(|case| matches!(case.expectation, Expectation::NoHarm)).count();
    findings
        .check(2 * answered > free, || format!("only {answered} of {free} changed requests were answered"));
}

/// Tries a case; those that need no answer are counted in `answered` when they get one.
fn try_case(site: &Site, findings: &Findings, case: &Case, attacker: u8, answered: &AtomicUsize) {
    let statuses = match case.expectation {
        Expectation::Answer(statuses) => statuses,
        Expectation::NoHarm => return try_free_case(site, findings, case, attacker, answered),
    };
    let reaction = site.endpoint(attacker).send(&case.bytes, PATIENCE);
    findings.expect(&case.name, reaction, statuses);
}

/// Tries a case that may be answered, or whose connection may end, but which must not be left hanging.
fn try_free_case(site: &Site, findings: &Findings, case: &Case, attacker: u8, answered: &AtomicUsize) {
    let reaction = match send_unfinished(site, case, attacker) {
        Ok(reaction) => reaction,
        Err(error) => return findings.wrong(format!("{}: no connection: {error}", case.name)),
    };
    findings.record(&case.name, &reaction);
    let is_harmless = match &reaction {
        Reaction::Answered(answer) => {
            answered.fetch_add(1, Ordering::SeqCst);
            answer.status <= 500
        }
        Reaction::Closed => true,
        // This side has ended, so there is nothing left to wait for.
        Reaction::Silent => false,
    };
    findings.check(is_harmless, || format!("{}: {}", case.name, reaction.describe()));
}

/// Sends a request that may be unfinished: when nothing comes back, this side ends.
fn send_unfinished(site: &Site, case: &Case, attacker: u8) -> io::Result<Reaction> {
    let mut connection = site.endpoint(attacker).connect()?;
    // The service may end the connection before all is sent; its answer is read all the same.
    drop(connection.write(&case.bytes));
    let is_head = case.bytes.starts_with(b"HEAD ");
    let reaction = connection.read_answer(is_head, Instant::now() + SHORT_PATIENCE);
    if !matches!(reaction, Reaction::Silent) {
        return Ok(reaction);
    }
    connection.finish_writing();
    Ok(connection.read_answer(is_head, Instant::now() + PATIENCE))
}
