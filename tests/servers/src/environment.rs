//! What the environment tells tests: what they may use, and whether they may be skipped. `tests/README.md` lists the
//! variables.

use std::path::{Path, PathBuf};

/// A variable of the tests, `None` when unset or empty.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what they may use")]
pub fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether nothing may be skipped (`REQUIRE_SHARED=1`).
pub fn is_skipping_forbidden() -> bool {
    read_variable("REQUIRE_SHARED").is_some_and(|value| value != "0")
}

/// Says loudly that a test cannot run here.
///
/// # Panics
/// When nothing may be skipped.
#[track_caller]
pub fn skip_or_fail(what: &str, why: &str) {
    assert!(!is_skipping_forbidden(), "{what}: {why} (REQUIRE_SHARED=1 forbids skipping)");
    eprintln!("SKIPPED: {what}: {why}");
}

/// The folder of the workspace's `Cargo.toml`.
pub fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in the workspace")
}

/// A path from a variable, or else a place in the repository's own `.photofinish` folder.
pub fn variable_or_installed_path(name: &str, place: &str) -> PathBuf {
    read_variable(name).map_or_else(|| repository_root().join(".photofinish").join(place), PathBuf::from)
}

/// A program from a variable or from set-up; `None`, said loudly, where it is not there.
#[track_caller]
pub(crate) fn find_program(what: &str, name: &str, place: &str) -> Option<PathBuf> {
    let program = variable_or_installed_path(name, place);
    if program.is_file() {
        return Some(program);
    }
    let why = format!("it is not at {} ({name}): run `cargo xtask setup --all`", program.display());
    skip_or_fail(what, &why);
    None
}
