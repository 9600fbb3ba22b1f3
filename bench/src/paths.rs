//! Finds the inputs of a measurement: the checkout, the shared photos beside it, the release binary, the runtime and the
//! models.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// Locations of the inputs; every default can be overridden.
#[derive(Clone, Debug, clap::Args)]
pub struct InputPaths {
    /// The service's binary; by default the release build of this checkout, which is built first.
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// The ONNX Runtime library; by default the one that set-up put into `.photofinish/runtime`.
    #[arg(long, value_name = "FILE", env = "PHOTOFINISH_ONNXRUNTIME")]
    pub runtime: Option<PathBuf>,
    /// The folder of model files; `.photofinish/models` by default.
    #[arg(long, value_name = "DIR", env = "PHOTOFINISH_MODELS_DIR")]
    pub models_dir: Option<PathBuf>,
    /// The folder with the labelled photos and the peer; `shared` beside the checkout by default.
    #[arg(long, value_name = "DIR")]
    pub shared: Option<PathBuf>,
}

/// Root folder of the checkout.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("a workspace member is in a folder of the workspace").to_owned()
}

/// The results page, which `--write` rewrites.
pub fn results_page() -> PathBuf {
    root().join("bench").join("RESULTS.md")
}

/// The folder of everything that set-up installs.
pub fn state_dir() -> PathBuf {
    root().join(".photofinish")
}

impl InputPaths {
    /// Returns the service's binary; builds the release binary with these cargo features unless another is configured.
    ///
    /// # Errors
    /// When it does not exist or cannot be built.
    pub fn find_or_build_binary(&self, features: &[&str]) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.binary {
            return require_path(path.clone(), "name the binary with --binary");
        }
        // Always build, so that the measured binary is that of the checkout.
        let mut cargo = Command::new("cargo");
        cargo
            .args([
                "build",
                "--quiet",
                "--release",
                "--package",
                "photofinish",
                "--features",
                &features.join(","),
            ])
            .current_dir(root());
        // Variables that the outer `cargo run` sets for this package would make build scripts run again.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|prefix| name.to_string_lossy().starts_with(prefix))
            {
                cargo.env_remove(name);
            }
        }
        let status = cargo.status().context("starting cargo")?;
        anyhow::ensure!(status.success(), "the release build of the service failed");
        // The target folder is configurable; this program runs from it.
        let this = std::env::current_exe().context("a running program has a path")?;
        let target = this.ancestors().nth(2).context("this program is not in a target folder")?;
        require_path(target.join("release").join("photofinish"), "cargo did not build it")
    }

    /// Returns the configured runtime library, or the one that set-up installed.
    ///
    /// # Errors
    /// When there is none.
    pub fn find_runtime(&self) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.runtime {
            return require_path(path.clone(), "name the library with --runtime");
        }
        let folder = state_dir().join("runtime");
        photofinish_launcher::find_runtime_library(&folder).with_context(|| {
            format!("no libonnxruntime.so in {}; `cargo xtask setup` gets it", folder.display())
        })
    }

    /// Returns the folder of model files.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn find_models_dir(&self) -> anyhow::Result<PathBuf> {
        let path = self.models_dir.clone().unwrap_or_else(|| state_dir().join("models"));
        require_path(path, "`cargo xtask setup` fills it")
    }

    /// Returns a file or folder of the shared data.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn find_shared(&self, path: &str) -> anyhow::Result<PathBuf> {
        let shared = self.shared.clone().unwrap_or_else(|| root().join("../shared"));
        require_path(
            shared.join(path),
            "the labelled photos are not part of the repository; name their folder with --shared",
        )
    }
}

/// Absolute, as services run in folders of their own.
fn require_path(path: PathBuf, remedy: &str) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(path.exists(), "{} does not exist; {remedy}", path.display());
    Ok(std::path::absolute(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_found_from_another_folder_too() {
        let found = require_path(PathBuf::from("."), "").unwrap();
        assert!(found.is_absolute() && found.exists(), "{}", found.display());
        assert!(
            require_path(PathBuf::from("missing"), "make it").unwrap_err().to_string().contains("make it")
        );
    }
}
