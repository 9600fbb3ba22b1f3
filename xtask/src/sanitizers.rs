//! `cargo xtask fuzz --sanitizers`: the JPEG decoder, the one part of the product that reads files with `unsafe` code, under
//! Miri, which interprets it and checks every access, and under the address sanitizer, which is fast enough for many
//! damaged files. Both need a nightly toolchain, which is why they are no part of the tests.

use std::process::Command;

use anyhow::Context as _;

use crate::layout::Layout;
use crate::process::{capture_output, cargo, run_visibly};
use crate::report::print_heading;

/// The decoder's own package.
const PACKAGE: &str = "photofinish-jpeg";

/// What the decoder's vector code asks the processor for. Miri has no processor: what is compiled in is there.
const VECTOR_FEATURES: &str = "-C target-feature=+avx2,+bmi1,+bmi2,+lzcnt,+movbe";

/// Files damaged under the address sanitizer.
const DAMAGED_FILES: &str = "100000";

/// Runs both.
pub fn run(layout: &Layout) -> anyhow::Result<()> {
    print_heading("Installing a nightly toolchain with Miri");
    let install = ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"];
    run_visibly(Command::new("rustup").args(install)).context("Miri and the sanitizer need rustup")?;
    print_heading("The JPEG decoder under Miri (some minutes)");
    run_visibly(
        nightly(layout, &["miri", "test", "--package", PACKAGE, "--test", "small"])
            .env("RUSTFLAGS", VECTOR_FEATURES),
    )?;
    print_heading("The JPEG decoder under the address sanitizer");
    let target = host_target()?;
    let build = ["run", "--release", "--package", PACKAGE, "--example", "mutate", "--target", &target, "--"];
    run_visibly(
        nightly(layout, &build)
            .arg(DAMAGED_FILES)
            .env("RUSTFLAGS", "-Zsanitizer=address -C debug-assertions -C overflow-checks"),
    )
}

/// Cargo of the nightly toolchain, with a target folder of its own: its flags differ from those of all other builds.
fn nightly(layout: &Layout, arguments: &[&str]) -> Command {
    let mut command = cargo(layout.root(), &["+nightly"]);
    command.args(arguments).env("CARGO_TARGET_DIR", layout.root().join("target/sanitizers"));
    command
}

/// The target that this toolchain builds for. A sanitizer wants it named, so that build scripts are built without it.
fn host_target() -> anyhow::Result<String> {
    let version = capture_output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its target")?.to_owned())
}
