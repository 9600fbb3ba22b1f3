//! `cargo xtask gpu-check`: compares a device with the CPU. CUDA on a machine with a GPU, elsewhere says that there is none;
//! Vulkan on any machine, because software computes it where no GPU does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::checks;
use crate::layout::Layout;
use crate::process::{capture_output, cargo, run_visibly};
use crate::report::{print_heading, print_note, print_warning};
use crate::setup::cuda::{self, CudaVersion};
use crate::setup::{self, SetupArguments, gpu_tools};

/// Where Linux has the devices of GPUs with a driver for graphics.
const GRAPHICS_DEVICES: &str = "/dev/dri";

/// Tells the comparison when the command began, in seconds since 1970.
const BEGAN: &str = "GPU_CHECK_BEGAN";

/// A GPU and the version of its driver.
struct Gpu {
    name: String,
    driver: String,
}

/// What to check.
#[derive(Args)]
pub struct GpuCheckArguments {
    /// cuda, or wgpu for a GPU with Vulkan; software in its place checks the check itself
    #[arg(long, default_value = "cuda", value_parser = ["cuda", "wgpu"])]
    device: String,
    #[command(flatten)]
    setup: SetupArguments,
    /// Options of the comparison, after `--`: --photos DIR, --limit N, --speed-photos N, --megapixels N,N, --photos-for-memory N,
    /// --peer-python FILE, --write
    #[arg(last = true)]
    passed: Vec<String>,
}

/// Checks the device.
pub fn check(layout: &Layout, arguments: &GpuCheckArguments) -> anyhow::Result<()> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().to_string();
    if arguments.device == "cuda" {
        check_cuda(layout, arguments, &began)
    } else {
        check_vulkan(layout, arguments, &began)
    }
}

/// Runs the comparison on Vulkan, with the driver of this machine or else Mesa's software.
fn check_vulkan(layout: &Layout, arguments: &GpuCheckArguments, began: &str) -> anyhow::Result<()> {
    let ready = setup::run(layout, &arguments.setup)?;
    setup::install_vulkan(layout)?;
    setup::install_sample_event(layout)?;
    checks::build_service(layout)?;
    print_heading("Vulkan compared with the CPU");
    let mut command = cargo(layout.root(), &["run", "--release", "--package", "photofinish-bench", "--"]);
    ready.with_runtime(gpu_tools::webgpu_library(layout)?).set_variables(&mut command);
    if !Path::new(GRAPHICS_DEVICES).exists() {
        gpu_tools::set_variables(layout, &mut command);
        command.env("LD_LIBRARY_PATH", gpu_tools::vulkan_folder(layout));
    }
    command.env(BEGAN, began);
    run_visibly(command.args(["gpu-check", "--device", "wgpu"]).args(&arguments.passed))
}

/// Installs CUDA and runs the comparison of the bench crate, where there is a GPU.
fn check_cuda(layout: &Layout, arguments: &GpuCheckArguments, began: &str) -> anyhow::Result<()> {
    let Some(gpu) = find_gpu() else {
        println!(
            "There is no GPU on this machine (no NVIDIA driver was found), so there is nothing to check.\n\
             The service runs on the CPU here; the same binary uses CUDA on a machine with a GPU."
        );
        return Ok(());
    };
    println!("GPU: {}, driver {}", gpu.name, gpu.driver);
    let ready = setup::run(layout, &arguments.setup)?;
    let library = cuda::install(layout, gpu.cuda())?;
    setup::install_sample_event(layout)?;
    let peer_python = install_peer(layout);
    let ready = ready.with_runtime(library);
    checks::build_service(layout)?;
    print_heading("CUDA compared with the CPU");
    let mut command = cargo(layout.root(), &["run", "--release", "--package", "photofinish-bench", "--"]);
    ready.set_variables(&mut command);
    command.arg("gpu-check").env(BEGAN, began);
    if let Some(python) = peer_python {
        command.arg("--peer-python").arg(python);
    }
    run_visibly(command.args(&arguments.passed))
}

/// Installs the peer; without it the rest is checked.
fn install_peer(layout: &Layout) -> Option<PathBuf> {
    match cuda::install_peer(layout) {
        Ok(python) => Some(python),
        Err(error) => {
            print_warning(&format!("not compared with a pipeline in Python: {error:#}"));
            None
        }
    }
}

/// The version of CUDA for the driver of this machine; the newest where there is no driver, as for an image.
pub fn choose_cuda() -> CudaVersion {
    match find_gpu() {
        Some(gpu) => {
            let version = gpu.cuda();
            print_note(&format!("{}, driver {}: CUDA {version}", gpu.name, gpu.driver));
            version
        }
        None => {
            print_note("no NVIDIA driver on this machine: CUDA 13, which needs driver 580 or newer");
            CudaVersion::Thirteen
        }
    }
}

impl Gpu {
    /// The version of CUDA that its driver runs.
    fn cuda(&self) -> CudaVersion {
        let major = self.driver.split('.').next().and_then(|part| part.parse().ok());
        CudaVersion::for_driver(major.unwrap_or(0))
    }
}

/// Finds the first GPU with `nvidia-smi`, else by the files of a driver. The comparison decides in the same way.
fn find_gpu() -> Option<Gpu> {
    let query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
    if let Ok(answer) = capture_output(Command::new("nvidia-smi").args(query))
        && let Some((name, driver)) = answer.lines().next().and_then(|line| line.split_once(','))
    {
        return Some(Gpu { name: name.trim().into(), driver: driver.trim().into() });
    }
    let unnamed = |driver: Option<String>| Gpu {
        name: "an NVIDIA GPU".into(),
        driver: driver.unwrap_or_else(|| "unknown".into()),
    };
    if let Ok(description) = std::fs::read_to_string("/proc/driver/nvidia/version") {
        return Some(unnamed(parse_driver_version(&description)));
    }
    // WSL2 has its device for the GPUs of others too.
    let has_device = ["/dev/nvidia0", "/dev/dxg"].iter().any(|device| Path::new(device).exists());
    let cache = capture_output(Command::new("ldconfig").arg("-p")).unwrap_or_default();
    (has_device && cache.contains("libcuda.so.1")).then(|| unnamed(None))
}

/// Extracts the version number from the description of the kernel module.
fn parse_driver_version(description: &str) -> Option<String> {
    let first = description.lines().next()?;
    let is_version = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    first.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_version_is_parsed_from_the_kernel_module() {
        let text =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 2025\nGCC version: 12\n";
        assert_eq!(parse_driver_version(text).as_deref(), Some("570.86.15"));
        assert_eq!(parse_driver_version(""), None);
    }

    #[test]
    fn the_version_of_cuda_follows_from_the_driver() {
        let cuda = |driver: &str| Gpu { name: "an NVIDIA GPU".into(), driver: driver.into() }.cuda();
        assert_eq!(cuda("580.65.06"), CudaVersion::Thirteen);
        assert_eq!(cuda("570.86.15"), CudaVersion::Twelve);
        // CUDA 12 runs on newer drivers too.
        assert_eq!(cuda("unknown"), CudaVersion::Twelve);
    }
}
