//! `cargo xtask test`, `eval`, `bench`, `soak`, `cluster`, `attack` and `fuzz`. Cargo builds everything in the checkout's own target folder.

use std::panic::resume_unwind;
use std::process::Command;
use std::thread;

use clap::Args;
use clap::builder::FalseyValueParser;

use crate::advisories;
use crate::layout::Layout;
use crate::process::{capture_messages, cargo, run_visibly};
use crate::report::print_heading;
use crate::setup::{self, SetupArguments, SetupPaths};
use crate::test_programs::{self, TestProgram};

/// The variable of proptest that selects the random cases.
const SEED: &str = "PROPTEST_RNG_SEED";

/// Tests need fake models in the service, and try HEIC too; what is shipped has neither.
const TEST_FEATURES: &[&str] = &["--features", "photofinish/fakes,photofinish/heic,photofinish-attack/heic"];

/// The data folder of the measurements that the checks print.
const TUNED_DATA: &str = "tuned";
/// The folder of what test programs print.
const TEST_OUTPUT: &str = "test-output";

/// The benchmark of pages.
const BROWSER_BENCHMARK: &str = "browser";
/// The benchmarks that start servers.
const SERVER_BENCHMARKS: [&str; 6] = ["store", "credits", "erasures", "events", "rates", "judging"];

/// How to test.
#[derive(Args)]
pub struct TestArguments {
    /// Seed of the random cases of property tests
    #[arg(long, env = SEED, value_name = "NUMBER", default_value_t = 20_261_121)]
    seed: u64,
    /// Fail when the database of known vulnerabilities cannot be fetched
    #[arg(long, env = "REQUIRE_ADVISORIES", value_parser = FalseyValueParser::new())]
    require_advisories: bool,
    #[command(flatten)]
    setup: SetupArguments,
}

/// Everything that a change must pass: formatting, lints, documentation, tests, and the licences, sources, use and known
/// vulnerabilities of dependencies. Each run has the same random cases, so that a change fails for what it changes.
pub fn run_checks(layout: &Layout, arguments: &TestArguments) -> anyhow::Result<()> {
    let paths = setup::run(layout, &arguments.setup)?;
    print_heading("Formatting");
    run_visibly(&mut cargo(layout.root(), &["fmt", "--all", "--check"]))?;
    let programs = thread::scope(|scope| {
        // At once: downloads and the ends of builds leave processors idle.
        print_heading("Tools of the checks, while lints and builds run");
        let tools = scope.spawn(|| setup::install_test_tools(layout));
        let programs = check_sources(layout).and_then(|()| build_tests(layout));
        tools.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        programs
    })?;
    check_dependencies(layout)?;
    advisories::check(layout, &setup::cargo_tools(layout).join("cargo-deny"), arguments.require_advisories)?;
    print_backend_choice(layout, &paths)?;
    run_tests(layout, &paths, programs, arguments.seed)
}

/// Lints and documentation.
fn check_sources(layout: &Layout) -> anyhow::Result<()> {
    print_heading("Lints");
    for features in [TEST_FEATURES, &["--no-default-features"], &[]] {
        let mut clippy = cargo(layout.root(), &["clippy", "--workspace", "--all-targets"]);
        run_visibly(clippy.args(features).args(["--", "--deny", "warnings"]))?;
    }
    print_heading("Documentation");
    // With examples, dependencies have the features that they have for tests and lints, and are not checked again.
    let targets = ["doc", "--workspace", "--no-deps", "--lib", "--bins", "--examples"];
    let mut documentation = cargo(layout.root(), &targets);
    run_visibly(documentation.args(TEST_FEATURES).env("RUSTDOCFLAGS", "--deny warnings"))
}

/// Licences and sources of all dependencies, and that each is used.
fn check_dependencies(layout: &Layout) -> anyhow::Result<()> {
    print_heading("Dependencies");
    let programs = setup::cargo_tools(layout);
    let mut deny = Command::new(programs.join("cargo-deny"));
    run_visibly(deny.args(["check", "bans", "licenses", "sources"]).current_dir(layout.root()))?;
    let mut machete = Command::new(programs.join("cargo-machete"));
    run_visibly(machete.current_dir(layout.root()))
}

/// Builds the service and its tests. The integration tests run the binary of the root package, which `cargo test` does not
/// build for tests of other packages. Built together with the tests, so that dependencies have the same features and are
/// built once.
fn build_tests(layout: &Layout) -> anyhow::Result<Vec<TestProgram>> {
    print_heading("Building the service and its tests (the first time takes minutes)");
    let targets =
        ["build", "--workspace", "--bins", "--tests", "--message-format", "json-render-diagnostics"];
    let messages = capture_messages(cargo(layout.root(), &targets).args(TEST_FEATURES))?;
    test_programs::from_messages(layout.root(), &messages)
}

fn run_tests(
    layout: &Layout,
    paths: &SetupPaths,
    mut programs: Vec<TestProgram>,
    seed: u64,
) -> anyhow::Result<()> {
    print_heading("Tests");
    let mut examples = cargo(layout.root(), &["test", "--doc", "--workspace"]);
    examples.args(TEST_FEATURES);
    programs.push(TestProgram::new("examples in the documentation", examples));
    for program in &mut programs {
        set_test_variables(layout, paths, program.command());
        program.command().env(SEED, seed.to_string());
    }
    test_programs::run(programs, &layout.state_path(TEST_OUTPUT))
}

/// Prints what computes each network on this CPU. What is fast is a fact about a machine, so a result that another one does
/// not have is seen beside what was chosen here.
fn print_backend_choice(layout: &Layout, paths: &SetupPaths) -> anyhow::Result<()> {
    print_heading("What computes each network on this CPU");
    let mut tune = Command::new(layout.tested_binary()?);
    paths.set_variables(&mut tune);
    run_visibly(tune.args(["models", "tune"]).env("PHOTOFINISH_DATA_DIR", layout.state_path(TUNED_DATA)))
}

/// Runs the bench crate in a release build, with what set-up fetched.
pub fn run_bench(layout: &Layout, command: &[&str], arguments: &[String]) -> anyhow::Result<()> {
    let paths = setup::run_from_environment(layout)?;
    let benchmark = arguments.first().map(String::as_str);
    if benchmark.is_some_and(|name| SERVER_BENCHMARKS.contains(&name)) {
        setup::install_cluster_servers(layout)?;
    }
    if benchmark == Some(BROWSER_BENCHMARK) {
        setup::install_browser(layout)?;
    }
    print_heading("Building the benchmarks (release; the first time takes minutes)");
    let mut bench = cargo(layout.root(), &["run", "--release", "--package", "photofinish-bench", "--"]);
    paths.set_variables(&mut bench);
    set_server_variables(layout, &mut bench);
    run_visibly(bench.args(command).args(arguments))
}

/// Runs the soak crate in a release build, on the service of this checkout, with the servers that set-up fetched.
pub fn run_soak(layout: &Layout, command: &[&str], arguments: &[String]) -> anyhow::Result<()> {
    let paths = setup::run_from_environment(layout)?;
    setup::install_cluster_servers(layout)?;
    print_heading("Building the service and the soak test (release; the first time takes minutes)");
    // With the features of the whole workspace, as for the tests, so that dependencies are built once.
    let build = ["build", "--release", "--workspace", "--bin", "photofinish", "--bin", "soak"];
    run_visibly(cargo(layout.root(), &build).args(TEST_FEATURES))?;
    let mut soak = Command::new(layout.service_binary()?.with_file_name("soak"));
    paths.set_variables(&mut soak);
    set_server_variables(layout, &mut soak);
    run_visibly(soak.args(command).args(arguments))
}

/// Runs the attacks in a release build, on the service of this checkout, with photos drawn of the portraits that set-up
/// fetched.
pub fn run_attack(layout: &Layout, arguments: &[String]) -> anyhow::Result<()> {
    let paths = setup::run_from_environment(layout)?;
    setup::install_sample_event(layout)?;
    print_heading("Building the service and the attacks (release; the first time takes minutes)");
    let build = ["build", "--release", "--workspace", "--bin", "photofinish", "--bin", "attack"];
    run_visibly(cargo(layout.root(), &build).args(TEST_FEATURES))?;
    let mut attack = Command::new(layout.service_binary()?.with_file_name("attack"));
    paths.set_variables(&mut attack);
    attack.env("PHOTOFINISH_TEST_PORTRAITS", setup::portraits_folder(layout));
    run_visibly(attack.args(arguments))
}

/// Runs the fuzzer in a release build. It needs no service and no networks.
pub fn run_fuzzer(layout: &Layout, arguments: &[String]) -> anyhow::Result<()> {
    print_heading("Building the fuzzer (release; the first time takes minutes)");
    let build = ["build", "--release", "--workspace", "--bin", "attack"];
    run_visibly(cargo(layout.root(), &build).args(TEST_FEATURES))?;
    let mut fuzzer = Command::new(layout.service_binary()?.with_file_name("attack"));
    run_visibly(fuzzer.arg("fuzz").args(arguments))
}

/// Builds the service as it is shipped.
pub fn build_service(layout: &Layout) -> anyhow::Result<()> {
    print_heading("Building the service (release; the first time takes minutes)");
    run_visibly(&mut cargo(layout.root(), &["build", "--release", "--package", "photofinish"]))
}

/// Names to tests what set-up fetched for them.
fn set_test_variables(layout: &Layout, paths: &SetupPaths, tests: &mut Command) {
    paths.set_variables(tests);
    tests
        .env("PHOTOFINISH_TEST_REGISTRY_MODELS", layout.state_path(setup::REGISTRY_FOLDER))
        .env("PHOTOFINISH_TEST_PORTRAITS", setup::portraits_folder(layout))
        .env("PHOTOFINISH_TEST_NODE_MODULES", setup::node_modules(layout))
        .env("PHOTOFINISH_TEST_SCHEMATHESIS", setup::schemathesis(layout))
        .env("PHOTOFINISH_TEST_HELM", setup::helm(layout))
        .env("PHOTOFINISH_TEST_CHART_SCHEMAS", setup::chart_schemas(layout));
    setup::set_gpu_variables(layout, tests);
    set_server_variables(layout, tests);
}

/// Names the servers of the cluster profile.
fn set_server_variables(layout: &Layout, command: &mut Command) {
    command
        .env("PHOTOFINISH_TEST_NATS_SERVER", setup::nats_server(layout))
        .env("PHOTOFINISH_TEST_S3_SERVER", setup::s3_server(layout));
    if let Some(programs) = setup::postgres_bin_folder() {
        command.env("PHOTOFINISH_TEST_POSTGRES_BIN", programs);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::SERVER_BENCHMARKS;

    #[test]
    fn servers_are_installed_for_every_benchmark_that_starts_them() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/src");
        let mut starting = Vec::new();
        for entry in sources.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let file = if path.is_dir() { path.join("mod.rs") } else { path.clone() };
            if std::fs::read_to_string(file).unwrap_or_default().contains("Backend::start_") {
                starting.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
            }
        }
        assert!(starting.len() >= 4, "{starting:?}");
        for name in starting {
            assert!(SERVER_BENCHMARKS.contains(&name.as_str()), "{name}");
        }
    }
}
