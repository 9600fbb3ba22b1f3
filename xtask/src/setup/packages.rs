//! Packages of public registries, pinned by version and SHA-256, fetched by the registries' own clients.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::python::PythonEnvironment;
use super::system;
use crate::digest;
use crate::layout::Layout;
use crate::process::capture_output_with_retries;
use crate::report::{Unavailable, print_note};

/// A file of a registry.
pub struct PinnedPackage {
    /// Its name in the registry.
    pub name: &'static str,
    /// The pinned version.
    pub version: &'static str,
    /// The file name that the registry's client gives it.
    pub file: &'static str,
    /// Its SHA-256.
    pub sha256: &'static str,
    /// Registry and form.
    pub format: PackageFormat,
}

/// The registry of a package, and its form there.
pub enum PackageFormat {
    /// PyPI: a wheel for any machine.
    Wheel,
    /// PyPI: the wheel of CPython 3.11 for a platform, regardless of the Python here. Only its other files are used.
    WheelFor(&'static str),
    /// PyPI: the source package.
    Source,
    /// npm.
    Npm,
}

/// ONNX Runtime with the OpenVINO provider.
pub const ONNX_RUNTIME_OPENVINO: PinnedPackage = PinnedPackage {
    name: "onnxruntime-openvino",
    version: "1.24.1",
    file: "onnxruntime_openvino-1.24.1-cp311-cp311-manylinux_2_28_x86_64.whl",
    sha256: "3007c803634cc69c6d52af1dea7ce729d9bb62b9a11070fd2f959119199007a8",
    format: PackageFormat::WheelFor("manylinux_2_28_x86_64"),
};

/// ONNX Runtime alone, for this machine's processor.
#[cfg(not(target_arch = "aarch64"))]
pub const ONNX_RUNTIME: PinnedPackage = PinnedPackage {
    name: "onnxruntime",
    version: "1.31.1",
    file: "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl",
    sha256: "5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f",
    format: PackageFormat::WheelFor("manylinux_2_28_x86_64"),
};

/// ONNX Runtime alone, for this machine's processor.
#[cfg(target_arch = "aarch64")]
pub const ONNX_RUNTIME: PinnedPackage = PinnedPackage {
    name: "onnxruntime",
    version: "1.31.1",
    file: "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_aarch64.whl",
    sha256: "da05378364c44d4407e463982d2bf8d5e4cfea873283757e48beeb41df97b7f3",
    format: PackageFormat::WheelFor("manylinux_2_28_aarch64"),
};

/// Text detector and recogniser.
pub const RAPIDOCR: PinnedPackage = PinnedPackage {
    name: "rapidocr-onnxruntime",
    version: "1.4.4",
    file: "rapidocr_onnxruntime-1.4.4-py3-none-any.whl",
    sha256: "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    format: PackageFormat::Wheel,
};

/// Face detector as a library.
pub const YUFACE: PinnedPackage = PinnedPackage {
    name: "yuface",
    version: "2023.5.1",
    file: "yuface-2023.5.1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    sha256: "fd03270a672da75b89809a2c999d5728ef19c6e701408a4d0bc9c00480c864a0",
    format: PackageFormat::WheelFor("manylinux_2_17_x86_64"),
};

/// Face embedder as TensorFlow.js weights.
pub const FACE_API: PinnedPackage = PinnedPackage {
    name: "@vladmandic/face-api",
    version: "1.7.15",
    file: "vladmandic-face-api-1.7.15.tgz",
    sha256: "0d77fffeef362ef9c0939cf6c567f3a2e8e177f114fa257a3270cbd2e509b031",
    format: PackageFormat::Npm,
};

/// A portrait by NASA.
pub const SCIKIT_IMAGE: PinnedPackage = PinnedPackage {
    name: "scikit-image",
    version: "0.26.0",
    file: "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    sha256: "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    format: PackageFormat::WheelFor("manylinux_2_28_x86_64"),
};

/// Official portraits of two public figures.
pub const FACE_RECOGNITION: PinnedPackage = PinnedPackage {
    name: "face_recognition",
    version: "1.3.0",
    file: "face_recognition-1.3.0.tar.gz",
    sha256: "5e5efdd1686aa566af0d3cc1313b131e4b197657a8ffd03669e6d3fad92705ec",
    format: PackageFormat::Source,
};

/// ONNX Runtime with the WebGPU provider.
pub const ONNX_RUNTIME_WEBGPU: PinnedPackage = PinnedPackage {
    name: "onnxruntime-webgpu",
    version: "1.27.0",
    file: "onnxruntime_webgpu-1.27.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    sha256: "142eb8bdb803c58117bf64164d201f43180bc87229cac14b590aa4ea79e0f70b",
    format: PackageFormat::WheelFor("manylinux_2_28_x86_64"),
};

/// NVRTC, which compiles CUDA C++ without a GPU.
pub const CUDA_RUNTIME_COMPILER: PinnedPackage = PinnedPackage {
    name: "nvidia-cuda-nvrtc",
    version: "13.5.37",
    file: "nvidia_cuda_nvrtc-13.5.37-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
    sha256: "86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc",
    format: PackageFormat::Wheel,
};

/// The compiler with its assembler, `ptxas`, which says how many registers a kernel takes.
pub const CUDA_COMPILER: PinnedPackage = PinnedPackage {
    name: "nvidia-cuda-nvcc",
    version: "13.5.37",
    file: "nvidia_cuda_nvcc-13.5.37-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256: "f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7",
    format: PackageFormat::Wheel,
};

/// The schemas of Kubernetes, of many versions.
pub const KUBERNETES_VALIDATE: PinnedPackage = PinnedPackage {
    name: "kubernetes-validate",
    version: "1.37.0",
    file: "kubernetes_validate-1.37.0-py3-none-any.whl",
    sha256: "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
    format: PackageFormat::Wheel,
};

impl PinnedPackage {
    /// The stamp of what is made from this package alone.
    pub fn recipe(&self) -> String {
        format!("{} {} {}", self.name, self.version, self.sha256)
    }
}

/// Fetches a package unless it is among the downloads, and returns its file.
pub fn fetch(layout: &Layout, package: &PinnedPackage) -> anyhow::Result<PathBuf> {
    let folder = layout.downloads();
    let path = folder.join(package.file);
    if digest::file_matches(&path, package.sha256) {
        return Ok(path);
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    print_note(&format!(
        "fetching {} {} from {}",
        package.name,
        package.version,
        package.format.registry_name()
    ));
    let fetched = match package.format {
        PackageFormat::Npm => npm_pack(&folder, package),
        _ => pip_download(layout, &folder, package),
    };
    fetched.map_err(|error| unavailable(package, &format!("{error:#}")))?;
    let found = digest::hash_file(&path).map_err(|error| unavailable(package, &error.to_string()))?;
    if found != package.sha256 {
        let why = format!("its SHA-256 is {found}, expected {}", package.sha256);
        return Err(unavailable(package, &why).into());
    }
    Ok(path)
}

impl PackageFormat {
    fn registry_name(&self) -> &'static str {
        match self {
            Self::Npm => "npm",
            _ => "PyPI",
        }
    }
}

fn unavailable(package: &PinnedPackage, why: &str) -> Unavailable {
    Unavailable {
        what: format!("{} {} from {}", package.name, package.version, package.format.registry_name()),
        why: why.to_owned(),
        remedy: format!(
            "check that this machine reaches {}, or put {} into .photofinish/downloads",
            package.format.registry_name(),
            package.file
        ),
    }
}

fn pip_download(layout: &Layout, folder: &Path, package: &PinnedPackage) -> anyhow::Result<String> {
    let environment = PythonEnvironment::new(layout, "venv")?;
    let mut command = environment.pip("download");
    command.arg("--no-deps");
    match package.format {
        PackageFormat::Source => {
            command.args(["--no-binary", package.name]);
        }
        PackageFormat::WheelFor(platform) => {
            command.args(["--only-binary=:all:", "--implementation", "cp", "--python-version", "3.11"]);
            command.args(["--platform", platform]);
        }
        _ => {
            command.arg("--only-binary=:all:");
        }
    }
    capture_output_with_retries(
        command.arg("--dest").arg(folder).arg(format!("{}=={}", package.name, package.version)),
    )
}

fn npm_pack(folder: &Path, package: &PinnedPackage) -> anyhow::Result<String> {
    system::install(system::NPM)?;
    let wanted = format!("{}@{}", package.name, package.version);
    capture_output_with_retries(Command::new("npm").args(["pack", "--silent", &wanted]).current_dir(folder))
}
