//! Chooses what computes each network on a CPU, by measuring on this machine: which library and precision is fastest
//! differs between CPUs by factors of two to four, in both directions.
//!
//! Each network runs a few times on a built-in test picture in every backend and precision that exists here. Of those whose
//! outputs agree with ONNX Runtime's in f32, the one with the shortest run is chosen. The result is kept in a file until
//! the CPU, the library or a network changes. Face detection is not measured: its input has another shape for each photo,
//! and OpenVINO would prepare memory for every one.

mod measurements;
mod picture;

use std::path::Path;
use std::time::{Duration, Instant};

use photofinish_kernels::image::tensor::Tensor;
use photofinish_zoo::{NetworkFile, QuantisedFile};

pub use self::measurements::{Measurement, Measurements};
use crate::onnx::cpu::Cpu;
use crate::onnx::runtime::{Backend, Precision, Runtime};
use crate::onnx::session::{Items, Network, Workload};
use crate::traits::ModelError;

/// Runs that are not counted: the first allocates memory.
const WARM_UP_RUNS: usize = 1;

/// Counted runs; the shortest counts, because other work on the machine only makes runs longer.
const RUNS: usize = 5;

/// Letters of a digest that tell the files of a network apart.
const DIGEST_LETTERS: usize = 12;

/// The precision an operator configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrecisionChoice {
    /// The fastest on this CPU.
    Auto,
    /// This one under OpenVINO.
    Always(Precision),
}

/// What computes the networks whose inputs have one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backends {
    /// The face embedder.
    pub embedder: Backend,
    /// The text detector, for torsos and for full frames.
    pub text_detector: Backend,
    /// The light text detector.
    pub light_text_detector: Backend,
    /// The text recogniser.
    pub recogniser: Backend,
    /// The bib gate.
    pub bib_gate: Backend,
}

impl Backends {
    /// The same backend for all networks.
    pub const fn all(backend: Backend) -> Self {
        Self {
            embedder: backend,
            text_detector: backend,
            light_text_detector: backend,
            recogniser: backend,
            bib_gate: backend,
        }
    }
}

/// A network to measure.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Name and version.
    pub identity: String,
    /// The model file.
    pub file: NetworkFile,
    /// The file of the same network with 8-bit integers, if there is one.
    pub quantised: Option<QuantisedFile>,
    /// What it is used for.
    pub workload: Workload,
    /// The shape of its input: planes, rows, columns.
    pub input_shape: [usize; 3],
    /// The input values of a black and of a white pixel.
    pub black_and_white: [f32; 2],
}

/// Refuses integers where sums of their products overflow; other precisions are only slow where a CPU lacks them.
///
/// # Errors
/// When the CPU lacks VNNI instructions.
pub fn check_precision(precision: Precision, cpu: &Cpu) -> Result<(), ModelError> {
    match precision {
        Precision::Int8 if !cpu.precisions.contains(&precision) => Err(ModelError::Runtime(
            "the precision int8 needs a CPU with VNNI instructions, which this one has not; use auto".into(),
        )),
        _ => Ok(()),
    }
}

/// Returns the backends that can compute a network here, ONNX Runtime first.
fn list_backends(has_openvino: bool, cpu: &Cpu, candidate: &Candidate) -> Vec<Backend> {
    let suits = |precision: &Precision| match precision {
        // Sums in the text detector's head exceed the range of f16, in some pictures.
        Precision::F16 => !matches!(candidate.workload, Workload::TextDetection { .. }),
        Precision::Int8 => candidate.quantised.is_some(),
        Precision::F32 | Precision::Bf16 => true,
    };
    let mut backends = vec![Backend::OnnxRuntime];
    if has_openvino {
        let native = cpu.precisions.iter().copied().filter(suits);
        backends.extend([Precision::F32].into_iter().chain(native).map(Backend::OpenVino));
    }
    backends
}

/// Returns the measurements in `cache` if they were made with this CPU, library and networks; otherwise measures, and
/// writes them there.
///
/// # Errors
/// When ONNX Runtime cannot load or run a network. A backend that cannot is left out.
pub fn measure_or_load(
    runtime: &Runtime,
    candidates: &[Candidate],
    cache: Option<&Path>,
) -> Result<Measurements, ModelError> {
    let cpu = Cpu::detect();
    if let Some(known) = cache.and_then(|file| load(runtime, candidates, file)) {
        return Ok(known);
    }
    let key = describe_circumstances(runtime, &cpu, candidates);
    let started = Instant::now();
    let mut measurements = Measurements::new(key);
    for candidate in candidates {
        let backends = list_backends(runtime.has_openvino(), &cpu, candidate);
        measure_network(runtime, candidate, &backends, &mut measurements)?;
    }
    log(&measurements);
    tracing::info!(seconds = started.elapsed().as_secs_f64(), "chose the fastest backend of each network");
    if let Some(file) = cache
        && let Err(error) = measurements.save(file)
    {
        tracing::warn!(file = %file.display(), error = %error, "failed to keep the measurements, the next start measures again");
    }
    Ok(measurements)
}

/// Returns the measurements in `cache` if they were made with this CPU, library and networks.
pub fn load(runtime: &Runtime, candidates: &[Candidate], cache: &Path) -> Option<Measurements> {
    Measurements::load(cache, &describe_circumstances(runtime, &Cpu::detect(), candidates))
}

/// Says in the log what was measured, and what could not be.
pub fn log(measurements: &Measurements) {
    for failure in measurements.failures() {
        tracing::warn!(network = failure, "failed to measure a backend, it is not used");
    }
    for line in measurements.lines() {
        tracing::info!(network = line, "measured a network");
    }
}

/// Everything that a measurement depends on.
fn describe_circumstances(runtime: &Runtime, cpu: &Cpu, candidates: &[Candidate]) -> String {
    let describe = |candidate: &Candidate| match &candidate.quantised {
        Some(quantised) => {
            let digest = quantised.sha256.get(..DIGEST_LETTERS).unwrap_or(&quantised.sha256);
            format!("{} (int8 {digest})", candidate.identity)
        }
        None => candidate.identity.clone(),
    };
    let networks: Vec<String> = candidates.iter().map(describe).collect();
    format!("{} {}, {}, {}", cpu.name, cpu.generation, runtime.describe_library(), networks.join(", "))
}

fn measure_network(
    runtime: &Runtime,
    candidate: &Candidate,
    backends: &[Backend],
    measurements: &mut Measurements,
) -> Result<(), ModelError> {
    let [planes, rows, columns] = candidate.input_shape;
    let mut input = Tensor::default();
    input.reshape([1, planes, rows, columns]);
    picture::draw(&mut input, candidate.black_and_white);
    let mut reference: Option<Vec<f32>> = None;
    for &backend in backends {
        let result = run_network(runtime, candidate, backend, &input);
        let (time, output) = match (result, &reference) {
            (Ok(run), _) => run,
            (Err(error), None) => return Err(error),
            (Err(error), Some(_)) => {
                measurements.add_failure(format!("{}: {backend}: {error}", candidate.identity));
                continue;
            }
        };
        let reference = reference.get_or_insert_with(|| output.clone());
        measurements.add(Measurement {
            network: candidate.identity.clone(),
            backend,
            microseconds: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
            cosine: cosine(reference, &output),
        });
    }
    Ok(())
}

/// Returns the time of the shortest run and the first output.
fn run_network(
    runtime: &Runtime,
    candidate: &Candidate,
    backend: Backend,
    input: &Tensor,
) -> Result<(Duration, Vec<f32>), ModelError> {
    let file = match (backend, &candidate.quantised) {
        (Backend::OpenVino(Precision::Int8), Some(quantised)) => &quantised.file,
        _ => &candidate.file,
    };
    let mut network = Network::load(runtime, file, candidate.workload, Items::One, backend)?;
    let mut output = Vec::new();
    let mut shortest = Duration::MAX;
    for run in 0..WARM_UP_RUNS + RUNS {
        let started = Instant::now();
        let outputs = network.run(input)?;
        if run >= WARM_UP_RUNS {
            shortest = shortest.min(started.elapsed());
        }
        output = outputs.first()?.values.to_vec();
    }
    Ok((shortest, output))
}

/// Cosine of two outputs; 0 when they differ in length.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if a.len() == b.len() && lengths > 0.0 { dot(a, b) / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_measured_in_what_the_library_the_cpu_and_its_files_have() {
        use Precision::{Bf16, F16, F32, Int8};
        let file = |name: &str| NetworkFile::Path(name.into());
        let floats = Candidate {
            identity: "network@1".into(),
            file: file("network.onnx"),
            quantised: None,
            workload: Workload::Embedding,
            input_shape: [3, 128, 128],
            black_and_white: [0.0, 255.0],
        };
        let quantised = QuantisedFile { file: file("network_int8.onnx"), sha256: "0".repeat(64) };
        let integers = Candidate { quantised: Some(quantised), ..floats.clone() };
        let cpu = Cpu { precisions: vec![Bf16, F16, Int8], ..Cpu::detect() };
        let backends = |precisions: &[Precision]| -> Vec<Backend> {
            let openvino = precisions.iter().copied().map(Backend::OpenVino);
            [Backend::OnnxRuntime].into_iter().chain(openvino).collect()
        };
        assert_eq!(list_backends(true, &cpu, &integers), backends(&[F32, Bf16, F16, Int8]));
        assert_eq!(list_backends(true, &cpu, &floats), backends(&[F32, Bf16, F16]));
        let workload = Workload::TextDetection { width: 256, height: 384 };
        let detector = Candidate { workload, ..integers.clone() };
        assert_eq!(list_backends(true, &cpu, &detector), backends(&[F32, Bf16, Int8]));
        let old = Cpu { precisions: Vec::new(), ..cpu.clone() };
        assert_eq!(list_backends(true, &old, &integers), backends(&[F32]));
        assert_eq!(list_backends(false, &cpu, &integers), backends(&[]));
    }

    #[test]
    fn integers_are_refused_where_they_would_overflow() {
        let old = Cpu { precisions: Vec::new(), ..Cpu::detect() };
        let message = check_precision(Precision::Int8, &old).unwrap_err().to_string();
        assert!(message.contains("VNNI"), "{message}");
        assert!(check_precision(Precision::Bf16, &old).is_ok());
        let new = Cpu { precisions: vec![Precision::Int8], ..old };
        assert!(check_precision(Precision::Int8, &new).is_ok());
    }

    #[test]
    fn outputs_of_other_lengths_or_without_numbers_do_not_agree() {
        assert!((cosine(&[3.0, 4.0], &[6.0, 8.0]) - 1.0).abs() < 1e-9);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 1.0]), 0.0);
        assert_eq!(cosine(&[1.0], &[1.0, 1.0]), 0.0);
        assert_eq!(cosine(&[f32::NAN], &[1.0]), 0.0);
    }
}
