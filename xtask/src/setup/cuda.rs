//! ONNX Runtime with CUDA, for machines with an NVIDIA GPU: the wheel and NVIDIA's libraries from PyPI, in an
//! environment of their own (over 2 GB).

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::python::Environment;
use super::runtime;
use crate::layout::Layout;
use crate::report::{Outcome, Unavailable, note, step};

/// The oldest driver that CUDA 13 runs on.
const FIRST_DRIVER_OF_CUDA_13: u32 = 580;

/// With CUDA 13 libraries.
const FOR_CUDA_13: &str = "onnxruntime-gpu[cuda,cudnn]==1.31.1";

/// The last one with CUDA 12 libraries.
const FOR_CUDA_12: &str = "onnxruntime-gpu[cuda,cudnn]==1.26.0";

/// A runtime that can use the GPU.
pub struct CudaRuntime {
    /// The library to load.
    pub library: PathBuf,
    /// Folders in which it looks for NVIDIA's libraries.
    pub libraries: Vec<PathBuf>,
}

/// Installs the runtime that suits a driver, by the driver's major version (0 when unknown).
pub fn install(layout: &Layout, driver: u32) -> anyhow::Result<CudaRuntime> {
    let package = if driver >= FIRST_DRIVER_OF_CUDA_13 { FOR_CUDA_13 } else { FOR_CUDA_12 };
    step("ONNX Runtime with CUDA", || {
        note(&format!("{package} with NVIDIA's libraries, over 2 GB, unless they are here"));
        environment(layout)?.with(&[package]).map_err(|error| Unavailable {
            what: package.into(),
            why: format!("{error:#}"),
            remedy: "check that this machine reaches PyPI and has 6 GB of disk, then run this again".into(),
        })?;
        Ok(Outcome::Done(package.into()))
    })?;
    let packages = site_packages(environment(layout)?.folder())?;
    let library = runtime::library_in(&packages.join("onnxruntime/capi"))?;
    Ok(CudaRuntime { library, libraries: library_folders(&packages.join("nvidia"))? })
}

fn environment(layout: &Layout) -> anyhow::Result<Environment> {
    Environment::new(layout, "runtime-cuda")
}

fn site_packages(environment: &Path) -> anyhow::Result<PathBuf> {
    let versions = environment.join("lib");
    for entry in versions.read_dir().with_context(|| format!("cannot list {}", versions.display()))? {
        let candidate = entry?.path().join("site-packages");
        if candidate.is_dir() {
            return Ok(candidate);
        }
    }
    bail!("{} holds no site-packages", versions.display())
}

/// `nvidia/PART/lib` of each part: the wheels share one namespace.
fn library_folders(nvidia: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in nvidia.read_dir().with_context(|| format!("cannot list {}", nvidia.display()))? {
        let folder = entry?.path().join("lib");
        if folder.is_dir() {
            folders.push(folder);
        }
    }
    folders.sort();
    Ok(folders)
}
