//! ONNX Runtime with CUDA, for machines with an NVIDIA GPU: the wheel and NVIDIA's libraries from PyPI, in a Python
//! environment of their own (over 2 GB).

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;

use super::python::PythonEnvironment;
use super::runtime;
use crate::digest;
use crate::layout::Layout;
use crate::report::{StepOutcome, Unavailable, print_note, run_step};

/// The oldest driver that CUDA 13 runs on.
const MIN_CUDA_13_DRIVER: u32 = 580;

/// The package with CUDA 13 libraries.
const CUDA_13_PACKAGE: &str = "onnxruntime-gpu[cuda,cudnn]==1.31.1";

/// The last package with CUDA 12 libraries.
const CUDA_12_PACKAGE: &str = "onnxruntime-gpu[cuda,cudnn]==1.26.0";

/// What the peer in Python needs beside ONNX Runtime, which `gpu-check` compares with, and nvJPEG, which it measures. The
/// constraints pin numpy.
const PEER_PACKAGES: [&str; 3] = ["opencv-python-headless==5.0.0.93", "numpy", "nvidia-nvjpeg==13.3.2.43"];

/// The folder of ONNX Runtime with all that it loads.
const LIBRARIES_FOLDER: &str = "runtime-cuda-libraries";

/// A version of CUDA, by the drivers that support it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CudaVersion {
    /// For drivers before 580.
    #[value(name = "12")]
    Twelve,
    /// For drivers from 580 on.
    #[value(name = "13")]
    Thirteen,
}

impl CudaVersion {
    /// The version for a driver, by the driver's major version (0 when unknown).
    pub fn for_driver(major: u32) -> Self {
        if major >= MIN_CUDA_13_DRIVER { Self::Thirteen } else { Self::Twelve }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Twelve => CUDA_12_PACKAGE,
            Self::Thirteen => CUDA_13_PACKAGE,
        }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Twelve => "12",
            Self::Thirteen => "13",
        })
    }
}

/// Installs the runtime in one folder with NVIDIA's libraries, `.photofinish/runtime-cuda-libraries`, which the service
/// opens by their paths from there. Returns ONNX Runtime's library.
pub fn install(layout: &Layout, cuda: CudaVersion) -> anyhow::Result<PathBuf> {
    let package = cuda.package();
    run_step("ONNX Runtime with CUDA", || {
        print_note(&format!("{package} with NVIDIA's libraries, over 2 GB unless installed"));
        environment(layout)?.with_packages(&[package]).map_err(|error| Unavailable {
            what: package.into(),
            why: format!("{error:#}"),
            remedy: "check that this machine reaches PyPI and has 6 GB of disk, then run this again".into(),
        })?;
        Ok(StepOutcome::Done(package.into()))
    })?;
    let packages = find_site_packages(environment(layout)?.folder())?;
    let target = layout.state_path(LIBRARIES_FOLDER);
    run_step("libraries of CUDA in one folder", || collect_libraries(&packages, &target))?;
    runtime::find_library_in(&target)
}

/// Adds the packages of the peer to the environment that [`install`] made; returns its Python.
pub fn install_peer(layout: &Layout) -> anyhow::Result<PathBuf> {
    let environment = environment(layout)?;
    environment.add_packages(&PEER_PACKAGES)?;
    Ok(environment.folder().join("bin").join("python"))
}

/// Links the runtime and everything it loads into one folder.
fn collect_libraries(packages: &Path, target: &Path) -> anyhow::Result<StepOutcome> {
    digest::recreate_folder(target)?;
    let mut folders = vec![packages.join("onnxruntime/capi")];
    folders.extend(list_library_folders(&packages.join("nvidia"))?);
    let mut count = 0;
    for folder in &folders {
        for library in list_libraries(folder)? {
            let name = library.file_name().context("a library has a file name")?;
            // Hard links: the libraries are gigabytes.
            std::fs::hard_link(&library, target.join(name))
                .with_context(|| format!("cannot link {} into {}", library.display(), target.display()))?;
            count += 1;
        }
    }
    Ok(StepOutcome::Done(format!("{count} libraries in {}", target.display())))
}

/// Lists the shared libraries of a folder, without TensorRT's provider, whose libraries no package here contains.
fn list_libraries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
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

fn environment(layout: &Layout) -> anyhow::Result<PythonEnvironment> {
    PythonEnvironment::new(layout, "runtime-cuda")
}

fn find_site_packages(environment: &Path) -> anyhow::Result<PathBuf> {
    let versions = environment.join("lib");
    for entry in versions.read_dir().with_context(|| format!("cannot list {}", versions.display()))? {
        let candidate = entry?.path().join("site-packages");
        if candidate.is_dir() {
            return Ok(candidate);
        }
    }
    bail!("{} contains no site-packages", versions.display())
}

/// Lists `nvidia/NAME/lib` of every wheel: they share one namespace.
fn list_library_folders(nvidia: &Path) -> anyhow::Result<Vec<PathBuf>> {
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
    fn a_driver_gets_the_newest_cuda_that_it_supports() {
        assert_eq!(CudaVersion::for_driver(580), CudaVersion::Thirteen);
        assert_eq!(CudaVersion::for_driver(570), CudaVersion::Twelve);
        assert_eq!(CudaVersion::for_driver(0), CudaVersion::Twelve);
    }

    #[test]
    fn everything_that_is_loaded_is_in_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("site-packages");
        let files = [
            "onnxruntime/capi/libonnxruntime.so.1.31.1",
            "onnxruntime/capi/libonnxruntime_providers_cuda.so",
            "nvidia/cu13/lib/libcudart.so.13",
            "nvidia/cudnn/lib/libcudnn.so.9",
        ];
        for file in files.map(|file| packages.join(file)) {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, b"").unwrap();
        }
        let target = folder.path().join("libraries");
        for _ in 0..2 {
            collect_libraries(&packages, &target).unwrap();
            let names = files.map(|file| target.join(file.rsplit('/').next().unwrap()));
            assert!(names.iter().all(|file| file.is_file()));
            assert_eq!(target.read_dir().unwrap().count(), names.len());
            assert_eq!(runtime::find_library_in(&target).unwrap(), names[0]);
        }
    }

    #[test]
    fn only_loadable_libraries_are_collected() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "libonnxruntime.so.1.31.1",
            "libonnxruntime_providers_cuda.so",
            "libonnxruntime_providers_tensorrt.so",
            "onnxruntime_pybind11_state.so",
            "__init__.py",
        ];
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), b"").unwrap());
        let mut found = list_libraries(folder.path()).unwrap();
        found.sort();
        let expected = names[..2].iter().map(|name| folder.path().join(name));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}
