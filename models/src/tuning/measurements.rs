//! Measurements of networks, how one backend is chosen by them, and the file in which they are kept.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::onnx::runtime::{Backend, Precision};

/// Least cosine between a backend's output and that of ONNX Runtime in f32. On the drawn picture sound bf16 outputs have .998
/// and more, int8 ones .994 and more; a backend that computes something else has far less.
const MIN_COSINE: f64 = 0.99;

/// The same of f16 on a GPU, which has three bits more than bf16: what pipelines on two devices may differ by.
const MIN_GPU_COSINE: f64 = 0.999;

/// Two backends whose shortest runs differ by no more than this are as fast as each other.
const AS_FAST_PERCENT: u64 = 3;

/// One network in one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Name and version of the network.
    pub network: String,
    /// What computed it.
    #[serde(with = "backend_name")]
    pub backend: Backend,
    /// The shortest run.
    pub microseconds: u64,
    /// Cosine of its output and that of ONNX Runtime in f32.
    pub cosine: f64,
}

impl Measurement {
    fn agrees(&self) -> bool {
        let is_gpu_only = self.backend == Backend::OnnxRuntimeF16;
        self.cosine >= if is_gpu_only { MIN_GPU_COSINE } else { MIN_COSINE }
    }
}

/// All networks in all backends of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurements {
    /// CPU, library and networks.
    circumstances: String,
    networks: Vec<Measurement>,
    /// Networks with the backends that could not compute them, and why.
    #[serde(default)]
    failures: Vec<String>,
}

impl Measurements {
    /// No measurements yet.
    pub(super) fn new(circumstances: String) -> Self {
        Self { circumstances, networks: Vec::new(), failures: Vec::new() }
    }

    pub(super) fn add(&mut self, measurement: Measurement) {
        self.networks.push(measurement);
    }

    pub(super) fn add_failure(&mut self, failure: String) {
        self.failures.push(failure);
    }

    /// A line per backend that could not compute a network.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// The measurements of a file; `None` if there is none, or it was made under other circumstances.
    pub(super) fn load(file: &Path, circumstances: &str) -> Option<Self> {
        let text = std::fs::read_to_string(file).ok()?;
        let measurements: Self = serde_json::from_str(&text).ok()?;
        (measurements.circumstances == circumstances).then_some(measurements)
    }

    /// Writes the file, whole or not at all: another process may read it.
    pub(super) fn save(&self, file: &Path) -> std::io::Result<()> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let unfinished = file.with_extension(format!("{}.tmp", std::process::id()));
        std::fs::write(&unfinished, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&unfinished, file)
    }

    /// Returns the fastest backend of a network whose output agrees, or the first that is as fast: those in floats of 32 bits come
    /// first. ONNX Runtime if none was measured.
    pub fn fastest(&self, network: &str) -> Backend {
        let agrees = |measurement: &&Measurement| measurement.network == network && measurement.agrees();
        let agreeing = || self.networks.iter().filter(agrees);
        let shortest = agreeing().map(|measurement| measurement.microseconds).min().unwrap_or(0);
        let limit = shortest.saturating_mul(100 + AS_FAST_PERCENT) / 100;
        agreeing()
            .find(|measurement| measurement.microseconds <= limit)
            .map_or(Backend::OnnxRuntime, |measurement| measurement.backend)
    }

    /// A line per measurement, with the choice.
    pub fn lines(&self) -> Vec<String> {
        let line = |measurement: &Measurement| {
            let Measurement { network, backend, microseconds, cosine } = measurement;
            let milliseconds = Duration::from_micros(*microseconds).as_secs_f64() * 1e3;
            let chosen = if self.fastest(network) == *backend { ", chosen" } else { "" };
            format!("{network}: {backend} {milliseconds:.2} ms, cosine {cosine:.4}{chosen}")
        };
        self.networks.iter().map(line).collect()
    }

    /// The CPU, the library and the networks they were made with.
    pub fn circumstances(&self) -> &str {
        &self.circumstances
    }
}

/// Backends in the file.
mod backend_name {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::{Backend, Precision};

    const NAMES: [(&str, Backend); 6] = [
        ("onnxruntime", Backend::OnnxRuntime),
        ("onnxruntime-f16", Backend::OnnxRuntimeF16),
        ("openvino-f32", Backend::OpenVino(Precision::F32)),
        ("openvino-bf16", Backend::OpenVino(Precision::Bf16)),
        ("openvino-f16", Backend::OpenVino(Precision::F16)),
        ("openvino-int8", Backend::OpenVino(Precision::Int8)),
    ];

    pub(super) fn serialize<S: Serializer>(backend: &Backend, serializer: S) -> Result<S::Ok, S::Error> {
        let name = NAMES.iter().find(|(_, known)| known == backend).map_or("", |(name, _)| name);
        serializer.serialize_str(name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Backend, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = NAMES.iter().find(|(name, _)| *name == text).map(|(_, backend)| *backend);
        known.ok_or_else(|| D::Error::custom(format!("unknown backend {text}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BF16: Backend = Backend::OpenVino(Precision::Bf16);
    const F32: Backend = Backend::OpenVino(Precision::F32);

    fn measurements(rows: &[(&str, Backend, u64, f64)]) -> Measurements {
        let mut all = Measurements::new("a CPU".into());
        for &(network, backend, microseconds, cosine) in rows {
            all.add(Measurement { network: network.into(), backend, microseconds, cosine });
        }
        all
    }

    #[test]
    fn the_fastest_backend_that_agrees_is_chosen_per_network() {
        // As measured on a CPU with AMX and on one with AVX-512 alone, where bf16 is emulated.
        let with_amx = measurements(&[
            ("detector", Backend::OnnxRuntime, 24_900, 1.0),
            ("detector", F32, 15_200, 0.9999),
            ("detector", BF16, 7_000, 0.998),
            ("recogniser", Backend::OnnxRuntime, 9_500, 1.0),
            ("recogniser", BF16, 2_500, 0.6),
        ]);
        assert_eq!(with_amx.fastest("detector"), BF16);
        assert_eq!(
            with_amx.fastest("recogniser"),
            Backend::OnnxRuntime,
            "the faster one computes something else"
        );
        let emulated = measurements(&[
            ("detector", Backend::OnnxRuntime, 24_900, 1.0),
            ("detector", F32, 15_200, 0.9999),
            ("detector", BF16, 50_000, 0.998),
        ]);
        assert_eq!(emulated.fastest("detector"), F32);
        assert_eq!(emulated.fastest("unknown"), Backend::OnnxRuntime);
    }

    /// The times are those of 64 faces and of 64 strips on an H200.
    #[test]
    fn a_gpu_has_f16_for_the_networks_whose_outputs_agree_and_that_gain_by_it() {
        let (full, half) = (Backend::OnnxRuntime, Backend::OnnxRuntimeF16);
        let on_gpu = |network, f16, cosine| {
            measurements(&[(network, full, 6570, 1.0), (network, half, f16, cosine)]).fastest(network)
        };
        assert_eq!(on_gpu("recogniser", 4290, 0.9997), half);
        assert_eq!(on_gpu("recogniser", 6480, 0.9997), full, "as fast");
        assert_eq!(on_gpu("text detector", 4290, 0.998), full, "it computes something else");
        assert_eq!(on_gpu("overflow", 4290, 0.0), full);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tuning.json");
        let known = measurements(&[("embedder", full, 3490, 1.0), ("embedder", half, 2770, 0.9999)]);
        known.save(&file).unwrap();
        assert_eq!(Measurements::load(&file, "a CPU").unwrap().fastest("embedder"), half);
    }

    #[test]
    fn of_two_that_are_as_fast_the_more_exact_one_is_chosen() {
        let all = |bf16| {
            let f32 = ("gate", F32, 1000, 1.0);
            measurements(&[("gate", Backend::OnnxRuntime, 1400, 1.0), f32, ("gate", BF16, bf16, 0.998)])
        };
        assert_eq!(all(975).fastest("gate"), F32);
        assert_eq!(all(960).fastest("gate"), BF16);
    }

    #[test]
    fn measurements_are_kept_until_the_circumstances_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cache/tuning.json");
        let known = measurements(&[("detector", F32, 15_200, 0.9999)]);
        known.save(&file).unwrap();
        assert_eq!(Measurements::load(&file, "a CPU"), Some(known));
        assert_eq!(Measurements::load(&file, "another CPU"), None);
        std::fs::write(&file, "{").unwrap();
        assert_eq!(Measurements::load(&file, "a CPU"), None, "a damaged file is measured again");
    }
}
