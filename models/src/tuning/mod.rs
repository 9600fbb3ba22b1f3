//! Chooses what computes each network, by measuring on this machine: which library and precision is fastest differs between CPUs
//! by factors of two to four, in both directions. On a GPU the precision alone is chosen.
//!
//! Each network runs on a built-in test picture in every backend and precision that exists here, all of them in turns, so that
//! other work on the machine slows none of them alone. Of those whose outputs agree with ONNX Runtime's in f32, the one with
//! the shortest run is chosen, and of two that are as fast the more exact one. The result is kept in a file until
//! the CPU or GPU, the library or a network changes. Face detection is not measured: its input has another shape for each photo,
//! and OpenVINO would prepare memory for every one.

mod measurements;
mod picture;

use std::path::Path;
use std::time::{Duration, Instant};

use photofinish_kernels::image::tensor::Tensor;
use photofinish_zoo::{ConvertedFile, NetworkFile};

pub use self::measurements::{Measurement, Measurements};
use crate::onnx::cpu::Cpu;
use crate::onnx::runtime::{Backend, Precision, Runtime};
use crate::onnx::session::{Items, Network, Workload};
use crate::traits::ModelError;

/// Counted runs of each backend at least, after one that allocates memory; the shortest counts, because other work on the
/// machine only makes runs longer.
const LEAST_RUNS: usize = 5;

/// Time for the runs of all backends of a network, unless so few runs take longer.
const TIME_FOR_RUNS: Duration = Duration::from_millis(150);

/// Letters of a digest that tell the files of a network apart.
const DIGEST_LETTERS: usize = 12;

/// The precision an operator configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrecisionChoice {
    /// The fastest on this device.
    Auto,
    /// This one, under OpenVINO or, where it is f16, on a GPU; f32 on others.
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

    /// OpenVINO in this precision, and in f32 for networks which it does not suit.
    pub fn in_precision(precision: Precision) -> Self {
        let text_precision = if precision == Precision::F16 { Precision::F32 } else { precision };
        let text_detector = Backend::OpenVino(text_precision);
        let all = Self::all(Backend::OpenVino(precision));
        Self { text_detector, light_text_detector: text_detector, ..all }
    }

    /// What computes on a GPU in this precision: in f32, but for f16 and the networks that have a file for it.
    pub fn on_gpu(precision: Precision) -> Self {
        let chosen = match precision {
            Precision::F16 => Backend::OnnxRuntimeF16,
            Precision::F32 | Precision::Bf16 | Precision::Int8 => Backend::OnnxRuntime,
        };
        Self { embedder: chosen, recogniser: chosen, ..Self::all(Backend::OnnxRuntime) }
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
    pub quantised: Option<ConvertedFile>,
    /// The file of the same network with floats of 16 bits, if there is one that may be chosen here.
    pub halved: Option<ConvertedFile>,
    /// What it is used for.
    pub workload: Workload,
    /// The shape of its input: items, planes, rows, columns.
    pub input_shape: [usize; 4],
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
    backends.extend(candidate.halved.is_some().then_some(Backend::OnnxRuntimeF16));
    backends
}

/// Returns the measurements in `cache` if they were made with this device, library and networks; otherwise measures, and
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

/// Returns the measurements in `cache` if they were made with this device, library and networks.
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
    let describe = |candidate: &Candidate| {
        let [items, _, rows, columns] = candidate.input_shape;
        let items = if items == 1 { String::new() } else { format!("{items}x") };
        let converted = [("int8", &candidate.quantised), ("f16", &candidate.halved)];
        let digests = converted.into_iter().filter_map(|(precision, converted)| {
            let sha256 = &converted.as_ref()?.sha256;
            Some(format!(" ({precision} {})", sha256.get(..DIGEST_LETTERS).unwrap_or(sha256)))
        });
        format!("{} {items}{columns}x{rows}{}", candidate.identity, digests.collect::<String>())
    };
    let networks: Vec<String> = candidates.iter().map(describe).collect();
    let device = runtime.describe_gpu().unwrap_or_else(|| format!("{} {}", cpu.name, cpu.generation));
    format!("{device}, {}, {}", runtime.describe_library(), networks.join(", "))
}

fn measure_network(
    runtime: &Runtime,
    candidate: &Candidate,
    backends: &[Backend],
    measurements: &mut Measurements,
) -> Result<(), ModelError> {
    let mut input = Tensor::default();
    input.reshape(candidate.input_shape);
    picture::draw(&mut input, candidate.black_and_white);
    let mut opened: Vec<OpenBackend> = Vec::with_capacity(backends.len());
    for &backend in backends {
        match OpenBackend::new(runtime, candidate, backend, &input) {
            Ok(open) => opened.push(open),
            Err(error) if opened.is_empty() => return Err(error),
            Err(error) => {
                measurements.add_failure(format!("{}: {backend}: {error}", candidate.identity));
            }
        }
    }
    run_in_turns(&mut opened, TIME_FOR_RUNS, |open| open.time(&input))?;
    let reference = opened.first().map(|open| open.output.clone()).unwrap_or_default();
    for OpenBackend { backend, output, shortest, .. } in opened {
        measurements.add(Measurement {
            network: candidate.identity.clone(),
            backend,
            microseconds: u64::try_from(shortest.as_micros()).unwrap_or(u64::MAX),
            cosine: cosine(&reference, &output),
        });
    }
    Ok(())
}

/// Runs all backends one after the other, again and again for this time, and [`LEAST_RUNS`] times at least.
fn run_in_turns<B>(
    backends: &mut [B],
    time_for_runs: Duration,
    mut run: impl FnMut(&mut B) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let started = Instant::now();
    let mut runs = 0;
    while runs < LEAST_RUNS || started.elapsed() < time_for_runs {
        backends.iter_mut().try_for_each(&mut run)?;
        runs += 1;
    }
    Ok(())
}

/// A network in one backend, to be measured.
struct OpenBackend {
    backend: Backend,
    network: Network,
    output: Vec<f32>,
    shortest: Duration,
}

impl OpenBackend {
    /// Loads the network and runs it once.
    fn new(
        runtime: &Runtime,
        candidate: &Candidate,
        backend: Backend,
        input: &Tensor,
    ) -> Result<Self, ModelError> {
        let converted = match backend {
            Backend::OpenVino(Precision::Int8) => candidate.quantised.as_ref(),
            Backend::OnnxRuntimeF16 => candidate.halved.as_ref(),
            Backend::OnnxRuntime | Backend::OpenVino(_) => None,
        };
        let file = converted.map_or(&candidate.file, |converted| &converted.file);
        let items = if runtime.batches() { Items::Many } else { Items::One };
        let mut network = Network::load(runtime, file, candidate.workload, items, backend)?;
        let output = network.run(input)?.first()?.values.to_vec();
        Ok(Self { backend, network, output, shortest: Duration::MAX })
    }

    fn time(&mut self, input: &Tensor) -> Result<(), ModelError> {
        let started = Instant::now();
        self.network.run(input)?;
        self.shortest = self.shortest.min(started.elapsed());
        Ok(())
    }
}

/// Cosine of two outputs; 0 when they differ in length, and where a number has exceeded the range of its precision.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if a.len() == b.len() && lengths > 0.0 && lengths.is_finite() { dot(a, b) / lengths } else { 0.0 }
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
            halved: None,
            workload: Workload::Embedding,
            input_shape: [1, 3, 128, 128],
            black_and_white: [0.0, 255.0],
        };
        let converted = |name: &str| Some(ConvertedFile { file: file(name), sha256: "0".repeat(64) });
        let integers = Candidate { quantised: converted("network_int8.onnx"), ..floats.clone() };
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
        let halved = Candidate { halved: converted("network_f16.onnx"), ..floats };
        assert_eq!(list_backends(false, &old, &halved), [Backend::OnnxRuntime, Backend::OnnxRuntimeF16]);
    }

    /// Else what the machine does meanwhile would slow one backend and not the next.
    #[test]
    fn runs_of_all_backends_take_turns() {
        let mut order = Vec::new();
        let mut backends = ["onnxruntime", "openvino-f32", "openvino-bf16"];
        let run = |backend: &mut &'static str| {
            order.push(*backend);
            Ok(())
        };
        run_in_turns(&mut backends, Duration::ZERO, run).unwrap();
        assert_eq!(order, backends.repeat(LEAST_RUNS));
        let failure = || ModelError::Runtime("it cannot run".into());
        assert!(run_in_turns(&mut backends, Duration::ZERO, |_| Err(failure())).is_err());
    }

    #[test]
    fn text_detectors_stay_in_f32_where_f16_is_asked_for() {
        let (half, full) = (Backend::OpenVino(Precision::F16), Backend::OpenVino(Precision::F32));
        let Backends { embedder, text_detector, light_text_detector, recogniser, bib_gate } =
            Backends::in_precision(Precision::F16);
        assert_eq!([embedder, recogniser, bib_gate], [half; 3]);
        assert_eq!([text_detector, light_text_detector], [full; 2]);
        let bf16 = Backend::OpenVino(Precision::Bf16);
        assert_eq!(Backends::in_precision(Precision::Bf16), Backends::all(bf16));
        let (all, f16) = (Backends::all(Backend::OnnxRuntime), Backend::OnnxRuntimeF16);
        let on_gpu = Backends { embedder: f16, recogniser: f16, ..all };
        assert_eq!(Backends::on_gpu(Precision::F16), on_gpu);
        assert_eq!(Backends::on_gpu(Precision::Bf16), all, "of a CPU alone");
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
        assert_eq!(cosine(&[1.0, 1.0], &[1.0, f32::INFINITY]), 0.0, "JSON has no other number for it");
    }
}
