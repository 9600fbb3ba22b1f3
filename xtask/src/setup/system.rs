//! Programs and files of the system's package manager. Each is detected by its use, not by its package: a compiler from
//! elsewhere is as good.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{capture_output, capture_output_with_retries, has_program};
use crate::report::{StepOutcome, Unavailable, print_note};

/// A font with bold digits, from which sample bibs are drawn.
pub const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf";

/// A program or file that must be installed.
pub struct SystemDependency {
    /// What it is, for messages.
    what: &'static str,
    /// Detects it.
    is_installed: fn() -> bool,
    /// Debian packages that contain it.
    packages: &'static [&'static str],
}

/// Needed to build and run the service.
pub const SERVICE: &[SystemDependency] = &[
    SystemDependency {
        what: "a C and C++ compiler",
        is_installed: || has_program("cc") && has_program("c++"),
        packages: &["build-essential"],
    },
    SystemDependency { what: "make", is_installed: || has_program("make"), packages: &["make"] },
    SystemDependency { what: "cmake", is_installed: || has_program("cmake"), packages: &["cmake"] },
    SystemDependency { what: "the assembler nasm", is_installed: has_assembler, packages: &["nasm"] },
    SystemDependency {
        what: "Python 3.9 with venv",
        is_installed: has_python,
        packages: &["python3", "python3-venv"],
    },
    SystemDependency {
        what: "curl",
        is_installed: || has_program("curl"),
        packages: &["curl", "ca-certificates"],
    },
    SystemDependency {
        what: "the font DejaVu Sans Bold",
        is_installed: has_font,
        packages: &["fonts-dejavu-core"],
    },
];

/// Needed to fetch from npm.
pub const NPM: &[SystemDependency] =
    &[SystemDependency { what: "npm", is_installed: || has_program("npm"), packages: &["npm"] }];

/// Needed by the tests.
pub const TESTS: &[SystemDependency] = &[
    SystemDependency {
        what: "Node.js with npm",
        is_installed: || has_program("node") && has_program("npm"),
        packages: &["nodejs", "npm"],
    },
    SystemDependency {
        what: "the browser Chromium",
        is_installed: || has_program("chromium"),
        packages: &["chromium"],
    },
    SystemDependency {
        what: "heif-convert and heif-enc, to compare with",
        is_installed: || has_program("heif-convert") && has_program("heif-enc"),
        packages: &["libheif-examples"],
    },
    SystemDependency { what: "strace", is_installed: || has_program("strace"), packages: &["strace"] },
    SystemDependency {
        what: "unzip and 7z, to open downloads with",
        is_installed: || has_program("unzip") && has_program("7z"),
        packages: &["unzip", "p7zip-full"],
    },
];

/// Needed by the cluster profile on one machine.
pub const CLUSTER: &[SystemDependency] = &[
    SystemDependency {
        what: "the Postgres server",
        is_installed: || postgres_bin_folder().is_some(),
        packages: &["postgresql"],
    },
    SystemDependency {
        what: "libfaketime",
        is_installed: || has_program("faketime"),
        packages: &["faketime"],
    },
];

/// The folder of Debian's Postgres servers, one folder per version.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// The folder of the newest Postgres server's programs, which are not on the search path.
pub fn postgres_bin_folder() -> Option<PathBuf> {
    let versions = std::fs::read_dir(POSTGRES_VERSIONS).ok()?.flatten();
    let version = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
    let programs =
        |folder: &PathBuf| folder.join("bin/initdb").is_file() && folder.join("bin/postgres").is_file();
    let newest = versions.map(|entry| entry.path()).filter(programs).max_by_key(version)?;
    Some(newest.join("bin"))
}

/// The NATS server of the system's package.
pub const NATS_SERVER: &str = "/usr/sbin/nats-server";

/// Needed by the cluster profile where no newer server can be built.
pub const NATS: &[SystemDependency] = &[SystemDependency {
    what: "nats-server",
    is_installed: || Path::new(NATS_SERVER).is_file(),
    packages: &["nats-server"],
}];

/// Installs the missing ones only.
pub fn install(needs: &[SystemDependency]) -> anyhow::Result<StepOutcome> {
    let missing = find_missing(needs);
    if missing.is_empty() {
        return Ok(StepOutcome::Present);
    }
    let names: Vec<&str> = missing.iter().map(|need| need.what).collect();
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages.iter().copied()).collect();
    print_note(&format!("missing: {}", names.join(", ")));
    let unavailable = |why: String| Unavailable {
        what: names.join(", "),
        why,
        remedy: format!(
            "install it by hand and run this again; on Debian: apt-get install {}",
            packages.join(" ")
        ),
    };
    let Some(prefix) = package_manager() else {
        return Err(unavailable("there is no apt-get that this user may run".into()).into());
    };
    print_note(&format!("installing {}", packages.join(" ")));
    let updated = run_apt(&prefix, &["update"]);
    let installed = [&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat();
    if let Err(error) = updated.and_then(|_| run_apt(&prefix, &installed)) {
        return Err(unavailable(format!("{error:#}")).into());
    }
    let still: Vec<&str> = self::find_missing(needs).iter().map(|need| need.what).collect();
    if !still.is_empty() {
        return Err(unavailable(format!("installed, but still not found: {}", still.join(", "))).into());
    }
    Ok(StepOutcome::Done(format!("installed {}", packages.join(" "))))
}

fn find_missing(needs: &[SystemDependency]) -> Vec<&SystemDependency> {
    needs.iter().filter(|need| !(need.is_installed)()).collect()
}

/// The words of a command before the arguments of `apt-get`; `None` where it cannot be used.
fn package_manager() -> Option<Vec<&'static str>> {
    if !has_program("apt-get") {
        return None;
    }
    let is_root = capture_output(Command::new("id").arg("-u")).is_ok_and(|id| id == "0");
    match (is_root, has_program("sudo")) {
        (true, _) => Some(vec!["apt-get"]),
        (false, true) => Some(vec!["sudo", "apt-get"]),
        (false, false) => None,
    }
}

fn run_apt(prefix: &[&str], arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(prefix[0]);
    capture_output_with_retries(
        command.args(&prefix[1..]).arg("--quiet").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

/// Only the JPEG decoder's x86 code needs it.
fn has_assembler() -> bool {
    !cfg!(target_arch = "x86_64") || has_program("nasm")
}

fn has_python() -> bool {
    let check = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))";
    capture_output(Command::new("python3").args(["-c", check])).is_ok()
}

fn has_font() -> bool {
    Path::new(FONT).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_dependency_is_not_installed_again() {
        let needs =
            [SystemDependency { what: "a shell", is_installed: || true, packages: &["no-such-package"] }];
        assert!(matches!(install(&needs).unwrap(), StepOutcome::Present));
    }

    #[test]
    fn only_missing_dependencies_are_listed() {
        let needs = [
            SystemDependency { what: "a shell", is_installed: || true, packages: &["a"] },
            SystemDependency { what: "a unicorn", is_installed: || false, packages: &["b"] },
        ];
        let found: Vec<&str> = find_missing(&needs).iter().map(|need| need.what).collect();
        assert_eq!(found, ["a unicorn"]);
    }
}
