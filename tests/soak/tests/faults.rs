//! Each fault against a cluster of its own, with an audit of every photo of a small event.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use photofinish_soak::cluster::{Cluster, ClusterOptions};
use photofinish_soak::event::Event;
use photofinish_soak::faults::{self, Extent, Fault};
use photofinish_soak::run::{RunOutcome, RunPlan, run};
use photofinish_soak::search_results::SearchResults;

/// Enough photos that some are in each stage when a fault strikes.
const PHOTOS: usize = 48;
/// Any seed: the exact moments differ from run to run all the same.
const SEED: u64 = 7;

fn event() -> &'static Event {
    static EVENT: OnceLock<Event> = OnceLock::new();
    EVENT.get_or_init(|| Event::paint(PHOTOS))
}

/// The search results of a run without a fault; `None` where the servers are missing.
fn undisturbed_results() -> Option<&'static SearchResults> {
    static RESULTS: OnceLock<Option<SearchResults>> = OnceLock::new();
    let found = RESULTS.get_or_init(|| {
        let cluster = Cluster::start(&ClusterOptions::default()).expect("a cluster starts")?;
        Some(run_and_audit(&cluster, None, None).search_results)
    });
    found.as_ref()
}

#[track_caller]
fn run_and_audit(
    cluster: &Cluster,
    fault: Option<&Fault>,
    undisturbed: Option<&SearchResults>,
) -> RunOutcome {
    let event_with_killer_photo;
    let event = if fault.is_some_and(|fault| fault.has_killer_photo) {
        event_with_killer_photo = event().with_killer_photo();
        &event_with_killer_photo
    } else {
        event()
    };
    let plan = RunPlan { fault, extent: Extent::Short, seed: SEED };
    let outcome = run(cluster, event, plan, undisturbed).expect("a run ends");
    assert!(outcome.audit.is_clean(), "{}", outcome.audit);
    assert_eq!(outcome.audit.confirmed, event.photos.len());
    outcome
}

#[track_caller]
fn check_loses_nothing(fault: &Fault) {
    let Some(undisturbed) = undisturbed_results() else { return };
    let Some(cluster) = Cluster::start(&(fault.cluster_options)()).expect("a cluster starts") else { return };
    let outcome = run_and_audit(&cluster, Some(fault), Some(undisturbed));
    assert!(outcome.strikes > 0);
    let next = outcome.time_to_next.expect("photos were sent after the fault");
    eprintln!(
        "{}: {} {}, next photo after {next:?}, all after {:?}",
        fault.name, outcome.strikes, fault.unit, outcome.time_to_all
    );
}

#[test]
fn an_undisturbed_run_has_everything_once() {
    let Some(results) = undisturbed_results() else { return };
    assert!(results.mistakes(event()).is_empty());
}

#[test]
fn workers_killed_at_random_moments_lose_nothing() {
    check_loses_nothing(&faults::WORKER_KILLED);
}

#[test]
fn apis_killed_at_random_moments_lose_nothing() {
    check_loses_nothing(&faults::API_KILLED);
}

#[test]
fn any_process_killed_at_random_moments_loses_nothing() {
    check_loses_nothing(&faults::ANYTHING_KILLED);
}

#[test]
fn all_processes_killed_at_once_lose_nothing() {
    check_loses_nothing(&faults::EVERYTHING_KILLED);
}

#[test]
fn a_restart_of_postgres_loses_nothing() {
    check_loses_nothing(&faults::POSTGRES_RESTARTED);
}

#[test]
fn a_postgres_that_falls_silent_loses_nothing() {
    check_loses_nothing(&faults::POSTGRES_SILENT);
}

#[test]
fn a_postgres_that_refuses_connections_loses_nothing() {
    check_loses_nothing(&faults::POSTGRES_REFUSING);
}

#[test]
fn a_restart_of_nats_loses_nothing() {
    check_loses_nothing(&faults::NATS_RESTARTED);
}

#[test]
fn a_nats_that_loses_its_disk_loses_nothing() {
    check_loses_nothing(&faults::NATS_DISK_LOST);
}

#[test]
fn an_s3_that_fails_loses_nothing() {
    check_loses_nothing(&faults::S3_FAILING);
}

#[test]
fn a_slow_s3_loses_nothing() {
    check_loses_nothing(&faults::S3_SLOW);
}

#[test]
fn an_s3_that_cuts_bodies_loses_nothing() {
    check_loses_nothing(&faults::S3_CUTTING);
}

#[test]
fn senders_of_webhooks_killed_while_they_wait_for_an_answer_lose_nothing() {
    check_loses_nothing(&faults::SENDER_KILLED);
}

#[test]
fn publishers_of_events_killed_at_random_moments_lose_nothing() {
    check_loses_nothing(&faults::PUBLISHER_KILLED);
}

#[test]
fn a_publisher_that_hangs_while_another_publishes_loses_nothing() {
    check_loses_nothing(&faults::PUBLISHER_HANGS);
}

#[test]
fn erasers_killed_at_random_moments_leave_true_receipts_and_lose_nothing() {
    check_loses_nothing(&faults::ERASER_KILLED);
}

#[test]
fn clocks_that_are_minutes_apart_lose_nothing() {
    check_loses_nothing(&faults::CLOCKS_APART);
}

#[test]
fn two_workers_with_the_same_photo_write_it_once() {
    check_loses_nothing(&faults::SAME_PHOTO);
}

#[test]
fn a_photo_that_crashes_its_worker_each_time_fails_alone() {
    check_loses_nothing(&faults::KILLING_PHOTO);
}

#[test]
fn a_rolling_update_under_load_goes_unnoticed() {
    check_loses_nothing(&faults::ROLLING_UPDATE);
}

#[test]
fn every_fault_has_its_name_and_its_test() {
    let names: BTreeSet<&str> = faults::FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(names.len(), faults::FAULTS.len(), "two faults of one name");
    // In two parts, so that this test does not find itself.
    let call = ["check_loses_nothing(&", "faults::"].concat();
    let tested: BTreeSet<String> = include_str!("faults.rs")
        .split(&call)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0.to_lowercase().replace('_', "-")))
        .collect();
    let tested: BTreeSet<&str> = tested.iter().map(String::as_str).collect();
    assert_eq!(tested, names, "the faults that have a test, and all");
}
