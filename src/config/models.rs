//! Settings of the models that read the photos.

use std::path::{Path, PathBuf};

use photofinish_models::factory::BibGateChoice;
use photofinish_models::onnx::runtime::{DeviceChoice, Precision};
use photofinish_models::tuning::PrecisionChoice;

use super::parsers::{Choice, ON_OFF};
use super::variables::read_variables;

/// The folder in which NVIDIA's driver keeps what it has compiled.
const DRIVER_CACHE: &str = "CUDA_CACHE_PATH";

const KINDS: Choice<ModelKind> = Choice(&[
    ("zoo", ModelKind::Zoo),
    #[cfg(feature = "fakes")]
    ("fake", ModelKind::Fake),
]);

/// The devices of the models, by name.
pub const DEVICES: Choice<DeviceChoice> = Choice(&[
    ("auto", DeviceChoice::Auto),
    ("cpu", DeviceChoice::Cpu),
    ("cuda", DeviceChoice::Cuda),
    ("wgpu", DeviceChoice::Wgpu),
]);

const PRECISIONS: Choice<PrecisionChoice> = Choice(&[
    ("auto", PrecisionChoice::Auto),
    ("bf16", PrecisionChoice::Always(Precision::Bf16)),
    ("f16", PrecisionChoice::Always(Precision::F16)),
    ("f32", PrecisionChoice::Always(Precision::F32)),
    ("int8", PrecisionChoice::Always(Precision::Int8)),
]);

/// Whom the bib gate decides about, by name.
pub const BIB_GATES: Choice<BibGateChoice> =
    Choice(&[("small", BibGateChoice::Small), ("all", BibGateChoice::All), ("off", BibGateChoice::Off)]);

/// Which models read the photos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// The networks of `models/models.toml`.
    Zoo,
    /// Readers of painted marks, for tests of everything around the models.
    #[cfg(feature = "fakes")]
    Fake,
}

/// Settings of the models.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Models (roles all, serve, work)")]
pub struct ModelArguments {
    /// Folder of the model files
    #[arg(
        long,
        env = "PHOTOFINISH_MODELS_DIR",
        value_name = "FOLDER",
        default_value = ".photofinish/models"
    )]
    pub models_dir: PathBuf,
    /// Which models read the photos; builds for tests have others
    #[arg(long, env = "PHOTOFINISH_MODELS", value_name = "KIND", default_value = "zoo", value_parser = KINDS)]
    pub models: ModelKind,
    /// The ONNX Runtime library, libonnxruntime.so [default: one for each device, searched beside the binary, in .photofinish and in /opt]
    #[arg(long, env = "PHOTOFINISH_ONNXRUNTIME", value_name = "FILE")]
    pub onnxruntime: Option<PathBuf>,
    /// Device of the models; auto is CUDA, else a GPU with Vulkan, else the CPU
    #[arg(long, env = "PHOTOFINISH_DEVICE", value_name = "NAME", default_value = "auto")]
    #[arg(value_parser = DEVICES)]
    pub device: DeviceChoice,
    /// Precision of the networks, under OpenVINO or on a GPU; auto measures at the first start what is fastest on this device, int8 needs a CPU with VNNI instructions, with f16 the text detectors stay in f32, a GPU takes bf16 and int8 as f32
    #[arg(long, env = "PHOTOFINISH_TEXT_PRECISION", value_name = "NAME", default_value = "auto")]
    #[arg(value_parser = PRECISIONS)]
    pub text_precision: PrecisionChoice,
    /// Which runners are read for bibs only where a small network sees a number, the file bib_gate.onnx of the models folder or the one of the binary: small ones, all (faster, misses more), or none, and then small ones not at all
    #[arg(long, env = "PHOTOFINISH_BIB_GATE", value_name = "NAME", default_value = "small")]
    #[arg(value_parser = BIB_GATES)]
    pub bib_gate: BibGateChoice,
    /// Whether on CPUs a light text detector looks at torsos first, and the text detector only where that one saw a text but no certain bib
    #[arg(long, env = "PHOTOFINISH_LIGHT_TEXT_DETECTOR", value_name = "ON_OFF", default_value = "on")]
    #[arg(value_parser = ON_OFF, action = clap::ArgAction::Set)]
    pub light_text_detector: bool,
}

/// Reads where NVIDIA's driver keeps what it has compiled.
pub fn driver_cache() -> Option<PathBuf> {
    read_variables(|name| name == DRIVER_CACHE).pop().map(|(_, folder)| folder.into())
}

/// The folder of the kernels that are compiled for CUDA: beside that of the driver, which an operator puts on a volume;
/// else in the data folder.
pub fn kernel_cache_dir(driver_cache: Option<&Path>, data_dir: &Path) -> PathBuf {
    let beside = driver_cache.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    beside.map_or_else(|| data_dir.join("kernels"), |folder| folder.join("photofinish-kernels"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_kept_beside_what_the_driver_keeps_or_in_the_data_folder() {
        let folder = |driver: Option<&str>| kernel_cache_dir(driver.map(Path::new), Path::new("/data"));
        assert_eq!(folder(Some("/var/cache/cuda")), Path::new("/var/cache/photofinish-kernels"));
        assert_eq!(folder(Some("/var/cache/cuda/")), Path::new("/var/cache/photofinish-kernels"));
        for elsewhere in [None, Some(""), Some("cuda"), Some("/")] {
            assert_eq!(folder(elsewhere), Path::new("/data/kernels"), "{elsewhere:?}");
        }
    }
}
