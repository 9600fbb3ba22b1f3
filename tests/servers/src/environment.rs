//! Environment variables of the tests: what they may use, and whether they may be skipped. `tests/README.md` lists them.

use std::path::{Path, PathBuf};

/// Returns a variable; `None` if it is unset or empty.
#[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
pub fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns whether tests must not be skipped (`REQUIRE_SHARED=1`).
pub fn is_skipping_forbidden() -> bool {
    read_variable("REQUIRE_SHARED").is_some_and(|value| value != "0")
}

/// Prints that a test is skipped, and why.
///
/// # Panics
/// If tests must not be skipped.
#[track_caller]
pub fn skip_or_fail(what: &str, reason: &str) {
    assert!(!is_skipping_forbidden(), "{what}: {reason} (REQUIRE_SHARED=1 forbids skipping)");
    eprintln!("SKIPPED: {what}: {reason}");
}

/// Returns the folder of the workspace's `Cargo.toml`.
pub fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is in the workspace")
}

/// Returns the path in a variable, or else `path` in the repository's `.photofinish` folder.
pub fn variable_or_installed_path(name: &str, path: &str) -> PathBuf {
    read_variable(name).map_or_else(|| repository_root().join(".photofinish").join(path), PathBuf::from)
}

/// Returns a program from a variable or from set-up; returns `None`, and prints why, if it is not installed.
#[track_caller]
pub(crate) fn find_program(what: &str, name: &str, path: &str) -> Option<PathBuf> {
    let program = variable_or_installed_path(name, path);
    if program.is_file() {
        return Some(program);
    }
    let reason = format!("it is not at {} ({name}): run `cargo xtask setup --all`", program.display());
    skip_or_fail(what, &reason);
    None
}
