//! Programs and files that come from the system's package manager. Looked for by use, not by package name: a compiler
//! from elsewhere is as good.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{has, patient, quiet};
use crate::report::{Outcome, Unavailable, note};

/// A font with bold digits, from which sample bibs are drawn.
pub const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf";

/// One thing that must be there.
pub struct Need {
    /// For the reader.
    what: &'static str,
    /// Whether it is there.
    is_there: fn() -> bool,
    /// Debian packages that bring it.
    packages: &'static [&'static str],
}

/// What building and running the service takes.
pub const SERVICE: &[Need] = &[
    Need {
        what: "a C and C++ compiler",
        is_there: || has("cc") && has("c++"),
        packages: &["build-essential"],
    },
    Need { what: "make", is_there: || has("make"), packages: &["make"] },
    Need { what: "cmake", is_there: || has("cmake"), packages: &["cmake"] },
    Need { what: "the assembler nasm", is_there: has_assembler, packages: &["nasm"] },
    Need { what: "Python 3.9 with venv", is_there: has_python, packages: &["python3", "python3-venv"] },
    Need { what: "curl", is_there: || has("curl"), packages: &["curl", "ca-certificates"] },
    Need { what: "the font DejaVu Sans Bold", is_there: has_font, packages: &["fonts-dejavu-core"] },
];

/// What fetching from npm takes.
pub const NPM: &[Need] = &[Need { what: "npm", is_there: || has("npm"), packages: &["npm"] }];

/// What the tests take beyond that.
pub const TESTS: &[Need] = &[
    Need { what: "Node.js with npm", is_there: || has("node") && has("npm"), packages: &["nodejs", "npm"] },
    Need { what: "strace", is_there: || has("strace"), packages: &["strace"] },
];

/// What the cluster profile takes on one machine, under faults.
pub const CLUSTER: &[Need] = &[
    Need {
        what: "the Postgres server",
        is_there: || postgres_programs().is_some(),
        packages: &["postgresql"],
    },
    Need { what: "libfaketime", is_there: || has("faketime"), packages: &["faketime"] },
];

/// Where Debian's packages put the programs of a Postgres server, a folder a version.
const POSTGRES: &str = "/usr/lib/postgresql";

/// The folder of the newest Postgres server's programs. They are not on the search path: a machine may have several.
pub fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(POSTGRES).ok()?.flatten();
    let version = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
    let programs =
        |folder: &PathBuf| folder.join("bin/initdb").is_file() && folder.join("bin/postgres").is_file();
    let newest = versions.map(|entry| entry.path()).filter(programs).max_by_key(version)?;
    Some(newest.join("bin"))
}

/// Where the system's package puts the message server of the cluster profile.
pub const NATS_SERVER: &str = "/usr/sbin/nats-server";

/// What tests of the cluster profile take where nothing newer can be built.
pub const MESSAGES: &[Need] = &[Need {
    what: "nats-server",
    is_there: || Path::new(NATS_SERVER).is_file(),
    packages: &["nats-server"],
}];

/// Installs what is missing, and only that.
pub fn install(needs: &[Need]) -> anyhow::Result<Outcome> {
    let missing = missing(needs);
    if missing.is_empty() {
        return Ok(Outcome::Present);
    }
    let names: Vec<&str> = missing.iter().map(|need| need.what).collect();
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages.iter().copied()).collect();
    note(&format!("missing: {}", names.join(", ")));
    let unavailable = |why: String| Unavailable {
        what: names.join(", "),
        why,
        remedy: format!(
            "install it by hand and run this again; on Debian: apt-get install {}",
            packages.join(" ")
        ),
    };
    let Some(prefix) = package_manager() else {
        return Err(unavailable("no apt-get here that this user may run".into()).into());
    };
    note(&format!("installing {}", packages.join(" ")));
    let updated = apt(&prefix, &["update"]);
    let installed = [&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat();
    if let Err(error) = updated.and_then(|_| apt(&prefix, &installed)) {
        return Err(unavailable(format!("{error:#}")).into());
    }
    let still: Vec<&str> = self::missing(needs).iter().map(|need| need.what).collect();
    if !still.is_empty() {
        return Err(unavailable(format!("installed, but still not found: {}", still.join(", "))).into());
    }
    Ok(Outcome::Done(format!("installed {}", packages.join(" "))))
}

fn missing(needs: &[Need]) -> Vec<&Need> {
    needs.iter().filter(|need| !(need.is_there)()).collect()
}

/// The words before `apt-get`'s arguments, or nothing where it cannot be used.
fn package_manager() -> Option<Vec<&'static str>> {
    if !has("apt-get") {
        return None;
    }
    let is_root = quiet(Command::new("id").arg("-u")).is_ok_and(|id| id == "0");
    match (is_root, has("sudo")) {
        (true, _) => Some(vec!["apt-get"]),
        (false, true) => Some(vec!["sudo", "apt-get"]),
        (false, false) => None,
    }
}

fn apt(prefix: &[&str], arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(prefix[0]);
    patient(
        command.args(&prefix[1..]).arg("--quiet").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

/// Only the JPEG decoder's x86 code is written in it.
fn has_assembler() -> bool {
    !cfg!(target_arch = "x86_64") || has("nasm")
}

fn has_python() -> bool {
    let check = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))";
    quiet(Command::new("python3").args(["-c", check])).is_ok()
}

fn has_font() -> bool {
    Path::new(FONT).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_installed_again() {
        let needs = [Need { what: "a shell", is_there: || true, packages: &["no-such-package"] }];
        assert!(matches!(install(&needs).unwrap(), Outcome::Present));
    }

    #[test]
    fn only_the_missing_is_counted() {
        let needs = [
            Need { what: "a shell", is_there: || true, packages: &["a"] },
            Need { what: "a unicorn", is_there: || false, packages: &["b"] },
        ];
        let found: Vec<&str> = missing(&needs).iter().map(|need| need.what).collect();
        assert_eq!(found, ["a unicorn"]);
    }
}
