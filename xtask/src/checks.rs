//! `cargo xtask test`, `ci`, `eval`, `bench`, `soak` and `cluster`: everything is built by cargo in the checkout's own target folder.

use std::process::Command;

use clap::Args;

use crate::layout::Layout;
use crate::process::{cargo, has_program, run_visibly};
use crate::report::print_heading;
use crate::setup::{self, SetupArguments, SetupPaths};

/// Where proptest is told which random cases to take.
const SEED: &str = "PROPTEST_RNG_SEED";

/// How to test.
#[derive(Args)]
pub struct TestArguments {
    /// Which cases randomised tests take
    #[arg(long, env = SEED, value_name = "NUMBER", default_value_t = 20_261_121)]
    seed: u64,
    #[command(flatten)]
    setup: SetupArguments,
}

/// Formatting, lints, documentation and every test. Each run takes the same random cases, so that a change fails for what
/// it changes.
pub fn run_checks(layout: &Layout, arguments: &TestArguments) -> anyhow::Result<()> {
    let ready = setup::run(layout, &arguments.setup)?;
    setup::install_test_tools(layout)?;

    print_heading("Formatting");
    run_visibly(&mut cargo(layout.root(), &["fmt", "--all", "--check"]))?;
    print_heading("Lints");
    let lints = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    run_visibly(&mut cargo(layout.root(), &lints))?;
    let without_features =
        ["clippy", "--workspace", "--all-targets", "--no-default-features", "--", "--deny", "warnings"];
    run_visibly(&mut cargo(layout.root(), &without_features))?;
    // The integration tests run the binary of the root package, which `cargo test` alone does not build: cargo builds
    // a package's binaries only for integration tests of that same package. Built with the tests, so that the features
    // of the dependencies are the same and nothing is built twice.
    print_heading("Building the service and its tests (the first time takes minutes)");
    run_visibly(&mut cargo(layout.root(), &["build", "--workspace", "--bins", "--tests"]))?;
    print_heading("Tests");
    let mut tests = cargo(layout.root(), &["test", "--workspace", "--no-fail-fast"]);
    set_test_variables(layout, &ready, &mut tests);
    run_visibly(tests.env(SEED, arguments.seed.to_string()))
}

/// Everything a change must pass.
pub fn ci(layout: &Layout, arguments: &TestArguments) -> anyhow::Result<()> {
    run_checks(layout, arguments)?;
    print_heading("Documentation");
    let mut documentation = cargo(layout.root(), &["doc", "--workspace", "--no-deps"]);
    run_visibly(documentation.env("RUSTDOCFLAGS", "--deny warnings"))?;
    print_heading("Licences and sources of dependencies");
    if has_program("cargo-deny") {
        return run_visibly(&mut cargo(layout.root(), &["deny", "check", "bans", "licenses", "sources"]));
    }
    println!("  SKIPPED: cargo-deny is not installed (cargo install --locked cargo-deny)");
    Ok(())
}

/// Runs the bench crate, optimised, with what set-up fetched.
pub fn run_bench(layout: &Layout, command: &[&str], arguments: &[String]) -> anyhow::Result<()> {
    let ready = setup::run(layout, &SetupArguments::default())?;
    // The only measurement of the cluster profile's parts.
    let needs_servers = arguments.first().is_some_and(|first| first == "store");
    if needs_servers {
        setup::install_cluster_servers(layout)?;
    }
    print_heading("Building what measures and what is measured (release; the first time takes minutes)");
    let mut bench = cargo(layout.root(), &["run", "--release", "--package", "photofinish-bench", "--"]);
    ready.set_variables(&mut bench);
    set_server_variables(layout, &mut bench);
    run_visibly(bench.args(command).args(arguments))
}

/// Runs the soak crate's program, optimised, with the servers that set-up fetched, on the service of this checkout.
pub fn run_soak(layout: &Layout, command: &[&str], arguments: &[String]) -> anyhow::Result<()> {
    let ready = setup::run(layout, &SetupArguments::default())?;
    setup::install_cluster_servers(layout)?;
    print_heading("Building the service and what breaks it (release; the first time takes minutes)");
    // With the features of the whole workspace, as for the tests: what one package alone needs would be built beside it.
    let build = ["build", "--release", "--workspace", "--bin", "photofinish", "--bin", "soak"];
    run_visibly(&mut cargo(layout.root(), &build))?;
    let mut soak = Command::new(layout.service_binary()?.with_file_name("soak"));
    ready.set_variables(&mut soak);
    set_server_variables(layout, &mut soak);
    run_visibly(soak.args(command).args(arguments))
}

/// The service as it is measured and shown.
pub fn build_service(layout: &Layout) -> anyhow::Result<()> {
    print_heading("Building the service (release; the first time takes minutes)");
    run_visibly(&mut cargo(layout.root(), &["build", "--release", "--package", "photofinish"]))
}

/// Where tests find what set-up fetched for them.
fn set_test_variables(layout: &Layout, ready: &SetupPaths, tests: &mut Command) {
    ready.set_variables(tests);
    tests
        .env("PHOTOFINISH_TEST_REGISTRY_MODELS", layout.state_path(setup::REGISTRY_FOLDER))
        .env("PHOTOFINISH_TEST_PORTRAITS", setup::portraits_folder(layout))
        .env("PHOTOFINISH_TEST_NODE_MODULES", setup::node_modules(layout))
        .env("PHOTOFINISH_TEST_SCHEMATHESIS", setup::schemathesis(layout))
        .env("PHOTOFINISH_TEST_HELM", setup::helm(layout))
        .env("PHOTOFINISH_TEST_CHART_SCHEMAS", setup::chart_schemas(layout));
    set_server_variables(layout, tests);
}

/// Where the servers of the cluster profile are.
fn set_server_variables(layout: &Layout, command: &mut Command) {
    command
        .env("PHOTOFINISH_TEST_NATS_SERVER", setup::nats_server(layout))
        .env("PHOTOFINISH_TEST_S3_SERVER", setup::s3_server(layout));
    if let Some(programs) = setup::postgres_bin_folder() {
        command.env("PHOTOFINISH_TEST_POSTGRES_BIN", programs);
    }
}
