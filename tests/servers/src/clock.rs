//! libfaketime, which changes a process's clock.

use std::path::{Path, PathBuf};

use crate::environment::{read_variable, skip_or_fail};

/// Where Debian's package installs it, in one folder per architecture.
const DEBIAN_LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// Returns libfaketime for programs with threads, to be preloaded (`LD_PRELOAD`) and controlled by `FAKETIME`; returns
/// `None`, and prints why, if it is not installed.
///
/// # Panics
/// If it is not installed and tests must not be skipped (`REQUIRE_SHARED=1`).
pub fn find_faketime() -> Option<PathBuf> {
    let library = read_variable("PHOTOFINISH_TEST_FAKETIME").map(PathBuf::from).or_else(find_installed);
    if let Some(library) = library.filter(|library| library.is_file()) {
        return Some(library);
    }
    skip_or_fail(
        "a wrong clock",
        "libfaketime is not installed (PHOTOFINISH_TEST_FAKETIME): install `faketime`",
    );
    None
}

fn find_installed() -> Option<PathBuf> {
    let folders = std::fs::read_dir(Path::new(DEBIAN_LIBRARIES)).ok()?.flatten();
    folders.map(|folder| folder.path().join(LIBRARY)).find(|library| library.is_file())
}
