//! Where things are: the checkout, the shared photos beside it, the release binary, the runtime and the models.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// Where a command finds what it needs. Every default can be overruled.
#[derive(Clone, Debug, clap::Args)]
pub struct InputPaths {
    /// The service's binary; the release build of this checkout by default, brought up to date first.
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// The ONNX Runtime library; what set-up put into `.photofinish/runtime` by default.
    #[arg(long, value_name = "FILE", env = "PHOTOFINISH_ONNXRUNTIME")]
    pub runtime: Option<PathBuf>,
    /// The folder of model files; `.photofinish/models` by default.
    #[arg(long, value_name = "DIR", env = "PHOTOFINISH_MODELS_DIR")]
    pub models_dir: Option<PathBuf>,
    /// The folder with the labelled photos and the peer; `shared` beside the checkout by default.
    #[arg(long, value_name = "DIR")]
    pub shared: Option<PathBuf>,
}

/// The checkout.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("a workspace member lies in the workspace").to_owned()
}

/// The page that `--write` rewrites.
pub fn results_page() -> PathBuf {
    root().join("bench").join("RESULTS.md")
}

/// What set-up keeps for itself.
pub fn state_dir() -> PathBuf {
    root().join(".photofinish")
}

impl InputPaths {
    /// The service's binary.
    ///
    /// # Errors
    /// When it is not there and cannot be built.
    pub fn find_or_build_binary(&self) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.binary {
            return require_path(path.clone(), "name the binary with --binary");
        }
        // What is measured must be what is checked out.
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--quiet", "--release", "--package", "photofinish"]).current_dir(root());
        // What the outer `cargo run` says of this package would count as a change for build scripts that look at it.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.to_string_lossy().starts_with(of)) {
                cargo.env_remove(name);
            }
        }
        let status = cargo.status().context("starting cargo")?;
        anyhow::ensure!(status.success(), "the release build of the service failed");
        // Beside this program's own build, wherever cargo was told to build.
        let this = std::env::current_exe().context("a running program has a path")?;
        let target = this.ancestors().nth(2).context("cargo builds into a folder of a folder")?;
        require_path(target.join("release").join("photofinish"), "cargo was to build it")
    }

    /// The runtime library.
    ///
    /// # Errors
    /// When none is found.
    pub fn find_runtime(&self) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.runtime {
            return require_path(path.clone(), "name the library with --runtime");
        }
        let folder = state_dir().join("runtime");
        photofinish_launcher::find_runtime_library(&folder).with_context(|| {
            format!("no libonnxruntime.so in {}; `cargo xtask setup` gets it", folder.display())
        })
    }

    /// The folder of model files.
    ///
    /// # Errors
    /// When it is not there.
    pub fn find_models_dir(&self) -> anyhow::Result<PathBuf> {
        let path = self.models_dir.clone().unwrap_or_else(|| state_dir().join("models"));
        require_path(path, "`cargo xtask setup` fills it")
    }

    /// A file or folder of the shared data.
    ///
    /// # Errors
    /// When it is not there.
    pub fn find_shared(&self, path: &str) -> anyhow::Result<PathBuf> {
        let shared = self.shared.clone().unwrap_or_else(|| root().join("../shared"));
        require_path(
            shared.join(path),
            "the labelled photos are not part of the repository; name their folder with --shared",
        )
    }
}

fn require_path(path: PathBuf, remedy: &str) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(path.exists(), "{} is not there; {remedy}", path.display());
    Ok(path)
}
