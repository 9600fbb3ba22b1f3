//! Malformed requests: heads, targets, media types, JSON bodies and sizes, each changed at random. Whatever comes, the
//! answer is the contract's, or the connection ends; the service goes on.

mod bodies;
mod case;
mod heads;
mod sizes;
mod targets;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use photofinish_tests::harness::Partner;
use rand::rngs::StdRng;

use self::case::{Case, Expectation, Valid};
use super::class::{Class, no_settings};
use crate::findings::Findings;
use crate::site::{PATIENCE, Site};
use crate::wire::{Reaction, Received};

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
    let waiting = Mutex::new(cases.iter());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let waiting = &waiting;
            scope.spawn(move || {
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(case) = next() {
                    try_case(site, findings, case, thread as u8 + 1);
                }
            });
        }
    });
    Ok(())
}

fn try_case(site: &Site, findings: &Findings, case: &Case, attacker: u8) {
    match case.expectation {
        Expectation::Answer(statuses) => {
            let reaction = site.endpoint(attacker).send(&case.bytes, PATIENCE);
            findings.expect(&case.name, reaction, statuses);
        }
        Expectation::NoHarm => {
            let reaction = send_unfinished(site, case, attacker);
            findings.record(&case.name, &reaction);
            let is_harmless = !matches!(&reaction, Reaction::Answered(answer) if answer.status > 500);
            findings.check(is_harmless, || format!("{}: {}", case.name, reaction.describe()));
        }
    }
}

/// Sends a request that may be unfinished: when nothing comes back, this side ends.
fn send_unfinished(site: &Site, case: &Case, attacker: u8) -> Reaction {
    let Ok(mut connection) = site.endpoint(attacker).connect() else { return Reaction::Closed };
    // The service may end the connection before all is sent; its answer is read all the same.
    drop(connection.write(&case.bytes));
    let is_head = case.bytes.starts_with(b"HEAD ");
    let reaction = connection.read_answer(is_head, Instant::now() + SHORT_PATIENCE);
    if !matches!(reaction, Reaction::Silent) {
        return reaction;
    }
    connection.finish_writing();
    let reaction = connection.read_answer(is_head, Instant::now() + PATIENCE);
    if matches!(reaction, Reaction::Silent)
        && connection.receive(Instant::now() + SHORT_PATIENCE) != Received::End
    {
        return Reaction::Silent;
    }
    reaction
}
