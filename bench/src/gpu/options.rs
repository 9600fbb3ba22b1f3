//! What the check is asked for.

use std::path::PathBuf;

use crate::paths::InputPaths;
use crate::report::OutputOptions;

/// Photos of the event that is drawn where there are no labelled photos.
pub const DRAWN_PHOTOS: usize = 24;

/// A device that is compared with the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CheckedDevice {
    /// An NVIDIA GPU.
    Cuda,
    /// A GPU with Vulkan, or software.
    Wgpu,
}

/// Options of the check.
#[derive(Clone, Debug, clap::Args)]
pub struct GpuCheckOptions {
    /// The device; software in the place of a GPU is taken too, and checks this command.
    #[arg(long, default_value = "cuda")]
    pub device: CheckedDevice,
    /// A folder of JPEG files; by default some of the labelled photos, or a drawn event where there are none.
    #[arg(long, value_name = "DIR")]
    pub photos: Option<PathBuf>,
    /// Most photos on which the devices are compared.
    #[arg(long, default_value_t = DRAWN_PHOTOS)]
    pub limit: usize,
    /// Photos of each measurement of speed.
    #[arg(long, default_value_t = 400)]
    pub speed_photos: usize,
    /// Megapixels of these photos, for one measurement each.
    #[arg(long, value_delimiter = ',', default_values_t = [24.0, 2.0])]
    pub megapixels: Vec<f64>,
    /// Photos over which the memory of the device is watched at each size; those of the speed are repeated until then. Without it
    /// until a minute is over.
    #[arg(long, value_name = "NUMBER")]
    pub photos_for_memory: Option<usize>,
    /// A Python with ONNX Runtime for the device, OpenCV and numpy: compares the speed with a pipeline in Python.
    #[arg(long, value_name = "FILE")]
    pub peer_python: Option<PathBuf>,
    /// When the command began, in seconds since 1970: `cargo xtask gpu-check` sets up and builds before.
    #[arg(long, env = "GPU_CHECK_BEGAN", hide = true)]
    pub began: Option<u64>,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

impl CheckedDevice {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
        }
    }
}
