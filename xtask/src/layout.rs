//! Paths of the checkout and of its folder `.photofinish`, which contains everything that set-up fetched or built and can be
//! deleted at any time.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Paths of one checkout.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The checkout in which this program was built.
    pub fn from_this_checkout() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let root = root.canonicalize().with_context(|| format!("the checkout {} is gone", root.display()))?;
        Ok(Self { root })
    }

    /// The workspace root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path relative to the workspace root.
    pub fn checkout_path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// A path in `.photofinish`.
    pub fn state_path(&self, relative: &str) -> PathBuf {
        self.root.join(".photofinish").join(relative)
    }

    /// The release build of the service, in the build folder that also contains this program.
    pub fn service_binary(&self) -> anyhow::Result<PathBuf> {
        Ok(Self::target()?.join("release/photofinish"))
    }

    /// The debug build of the service, which the tests run.
    pub fn tested_binary(&self) -> anyhow::Result<PathBuf> {
        Ok(Self::target()?.join("debug/photofinish"))
    }

    fn target() -> anyhow::Result<PathBuf> {
        let this = std::env::current_exe().context("a running program has a path")?;
        let target = this.ancestors().nth(2).context("cargo builds into a folder of a folder")?;
        Ok(target.to_owned())
    }

    /// Files fetched from registries, kept so that none is fetched twice.
    pub fn downloads(&self) -> PathBuf {
        self.state_path("downloads")
    }

    /// A Python program of set-up.
    pub fn script_path(&self, name: &str) -> PathBuf {
        self.checkout_path("xtask/convert").join(name)
    }

    /// A folder of model files beside the checkout, which may not exist.
    pub fn shared_models_folder(&self) -> PathBuf {
        self.root.join("../shared/models")
    }
}
