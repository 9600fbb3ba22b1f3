//! Some thousand damaged inputs for each target of the fuzzer, the same in every run; `cargo xtask fuzz` goes on.

use photofinish_api::fuzzing::served_operations;
use photofinish_attack::fuzz::{FuzzTarget, TARGET_NAMES};

const SEED: u64 = 9;
/// Bodies that are read, of all operations together.
const BODIES: u64 = 20_000;
/// Of each operation at least.
const BODIES_OF_EACH: usize = 100;

#[track_caller]
fn check_target(name: &str, inputs: u64) {
    let scratch = tempfile::tempdir().expect("a folder");
    let target = FuzzTarget::new(name, scratch.path()).expect("a target");
    let accepted = (0..inputs).filter(|number| target.check(&target.input(SEED, *number))).count() as u64;
    eprintln!("{name}: {accepted} of {inputs} inputs are accepted");
    // One input in six is unchanged, and damage is noticed in some of the others.
    assert!(accepted > inputs / 10 && accepted < inputs, "{accepted} of {inputs} inputs are accepted");
}

#[test]
fn no_damaged_jpeg_makes_reading_it_panic_or_exceed_its_limits() {
    check_target("jpeg", 1_500);
}

#[test]
fn no_damaged_png_makes_reading_it_panic_or_exceed_its_limits() {
    check_target("png", 1_500);
}

#[test]
fn no_damaged_webp_makes_reading_it_panic_or_exceed_its_limits() {
    check_target("webp", 1_500);
}

#[cfg(feature = "heic")]
#[test]
fn no_damaged_heic_makes_reading_it_panic_or_exceed_its_limits() {
    check_target("heic", 1_500);
}

#[test]
fn no_damaged_metadata_makes_reading_it_panic() {
    check_target("exif", 5_000);
}

#[test]
fn no_json_makes_reading_it_panic_or_refuses_it_without_an_issue() {
    check_target("json", BODIES);
}

#[test]
fn bodies_of_every_operation_are_read() {
    let scratch = tempfile::tempdir().expect("a folder");
    let target = FuzzTarget::new("json", scratch.path()).expect("a target");
    let mut bodies = vec![0; served_operations().len()];
    for number in 0..BODIES {
        // The number of the operation is the first byte, as `check_body` reads it.
        let Some(operation) = target.input(SEED, number).first().copied() else { continue };
        let operation = usize::from(operation) % bodies.len();
        bodies[operation] += 1;
    }
    for (operation, bodies) in served_operations().iter().zip(bodies) {
        assert!(bodies >= BODIES_OF_EACH, "{bodies} bodies of {}", operation.path);
    }
}

#[test]
fn no_text_is_a_cursor_that_the_service_does_not_write() {
    check_target("cursor", 20_000);
}

#[test]
fn no_query_but_the_signed_one_is_accepted() {
    check_target("signature", 10_000);
}

#[test]
fn every_target_has_its_test() {
    let page = include_str!("fuzz.rs");
    for name in TARGET_NAMES {
        assert!(page.contains(&format!("check_target(\"{name}\"")), "no test of the target {name}");
    }
}
