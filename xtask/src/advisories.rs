//! Known vulnerabilities of dependencies, from the database of RustSec. It is a git repository: machines that reach only
//! package registries cannot fetch it, and the check is skipped there, visibly.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::bail;

use crate::layout::Layout;
use crate::process::{capture_output, run_visibly};
use crate::report::{print_heading, print_note, print_warning};

/// Where `deny.toml` keeps the database, below the folder of set-up.
const DATABASES: &str = "advisory-dbs";

/// The longest fetch, seconds: a network that swallows packets must not stop the checks for long.
const FETCH_SECONDS: &str = "120";

/// An earlier database is used for so long: 60 days, less than `maximum-db-staleness` of `deny.toml`, after which cargo-deny
/// would report an error that no change has caused.
const MAX_AGE: Duration = Duration::from_secs(60 * 24 * 3600);

/// What to do with the database at hand.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It is of now.
    Check,
    /// It is of an earlier run.
    CheckEarlier,
    /// There is none, and none is required.
    Skip,
    /// There is none.
    Fail,
}

/// Looks every dependency up. `is_required` makes a database that cannot be fetched an error.
pub fn check(layout: &Layout, cargo_deny: &Path, is_required: bool) -> anyhow::Result<()> {
    print_heading("Advisories");
    let mut fetch = Command::new("timeout");
    fetch.arg(FETCH_SECONDS).arg(cargo_deny).args(["fetch", "db"]).current_dir(layout.root());
    // Never asks for a password.
    let fetched = capture_output(fetch.env("GIT_TERMINAL_PROMPT", "0"));
    let reason = fetched.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let has_earlier = has_database(&layout.state_path(DATABASES));
    match decide(fetched.is_ok(), has_earlier, is_required) {
        Decision::Check => {}
        Decision::CheckEarlier => {
            print_note(&format!("the database is that of an earlier run, it cannot be fetched now: {reason}"))
        }
        Decision::Skip => {
            print_warning(&format!(
                "SKIPPED: known vulnerabilities of dependencies. The database cannot be fetched:\n{reason}\n\
                 deny.toml says how to use a copy; REQUIRE_ADVISORIES=1 makes this an error."
            ));
            return Ok(());
        }
        Decision::Fail => bail!("known vulnerabilities of dependencies cannot be looked up: {reason}"),
    }
    let mut check = Command::new(cargo_deny);
    run_visibly(check.args(["--offline", "check", "advisories"]).current_dir(layout.root()))
}

fn decide(is_fetched: bool, has_earlier: bool, is_required: bool) -> Decision {
    match (is_fetched, has_earlier, is_required) {
        (true, _, _) => Decision::Check,
        (false, _, true) => Decision::Fail,
        (false, true, false) => Decision::CheckEarlier,
        (false, false, false) => Decision::Skip,
    }
}

/// Whether a fetch of an earlier run has succeeded, not too long ago.
fn has_database(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .any(|path| path.join("crates").is_dir() && is_recent(&path.join(".git")))
}

/// Whether git has cloned or fetched into this folder within [`MAX_AGE`].
fn is_recent(git: &Path) -> bool {
    let modified = |name: &str| std::fs::metadata(git.join(name)).and_then(|metadata| metadata.modified());
    let last = ["HEAD", "FETCH_HEAD"].into_iter().filter_map(|name| modified(name).ok()).max();
    last.is_some_and(|last| last.elapsed().unwrap_or_default() < MAX_AGE)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_database_that_cannot_be_fetched_fails_only_where_it_is_required() {
        for has_earlier in [true, false] {
            assert_eq!(decide(true, has_earlier, true), Decision::Check);
            assert_eq!(decide(true, has_earlier, false), Decision::Check);
            assert_eq!(decide(false, has_earlier, true), Decision::Fail);
        }
        assert_eq!(decide(false, true, false), Decision::CheckEarlier);
        assert_eq!(decide(false, false, false), Decision::Skip);
    }

    #[test]
    fn only_a_complete_and_recent_clone_is_a_database() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_database(&folder.path().join("missing")));
        std::fs::write(folder.path().join("db.lock"), "").unwrap();
        let clone = folder.path().join("advisory-db-1");
        std::fs::create_dir_all(clone.join(".git")).unwrap();
        std::fs::write(clone.join(".git/HEAD"), "ref: refs/heads/main").unwrap();
        assert!(!has_database(folder.path()), "a clone without files");
        std::fs::create_dir(clone.join("crates")).unwrap();
        assert!(has_database(folder.path()));
        let head = std::fs::File::options().write(true).open(clone.join(".git/HEAD")).unwrap();
        head.set_modified(SystemTime::now() - MAX_AGE).unwrap();
        assert!(!has_database(folder.path()), "an old clone");
        std::fs::write(clone.join(".git/FETCH_HEAD"), "").unwrap();
        assert!(has_database(folder.path()), "fetched since then");
    }
}
