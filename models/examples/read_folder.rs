//! Reads the bibs of a folder of photos and compares them with labels: recall, precision, CPU time per step.
//!
//! `read_folder PHOTOS BIBS.csv MODELS LIBONNXRUNTIME [bf16|int8] [gate] [--no-light-pass] [--faces SIDE] [--out F.json]`: PHOTOS
//! is the folder that the `file` column of the csv is relative to; `gate` has the bib gate decide about all torsos; without the
//! light pass the text detector looks at all that are read; faces are detected at a long side of SIDE, 640 by default. Photos
//! are the working frames as they are. A photo's result is the set of its accepted bibs; leading zeros do not count. Precision is a lower bound where not every readable bib is labelled.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use image::{DynamicImage, ImageDecoder, ImageReader};
use photofinish_kernels::image::frame::Picture;
use photofinish_models::factory::{BibGateChoice, ZooModels};
use photofinish_models::onnx::runtime::{DeviceChoice, Precision, Runtime, RuntimeSettings};
use photofinish_models::traits::{BibPattern, BibReader, BibText, FaceDetector, ModelFactory, ReadRequest};
use photofinish_models::tuning::PrecisionChoice;
use rustix::time::{ClockId, clock_gettime};
use tracing::span::Id;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// The pattern of albums that set none.
const PATTERN: &str = "[A-Z]{0,2}[0-9]{2,5}[A-Z]?";
/// Long side of the frame for face detection, in pixels, unless the arguments say another.
const FACE_LONG_SIDE: u32 = 640;
/// Least confidence of an accepted bib.
const ACCEPT_CONFIDENCE: f32 = 0.9;

fn main() -> Result<(), Box<dyn Error>> {
    let run = Arguments::parse()?;
    let steps = StepTimes::default();
    let only_models = filter_fn(|metadata| metadata.target().starts_with("photofinish_models"));
    tracing::subscriber::set_global_default(
        Registry::default().with(steps.clone().with_filter(only_models)),
    )?;

    let runtime = Runtime::open(&RuntimeSettings {
        library: run.library.clone(),
        device: DeviceChoice::Auto,
        ordinal: 0,
        kernel_cache: None,
    })?;
    println!("{runtime}");
    let models = ZooModels::open(Arc::new(runtime), run.models.clone())?
        .with_bib_gate(run.bib_gate)
        .with_light_pass(run.light_pass)
        .with_precision(PrecisionChoice::Always(run.precision), None)?;
    let mut bench = FolderReader {
        detector: models.create_face_detector()?,
        reader: models.create_bib_reader()?,
        pattern: BibPattern::new(PATTERN)?,
        face_side: run.face_side,
    };

    let labels = load_labels(&run.labels)?;
    if let Some(first) = labels.first() {
        // The first run of a network is slow and is not measured.
        bench.read(&load_picture(&run.photos.join(&first.file))?)?;
        steps.clear();
    }
    let mut scores = BTreeMap::<&str, Score>::new();
    let mut written = serde_json::Map::new();
    for label in &labels {
        let texts = bench.read(&load_picture(&run.photos.join(&label.file))?)?;
        let accepted = texts.iter().filter(|text| text.is_bib && text.confidence >= ACCEPT_CONFIDENCE);
        let read = accepted.map(|text| trim_zeros(&text.text)).collect();
        for part in ["all", label.split()] {
            scores.entry(part).or_default().count(&read, &label.bibs);
        }
        written.insert(label.file.clone(), texts.iter().map(to_json).collect());
    }
    for (part, score) in &scores {
        println!("{part:>5} {score}");
    }
    steps.print(labels.len());
    println!("{:?}", bench.reader.take_counts());
    if let Some(out) = run.out {
        std::fs::write(out, serde_json::to_string_pretty(&written)?)?;
    }
    Ok(())
}

struct Arguments {
    photos: PathBuf,
    labels: PathBuf,
    models: PathBuf,
    library: PathBuf,
    precision: Precision,
    bib_gate: BibGateChoice,
    light_pass: bool,
    face_side: u32,
    out: Option<PathBuf>,
}

impl Arguments {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut words = std::env::args().skip(1);
        let mut next =
            || words.next().map(PathBuf::from).ok_or("see the first lines of this file for arguments");
        let (photos, labels, models, library) = (next()?, next()?, next()?, next()?);
        let (precision, bib_gate, face_side) = (Precision::F32, BibGateChoice::Small, FACE_LONG_SIDE);
        let (light_pass, out) = (true, None);
        let mut run =
            Self { photos, labels, models, library, precision, bib_gate, light_pass, face_side, out };
        while let Some(word) = words.next() {
            match word.as_str() {
                "bf16" => run.precision = Precision::Bf16,
                "int8" => run.precision = Precision::Int8,
                "--no-light-pass" => run.light_pass = false,
                "gate" => run.bib_gate = BibGateChoice::All,
                "--faces" => run.face_side = words.next().ok_or("--faces needs a number")?.parse()?,
                "--out" => run.out = words.next().map(PathBuf::from),
                _ => return Err(format!("unknown argument {word}").into()),
            }
        }
        Ok(run)
    }
}

/// The networks that are measured.
struct FolderReader {
    detector: Box<dyn FaceDetector>,
    reader: Box<dyn BibReader>,
    pattern: BibPattern,
    face_side: u32,
}

impl FolderReader {
    fn read(&mut self, photo: &Picture) -> Result<Vec<BibText>, Box<dyn Error>> {
        let frame = photo.frame();
        let faces = {
            let _step = tracing::debug_span!(target: "photofinish_models", "faces").entered();
            self.detector.detect(&[frame], self.face_side)?
        };
        let _step = tracing::debug_span!(target: "photofinish_models", "bibs").entered();
        let request = ReadRequest { frame, faces: &faces[0], pattern: &self.pattern };
        Ok(self.reader.read(&[request])?.remove(0))
    }
}

fn load_picture(path: &Path) -> Result<Picture, Box<dyn Error>> {
    let mut decoder = ImageReader::open(path)?.with_guessed_format()?.into_decoder()?;
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    let rgb = image.into_rgb8();
    let (width, height) = rgb.dimensions();
    Ok(Picture::new(rgb.into_raw(), width, height)?)
}

/// The labelled bibs of a photo.
struct LabelledPhoto {
    file: String,
    bibs: BTreeSet<String>,
}

impl LabelledPhoto {
    /// Returns the photo's part of the data: the constants of the reader were chosen on `tune`, not on `held`.
    fn split(&self) -> &'static str {
        let stem = Path::new(&self.file).file_stem().unwrap_or_default().to_string_lossy();
        let number = stem.rsplit('_').next().and_then(|digits| digits.parse::<u32>().ok());
        let is_held = self.file.contains("set2") && number.is_some_and(|number| number % 2 == 1);
        if is_held { "held" } else { "tune" }
    }
}

fn load_labels(path: &Path) -> Result<Vec<LabelledPhoto>, Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let label = |line: &str| {
        let mut columns = line.split(',');
        let file = columns.next().unwrap_or_default().to_owned();
        let bibs = columns.next().unwrap_or_default().split_whitespace().map(trim_zeros).collect();
        LabelledPhoto { file, bibs }
    };
    Ok(text.lines().skip(1).map(label).collect())
}

fn trim_zeros(bib: &str) -> String {
    let short = bib.trim_start_matches('0');
    if short.is_empty() { bib } else { short }.to_owned()
}

fn to_json(text: &BibText) -> serde_json::Value {
    let corners: Vec<_> = text.quad.0.iter().map(|corner| [corner.x, corner.y]).collect();
    serde_json::json!({ "text": text.text, "conf": text.confidence, "is_bib": text.is_bib, "quad": corners })
}

#[derive(Default)]
struct Score {
    right: usize,
    wrong: usize,
    missed: usize,
}

impl Score {
    fn count(&mut self, read: &BTreeSet<String>, labelled: &BTreeSet<String>) {
        self.right += read.intersection(labelled).count();
        self.wrong += read.difference(labelled).count();
        self.missed += labelled.difference(read).count();
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ratio = |whole: usize| self.right as f64 / whole.max(1) as f64;
        let (recall, precision) = (ratio(self.right + self.missed), ratio(self.right + self.wrong));
        let Self { right, wrong, missed } = self;
        write!(
            f,
            "recall {recall:.3} precision {precision:.3} ({right} right, {wrong} unlabelled, {missed} missed)"
        )
    }
}

/// CPU time of each span of the reader, by name. Measured for the process, which does nothing else, so that the runtime's
/// threads count.
#[derive(Clone, Default)]
struct StepTimes(Arc<Mutex<BTreeMap<&'static str, StepTime>>>);

#[derive(Clone, Copy, Default)]
struct StepTime {
    times: u32,
    process: Duration,
    thread: Duration,
}

struct CpuClocks {
    process: Duration,
    thread: Duration,
}

impl CpuClocks {
    fn now() -> Self {
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        Self { process: read(ClockId::ProcessCPUTime), thread: read(ClockId::ThreadCPUTime) }
    }
}

impl StepTimes {
    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn print(&self, photos: usize) {
        let per_photo_ms = |time: Duration| time.as_secs_f64() * 1e3 / photos.max(1) as f64;
        println!("per photo:      times  CPU ms (of this thread)");
        for (name, step) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let times = f64::from(step.times) / photos.max(1) as f64;
            println!(
                "{name:>14} {times:6.2} {:7.2} ({:.2})",
                per_photo_ms(step.process),
                per_photo_ms(step.thread)
            );
        }
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for StepTimes {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(CpuClocks::now());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let Some(entered) = span.extensions_mut().remove::<CpuClocks>() else { return };
        let now = CpuClocks::now();
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let step = steps.entry(span.name()).or_default();
        step.times += 1;
        step.process += now.process - entered.process;
        step.thread += now.thread - entered.thread;
    }
}
