//! A library that puts a process's clock wrong.

use std::path::{Path, PathBuf};

use crate::environment::{read_variable, skip_or_fail};

/// Where Debian's package puts it, a folder an architecture.
const DEBIAN_LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// libfaketime for programs with threads, to be preloaded (`LD_PRELOAD`) and told by `FAKETIME`; `None`, said loudly,
/// where it is not there.
///
/// # Panics
/// Without it, when nothing may be skipped (`REQUIRE_SHARED=1`).
pub fn find_faketime() -> Option<PathBuf> {
    let library = read_variable("PHOTOFINISH_TEST_FAKETIME").map(PathBuf::from).or_else(find_installed);
    if let Some(library) = library.filter(|library| library.is_file()) {
        return Some(library);
    }
    skip_or_fail("a wrong clock", "libfaketime is not there (PHOTOFINISH_TEST_FAKETIME): install `faketime`");
    None
}

fn find_installed() -> Option<PathBuf> {
    let folders = std::fs::read_dir(Path::new(DEBIAN_LIBRARIES)).ok()?.flatten();
    folders.map(|folder| folder.path().join(LIBRARY)).find(|library| library.is_file())
}
