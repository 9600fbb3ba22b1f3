//! Each class of attacks, short, against the service with fake models; `cargo xtask attack` runs them long.

use std::sync::Arc;

use photofinish_attack::classes::{all_classes, find_class};
use photofinish_attack::run::{Plan, run_quick};
use photofinish_attack::site::Material;
use photofinish_tests::harness::ServiceOptions;

/// Any seed: the attacks are the same for the same one.
const SEED: u64 = 9;

#[track_caller]
fn check_class(name: &str) {
    let plan = Plan {
        options: ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_LOG", "info"),
        material: Arc::new(Material::paint()),
        seed: SEED,
    };
    let outcome = run_quick(find_class(name).expect("a class"), &plan);
    eprintln!("{name}: {} tried, statuses {:?}", outcome.counts.tried, outcome.counts.statuses);
    assert!(outcome.counts.tried > 0);
    assert!(
        outcome.is_clean(),
        "{} panics\nwrong: {:#?}\nunexpected 5xx: {:#?}\nenvelope breaks: {:#?}",
        outcome.panics,
        outcome.counts.wrong,
        outcome.counts.unexpected_errors,
        outcome.counts.envelope_breaks
    );
}

#[test]
fn no_key_of_the_matrix_sees_or_changes_what_it_may_not() {
    check_class("matrix");
}

#[test]
fn no_changed_url_is_accepted() {
    check_class("urls");
}

#[test]
fn malformed_requests_are_answered_as_the_contract_says() {
    check_class("malformed");
}

#[test]
fn cursors_lead_only_to_what_the_caller_may_see() {
    check_class("cursors");
}

#[test]
fn event_streams_end_with_their_key_and_their_album() {
    check_class("streams");
}

#[test]
fn slow_silent_and_greedy_clients_are_refused_and_others_served() {
    check_class("clients");
}

#[test]
fn races_leave_every_photo_where_its_last_answer_says() {
    check_class("races");
}

#[test]
fn erasures_leave_true_receipts_whatever_happens_beside_them() {
    check_class("erasures");
}

#[test]
fn pages_give_nothing_to_those_who_guess() {
    check_class("pages");
}

#[test]
fn bombs_fail_alone() {
    check_class("bombs");
}

#[test]
fn large_albums_are_watched_and_loaded_while_clients_leave() {
    check_class("large");
}

#[test]
fn stops_while_photos_are_read_count_no_attempt() {
    check_class("stops");
}

#[test]
fn every_class_has_its_name_and_its_test() {
    let names: std::collections::BTreeSet<&str> = all_classes().map(|class| class.name).collect();
    assert_eq!(names.len(), all_classes().count(), "two classes of one name");
    let page = include_str!("quick.rs");
    for name in names {
        assert!(page.contains(&format!("check_class(\"{name}\")")), "no test of the class {name}");
    }
}
