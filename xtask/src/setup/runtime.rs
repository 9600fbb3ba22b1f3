//! ONNX Runtime: the library of a PyPI wheel, unpacked into `.photofinish/runtime`.
//!
//! On x86-64 the build with the OpenVINO provider, which runs the text networks 1.5 to 3 times faster; elsewhere, and
//! where that one does not load, the plain build.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::packages::{self, ONNX_RUNTIME, ONNX_RUNTIME_OPENVINO, PinnedPackage};
use super::python;
use crate::digest;
use crate::layout::Layout;
use crate::report::{StepOutcome, Unavailable, print_warning};

const FOLDER: &str = "runtime";

/// The libraries, under the names by which they load each other. The GPU and NPU plugins, the Python module and copies
/// under other names are left out: 127 of 262 MB remain.
const OPENVINO_FILES: &[&str] = &[
    "onnxruntime/capi/libonnxruntime.so.*",
    "onnxruntime/capi/libonnxruntime_providers_shared.so",
    "onnxruntime/capi/libonnxruntime_providers_openvino.so",
    "onnxruntime/capi/libopenvino.so.2541",
    "onnxruntime/capi/libopenvino_onnx_frontend.so.2541",
    "onnxruntime/capi/libopenvino_intel_cpu_plugin.so",
    "onnxruntime/capi/libtbb.so.12",
    "onnxruntime/LICENSE",
    "onnxruntime/ThirdPartyNotices.txt",
];

const PLAIN_FILES: &[&str] = &[
    "onnxruntime/capi/libonnxruntime.so.*",
    "?onnxruntime/capi/libonnxruntime_providers_shared.so",
    "onnxruntime/LICENSE",
    "onnxruntime/ThirdPartyNotices.txt",
];

/// Fetches and unpacks the library.
pub fn install(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let folder = layout.state_path(FOLDER);
    let is_there = find_library(layout).is_ok();
    if is_there && [&ONNX_RUNTIME_OPENVINO, &ONNX_RUNTIME].iter().any(|p| is_unpacked_from(&folder, p)) {
        return Ok(StepOutcome::Present);
    }
    if !cfg!(target_os = "linux") {
        return Err(Unavailable {
            what: "ONNX Runtime".into(),
            why: "set-up supports Linux only".into(),
            remedy: "install ONNX Runtime 1.23 or newer and name its library in PHOTOFINISH_ONNXRUNTIME"
                .into(),
        }
        .into());
    }
    if cfg!(target_arch = "x86_64") {
        match unpack(layout, &folder, &ONNX_RUNTIME_OPENVINO, OPENVINO_FILES) {
            Ok(outcome) => return Ok(outcome),
            Err(error) => print_warning(&format!(
                "no OpenVINO, so bibs are read 1.5 to 3 times slower: {error:#}\nTo try again, delete {}.",
                folder.display()
            )),
        }
    }
    unpack(layout, &folder, &ONNX_RUNTIME, PLAIN_FILES)
}

/// The installed library.
pub fn find_library(layout: &Layout) -> anyhow::Result<PathBuf> {
    find_library_in(&layout.state_path(FOLDER))
}

/// Finds `libonnxruntime.so.VERSION` in a folder.
pub fn find_library_in(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("libonnxruntime.so") {
            return Ok(entry.path());
        }
    }
    bail!("{} contains no libonnxruntime.so", folder.display())
}

fn is_unpacked_from(folder: &Path, package: &PinnedPackage) -> bool {
    digest::has_stamp(folder, &package.recipe())
}

fn unpack(
    layout: &Layout,
    folder: &Path,
    package: &PinnedPackage,
    files: &[&str],
) -> anyhow::Result<StepOutcome> {
    let wheel = packages::fetch(layout, package)?;
    digest::recreate_folder(folder)?;
    let mut arguments = vec![wheel.as_os_str(), folder.as_os_str()];
    arguments.extend(files.iter().map(|pattern| OsStr::new(*pattern)));
    python::run_script(layout, "unpack.py", &arguments)?;
    let version = python::run_script(layout, "check_runtime.py", &[folder.as_os_str()])
        .with_context(|| format!("{} {} does not load here", package.name, package.version))?;
    digest::write_stamp(folder, &package.recipe())?;
    Ok(StepOutcome::Done(format!("{} {version}", package.name)))
}
