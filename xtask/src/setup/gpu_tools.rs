//! What shows that GPU code is right on a machine without a GPU: Mesa's software Vulkan, and NVIDIA's run-time compiler
//! and assembler. Nothing is installed: packages are unpacked into `.photofinish`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::packages::{self, CUDA_COMPILER, CUDA_RUNTIME_COMPILER, ONNX_RUNTIME_WEBGPU};
use super::{python, runtime};
use crate::digest;
use crate::layout::Layout;
use crate::process::{capture_output, capture_output_with_retries};
use crate::report::{StepOutcome, Unavailable};

const VULKAN_FOLDER: &str = "vulkan";
const CUDA_FOLDER: &str = "cuda-check";

/// The loader and the drivers, of which the software one is kept. From Mesa 25 on, ONNX Runtime's WebGPU provider takes
/// it, so the suite with newer packages is asked too.
const VULKAN_PACKAGES: [&str; 2] = ["mesa-vulkan-drivers", "libvulkan1"];

/// Changes when the folder is made in another way.
const VULKAN_RECIPE: &str = "mesa-vulkan-drivers, newest of Debian's backports, 2";

/// What the packages contain beside the driver: OpenGL, and layers.
const OTHER_LIBRARIES: [&str; 5] = ["libEGL", "libGL", "libgallium", "libgbm", "libVkLayer"];

/// The file that names the driver to the loader.
const DRIVER_FILE: &str = "lvp_icd.json";

/// ONNX Runtime with the WebGPU provider, which is the only one that computes networks on Vulkan.
const WEBGPU_FOLDER: &str = "runtime-webgpu";
const WEBGPU_FILES: [&str; 3] =
    ["onnxruntime/capi/libonnx*", "onnxruntime/LICENSE", "onnxruntime/ThirdPartyNotices.txt"];

/// Where Debian keeps the libraries of this machine's processor.
const LIBRARIES: &str =
    if cfg!(target_arch = "aarch64") { "usr/lib/aarch64-linux-gnu" } else { "usr/lib/x86_64-linux-gnu" };

/// The folder of the libraries of software Vulkan.
pub fn vulkan_folder(layout: &Layout) -> PathBuf {
    layout.state_path(VULKAN_FOLDER)
}

/// The library of ONNX Runtime with WebGPU.
///
/// # Errors
/// When it is not installed.
pub fn webgpu_library(layout: &Layout) -> anyhow::Result<PathBuf> {
    runtime::find_library_in(&layout.state_path(WEBGPU_FOLDER))
}

/// The folder of `lib/libnvrtc.so.*` and `bin/ptxas`.
pub fn cuda_folder(layout: &Layout) -> PathBuf {
    layout.state_path(CUDA_FOLDER)
}

/// Names to a program what is here, and where compiled shaders are kept: the first compilation of a network takes most
/// of a minute.
pub fn set_variables(layout: &Layout, command: &mut Command) {
    let folder = vulkan_folder(layout);
    command
        .env("PHOTOFINISH_TEST_VULKAN", &folder)
        .env("VK_DRIVER_FILES", folder.join(DRIVER_FILE))
        .env("MESA_SHADER_CACHE_DIR", folder.join("cache"))
        .env("PHOTOFINISH_TEST_CUDA", cuda_folder(layout));
    if let Ok(library) = runtime::find_library_in(&layout.state_path(WEBGPU_FOLDER)) {
        command.env("PHOTOFINISH_TEST_WEBGPU", library);
    }
}

/// Fetches software Vulkan from Debian's archive, checked by its signatures, with apt's own files in a folder of ours.
pub fn install_vulkan(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let folder = vulkan_folder(layout);
    if digest::has_stamp(&folder, VULKAN_RECIPE) && folder.join("libvulkan_lvp.so").is_file() {
        return Ok(StepOutcome::Present);
    }
    digest::recreate_folder(&folder)?;
    fetch_vulkan(&folder).map_err(|error| Unavailable {
        what: "software Vulkan (mesa-vulkan-drivers)".into(),
        why: format!("{error:#}"),
        remedy:
            "this needs apt of Debian 12 or newer and its archive; elsewhere install Mesa's lavapipe, set \
                 PHOTOFINISH_TEST_VULKAN to an empty folder and VK_DRIVER_FILES to its lvp_icd.json"
                .into(),
    })?;
    digest::write_stamp(&folder, VULKAN_RECIPE)?;
    Ok(StepOutcome::Done("Mesa's lavapipe, unpacked".into()))
}

fn fetch_vulkan(folder: &Path) -> anyhow::Result<()> {
    let apt = folder.join("apt");
    for part in ["lists/partial", "archives/partial", "parts", "unpacked"] {
        std::fs::create_dir_all(apt.join(part))?;
    }
    let release = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.context("/etc/os-release names no release")?.trim_matches('"');
    let source = find_debian_source(Path::new("/etc/apt"), codename)?;
    std::fs::write(apt.join("parts/debian.sources"), source)?;
    let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
    let options = [
        "-oDir::Etc::SourceList=/dev/null".to_owned(),
        option("Dir::Etc::SourceParts", &apt.join("parts")),
        option("Dir::State::Lists", &apt.join("lists")),
        option("Dir::Cache", &apt),
        option("Dir::Cache::archives", &apt.join("archives")),
    ];
    let run = |arguments: &[&str]| {
        capture_output_with_retries(Command::new("apt-get").arg("--quiet").args(&options).args(arguments))
    };
    run(&["update"])?;
    let suite = format!("{codename}-backports");
    let fetch = [
        "install",
        "--download-only",
        "--reinstall",
        "--yes",
        "--no-install-recommends",
        "--target-release",
        &suite,
    ];
    // Those that are installed here already are not among them.
    run(&[&fetch, VULKAN_PACKAGES.as_slice()].concat())?;
    for entry in apt.join("archives").read_dir()? {
        let package = entry?.path();
        if package.extension() == Some(OsStr::new("deb")) {
            capture_output(
                Command::new("dpkg-deb").arg("--extract").arg(&package).arg(apt.join("unpacked")),
            )?;
        }
    }
    keep_libraries(&apt.join("unpacked").join(LIBRARIES), folder)?;
    std::fs::remove_dir_all(&apt).with_context(|| format!("cannot remove {}", apt.display()))
}

/// Returns a source of this release and its backports, at the archive that this machine has its packages of.
fn find_debian_source(apt: &Path, codename: &str) -> anyhow::Result<String> {
    let mut files = vec![apt.join("sources.list")];
    if let Ok(entries) = apt.join("sources.list.d").read_dir() {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    for text in texts {
        if let Some(source) = text.split("\n\n").find_map(|stanza| widen_stanza(stanza, codename)) {
            return Ok(source);
        }
        if let Some(source) = text.lines().find_map(|line| widen_line(line, codename)) {
            return Ok(source);
        }
    }
    bail!("no source of Debian's {codename} in {}", apt.display())
}

/// A source in the format of `.sources` files, with the backports; `None` if it is not this release's.
fn widen_stanza(stanza: &str, codename: &str) -> Option<String> {
    let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let has_release = field("Suites:")?.split_whitespace().any(|suite| suite == codename);
    let is_main = field("Components:")?.split_whitespace().any(|component| component == "main");
    let address = field("URIs:").filter(|_| has_release && is_main)?;
    let mut source = describe_source(address, codename);
    if let Some(key) = field("Signed-By:") {
        writeln!(source, "Signed-By: {key}").ok()?;
    }
    Some(source)
}

/// The same of a line `deb ADDRESS SUITE main`, which may have options.
fn widen_line(line: &str, codename: &str) -> Option<String> {
    let words: Vec<&str> =
        line.strip_prefix("deb ")?.split_whitespace().filter(|word| !word.contains('=')).collect();
    let [address, suite, components @ ..] = words.as_slice() else { return None };
    (*suite == codename && components.contains(&"main")).then(|| describe_source(address, codename))
}

fn describe_source(address: &str, codename: &str) -> String {
    format!("Types: deb\nURIs: {address}\nSuites: {codename} {codename}-backports\nComponents: main\n")
}

/// Moves the libraries of the software driver into the folder, without the drivers of hardware, and names the driver.
fn keep_libraries(unpacked: &Path, folder: &Path) -> anyhow::Result<()> {
    for entry in unpacked.read_dir().with_context(|| format!("cannot list {}", unpacked.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_other_driver = name.starts_with("libvulkan_") && name != "libvulkan_lvp.so"
            || OTHER_LIBRARIES.iter().any(|other| name.starts_with(other));
        if name.starts_with("lib") && name.contains(".so") && !is_other_driver {
            std::fs::rename(entry.path(), folder.join(&name))
                .with_context(|| format!("cannot move {name}"))?;
        }
    }
    let driver = folder.join("libvulkan_lvp.so");
    if !driver.is_file() {
        bail!("the packages contain no libvulkan_lvp.so");
    }
    // Relative to this file, so that the folder may be reached by another path.
    let text = r#"{"file_format_version": "1.0.0", "ICD": {"library_path": "./libvulkan_lvp.so", "api_version": "1.3.0"}}"#;
    std::fs::write(folder.join(DRIVER_FILE), text)?;
    Ok(())
}

/// Fetches ONNX Runtime with the WebGPU provider.
pub fn install_webgpu_runtime(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let folder = layout.state_path(WEBGPU_FOLDER);
    let recipe = ONNX_RUNTIME_WEBGPU.recipe();
    if digest::has_stamp(&folder, &recipe) {
        return Ok(StepOutcome::Present);
    }
    let wheel = packages::fetch(layout, &ONNX_RUNTIME_WEBGPU)?;
    digest::recreate_folder(&folder)?;
    let mut arguments = vec![wheel.as_os_str(), folder.as_os_str()];
    arguments.extend(WEBGPU_FILES.map(OsStr::new));
    python::run_script(layout, "unpack.py", &arguments)?;
    digest::write_stamp(&folder, &recipe)?;
    Ok(StepOutcome::Done(format!("{} {}", ONNX_RUNTIME_WEBGPU.name, ONNX_RUNTIME_WEBGPU.version)))
}

/// Fetches NVIDIA's run-time compiler and assembler.
pub fn install_cuda_compiler(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let folder = cuda_folder(layout);
    let recipe = format!("{}, {}", CUDA_RUNTIME_COMPILER.recipe(), CUDA_COMPILER.recipe());
    if digest::has_stamp(&folder, &recipe) {
        return Ok(StepOutcome::Present);
    }
    digest::recreate_folder(&folder)?;
    let parts = [
        (&CUDA_RUNTIME_COMPILER, "lib", "nvidia/cu13/lib/libnvrtc*"),
        (&CUDA_COMPILER, "bin", "nvidia/cu13/bin/ptxas"),
    ];
    for (package, name, pattern) in parts {
        let wheel = packages::fetch(layout, package)?;
        let target = folder.join(name);
        python::run_script(
            layout,
            "unpack.py",
            &[wheel.as_os_str(), target.as_os_str(), OsStr::new(pattern)],
        )?;
    }
    make_executable(&folder.join("bin/ptxas"))?;
    digest::write_stamp(&folder, &recipe)?;
    Ok(StepOutcome::Done("NVRTC and ptxas, unpacked".into()))
}

fn make_executable(program: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backports_are_at_the_archive_of_this_release() {
        let stanza = "Types: deb\nURIs: file:/mirror\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /key";
        let widened =
            "Types: deb\nURIs: file:/mirror\nSuites: bookworm bookworm-backports\nComponents: main\n";
        assert_eq!(widen_stanza(stanza, "bookworm").unwrap(), format!("{widened}Signed-By: /key\n"));
        assert_eq!(widen_stanza(stanza, "trixie"), None);
        assert_eq!(
            widen_line("deb [arch=amd64] file:/mirror bookworm main contrib", "bookworm").unwrap(),
            widened
        );
        assert_eq!(widen_line("deb file:/mirror bookworm-security main", "bookworm"), None);
    }
}
