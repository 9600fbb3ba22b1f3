//! ONNX Runtime with CUDA, for machines with an NVIDIA GPU: the wheel and NVIDIA's libraries from PyPI, in an
//! environment of their own (over 2 GB).

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;

use super::python::Environment;
use super::runtime;
use crate::digest;
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

/// Which CUDA, by the drivers that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cuda {
    /// For drivers before 580.
    #[value(name = "12")]
    Twelve,
    /// For drivers from 580 on.
    #[value(name = "13")]
    Thirteen,
}

impl Cuda {
    /// The one for a driver, by the driver's major version (0 when unknown).
    pub fn for_driver(major: u32) -> Self {
        if major >= FIRST_DRIVER_OF_CUDA_13 { Self::Thirteen } else { Self::Twelve }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Twelve => FOR_CUDA_12,
            Self::Thirteen => FOR_CUDA_13,
        }
    }
}

/// Installs the runtime.
pub fn install(layout: &Layout, cuda: Cuda) -> anyhow::Result<CudaRuntime> {
    let package = cuda.package();
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

/// Puts the runtime and all that it loads into one folder, as an image has them: `.photofinish/runtime-cuda-libraries`.
pub fn gather(layout: &Layout, runtime: &CudaRuntime) -> anyhow::Result<Outcome> {
    let target = layout.state("runtime-cuda-libraries");
    digest::emptied(&target)?;
    let own = runtime.library.parent().context("a library lies in a folder")?;
    let mut count = 0;
    for folder in std::iter::once(own).chain(runtime.libraries.iter().map(PathBuf::as_path)) {
        for library in libraries_in(folder)? {
            let name = library.file_name().context("a library has a name")?;
            // Gigabytes: linked and not copied.
            std::fs::hard_link(&library, target.join(name))
                .with_context(|| format!("cannot link {} into {}", library.display(), target.display()))?;
            count += 1;
        }
    }
    Ok(Outcome::Done(format!("{count} libraries in {}", target.display())))
}

/// The shared libraries of a folder. TensorRT's provider is left out: its own libraries are in no package here.
fn libraries_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for entry in folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("lib") && name.contains(".so") && !name.contains("tensorrt") {
            libraries.push(path);
        }
    }
    Ok(libraries)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_gets_the_cuda_that_it_runs() {
        assert_eq!(Cuda::for_driver(580), Cuda::Thirteen);
        assert_eq!(Cuda::for_driver(570), Cuda::Twelve);
        assert_eq!(Cuda::for_driver(0), Cuda::Twelve);
    }

    #[test]
    fn only_libraries_that_can_be_loaded_are_gathered() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "libonnxruntime.so.1.31.1",
            "libonnxruntime_providers_cuda.so",
            "libonnxruntime_providers_tensorrt.so",
            "onnxruntime_pybind11_state.so",
            "__init__.py",
        ];
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), b"").unwrap());
        let mut found = libraries_in(folder.path()).unwrap();
        found.sort();
        let expected = names[..2].iter().map(|name| folder.path().join(name));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}
