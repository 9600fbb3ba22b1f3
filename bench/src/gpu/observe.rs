//! Runs the networks on one device over some pictures and writes the results as JSON. Each device needs a process of its
//! own, because the runtime allows one environment per process.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use photofinish_kernels::geometry::{Point, Rect};
use photofinish_kernels::image::frame::{Frame, Picture};
use photofinish_models::onnx::runtime::{DeviceChoice, Precision};
use photofinish_models::traits::{
    BibPattern, BibText, FaceBox, FaceCrop, ModelError, ModelFactory, ReadRequest,
};
use serde::{Deserialize, Serialize};

use crate::eval::gallery::load_working_frame;
use crate::networks;
use crate::paths::InputPaths;
use crate::service::album::list_jpegs;

/// Defaults of the pipeline.
const FACE_LONG_SIDE: u32 = 640;
const DEFAULT_PATTERN: &str = "[A-Z]{0,2}[0-9]{2,5}[A-Z]?";

/// Options of one observation.
#[derive(Clone, Debug, clap::Args)]
pub struct ObserveOptions {
    /// `cpu`, `cuda` or `wgpu`.
    #[arg(long)]
    pub device: ObservedDevice,
    /// A folder of JPEG files.
    #[arg(long, value_name = "DIR")]
    pub photos: PathBuf,
    /// Most photos to read.
    #[arg(long)]
    pub limit: usize,
    /// Readings of another device: its faces are then embedded and read, so that each network is compared alone.
    #[arg(long, value_name = "FILE")]
    pub before: Option<PathBuf>,
    /// Output file.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
}

/// Where the networks run.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum ObservedDevice {
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU, or an error.
    Cuda,
    /// A GPU with Vulkan, or software that is one, or an error.
    Wgpu,
}

/// Results of a device: faces and texts by picture, embeddings of the faces of all pictures in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceReadings {
    /// Description of the runtime.
    pub runtime: String,
    /// Faces by picture.
    pub faces: Vec<Vec<ObservedFace>>,
    /// Embeddings of the faces, or of those of the readings before.
    pub vectors: Vec<Vec<f32>>,
    /// Texts by picture.
    pub texts: Vec<Vec<ObservedText>>,
    /// The networks one item at a time, and in batches.
    pub speeds: Vec<NetworkSpeed>,
    /// A line for each network and precision that a GPU has a choice of: time, agreement with f32, and which is chosen.
    pub precisions: Vec<String>,
}

/// Pictures per second of a network by itself, with what it needs of the processor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkSpeed {
    /// What it does.
    pub network: String,
    /// One picture, or face, in each call.
    pub one_by_one: f64,
    /// As many as suit the device.
    pub in_batches: f64,
}

/// An observed face.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ObservedFace {
    /// Left, top, right, bottom.
    pub sides: [f32; 4],
    /// In the order of the detector.
    pub landmarks: [[f32; 2]; 5],
    /// Score, 0 to 1.
    pub score: f32,
}

/// An observed text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ObservedText {
    /// Text as read.
    pub text: String,
    /// Confidence, 0 to 1.
    pub confidence: f32,
    /// Whether it matches the default pattern.
    pub is_bib: bool,
}

impl ObservedFace {
    /// Returns its box.
    pub fn rect(&self) -> Rect {
        let [left, top, right, bottom] = self.sides;
        Rect { left, top, right, bottom }
    }

    fn from_face_box(found: &FaceBox) -> Self {
        let Rect { left, top, right, bottom } = found.rect;
        let landmarks = found.landmarks.map(|point| [point.x, point.y]);
        Self { sides: [left, top, right, bottom], landmarks, score: found.score }
    }

    fn to_face_box(&self) -> FaceBox {
        let landmarks = self.landmarks.map(|[x, y]| Point { x, y });
        FaceBox { rect: self.rect(), landmarks, score: self.score }
    }
}

/// Observes the photos and writes the readings.
///
/// # Errors
/// When the device cannot be used or a file cannot be read or written.
pub fn run(options: &ObserveOptions) -> anyhow::Result<()> {
    let device = match options.device {
        ObservedDevice::Cpu => DeviceChoice::Cpu,
        ObservedDevice::Cuda => DeviceChoice::Cuda,
        ObservedDevice::Wgpu => DeviceChoice::Wgpu,
    };
    let before = options.before.as_deref().map(load_readings).transpose()?;
    // The light text detector is of the CPU alone, and finds other texts in a few cases: what is compared does without it.
    let models = networks::open(&options.paths, device, Precision::F32)??.with_light_pass(false);
    let files = list_jpegs(&options.photos)?;
    let pictures =
        files.iter().take(options.limit).map(|file| load_working_frame(&options.photos.join(file)));
    let pictures = pictures.collect::<anyhow::Result<Vec<Picture>>>()?;
    let mut readings = observe_pictures(&models, &pictures, before.as_ref())?;
    readings.speeds = measure_speeds(&models, &pictures, &readings)?;
    readings.runtime = networks::describe_runtime(&models, &options.paths)?;
    if models.runtime().is_gpu() && models.has_choice() {
        let measured = models.measure(None)?;
        readings.precisions =
            measured.lines().into_iter().chain(measured.failures().iter().cloned()).collect();
    }
    std::fs::write(&options.out, serde_json::to_vec(&readings)?)
        .with_context(|| format!("writing {}", options.out.display()))
}

/// Loads readings that [`run`] wrote.
///
/// # Errors
/// When the file is missing or contains no readings.
pub fn load_readings(path: &Path) -> anyhow::Result<DeviceReadings> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{} contains no readings", path.display()))
}

/// Runs all networks over the pictures, in the device's batch sizes.
///
/// # Errors
/// When a network fails.
pub fn observe_pictures(
    models: &dyn ModelFactory,
    pictures: &[Picture],
    before: Option<&DeviceReadings>,
) -> anyhow::Result<DeviceReadings> {
    let found = detect_faces(models, pictures)?;
    let faces: Vec<Vec<ObservedFace>> =
        found.iter().map(|faces| faces.iter().map(ObservedFace::from_face_box).collect()).collect();
    let reference_faces = before.map_or(found, |before| {
        before.faces.iter().map(|faces| faces.iter().map(ObservedFace::to_face_box).collect()).collect()
    });
    let vectors = embed_faces(models, pictures, &reference_faces)?;
    let texts = read_texts(models, pictures, &reference_faces)?;
    Ok(DeviceReadings { faces, vectors, texts, ..DeviceReadings::default() })
}

/// Measures each network after a call that prepares it for the shapes of its inputs.
fn measure_speeds(
    models: &dyn ModelFactory,
    pictures: &[Picture],
    readings: &DeviceReadings,
) -> anyhow::Result<Vec<NetworkSpeed>> {
    let to_boxes = |faces: &Vec<ObservedFace>| faces.iter().map(ObservedFace::to_face_box).collect();
    let faces: Vec<Vec<FaceBox>> = readings.faces.iter().map(to_boxes).collect();
    let sizes = models.batch_sizes();
    let mut detector = models.create_face_detector()?;
    let mut embedder = models.create_face_embedder()?;
    let mut reader = models.create_bib_reader()?;
    let pattern = BibPattern::new(DEFAULT_PATTERN)?;
    let (frames, crops) = (list_frames(pictures), list_crops(pictures, &faces));
    let requests = list_requests(pictures, &faces, &pattern);
    let speed = |network: &str, most: usize, run: &mut dyn FnMut(usize) -> Result<(), ModelError>| {
        let mut rate = |items: usize| -> anyhow::Result<f64> {
            run(items)?;
            let start = Instant::now();
            run(items)?;
            Ok(pictures.len() as f64 / start.elapsed().as_secs_f64())
        };
        let one_by_one = rate(1)?;
        let in_batches = if most > 1 { rate(most)? } else { one_by_one };
        anyhow::Ok(NetworkSpeed { network: network.to_owned(), one_by_one, in_batches })
    };
    Ok(vec![
        speed("face detector", sizes.detect, &mut |items| {
            frames.chunks(items).try_for_each(|part| detector.detect(part, FACE_LONG_SIDE).map(drop))
        })?,
        speed("face embedder", sizes.embed, &mut |items| {
            crops.chunks(items).try_for_each(|part| embedder.embed(part).map(drop))
        })?,
        speed("bib reader", sizes.read, &mut |items| {
            requests.chunks(items).try_for_each(|part| reader.read(part).map(drop))
        })?,
    ])
}

fn list_frames(pictures: &[Picture]) -> Vec<Frame<'_>> {
    pictures.iter().map(Picture::frame).collect()
}

fn list_crops<'p>(pictures: &'p [Picture], faces: &[Vec<FaceBox>]) -> Vec<FaceCrop<'p>> {
    let mut crops = Vec::new();
    for (picture, faces) in pictures.iter().zip(faces) {
        crops.extend(faces.iter().map(|face| FaceCrop::new(picture.frame(), face.landmarks)));
    }
    crops
}

fn list_requests<'p>(
    pictures: &'p [Picture],
    faces: &'p [Vec<FaceBox>],
    pattern: &'p BibPattern,
) -> Vec<ReadRequest<'p>> {
    let request = |(picture, faces): (&'p Picture, &'p Vec<FaceBox>)| ReadRequest {
        frame: picture.frame(),
        faces,
        pattern,
    };
    pictures.iter().zip(faces).map(request).collect()
}

fn detect_faces(models: &dyn ModelFactory, pictures: &[Picture]) -> anyhow::Result<Vec<Vec<FaceBox>>> {
    let mut detector = models.create_face_detector()?;
    let mut faces = Vec::new();
    for batch in list_frames(pictures).chunks(models.batch_sizes().detect.max(1)) {
        faces.extend(detector.detect(batch, FACE_LONG_SIDE)?);
    }
    Ok(faces)
}

fn embed_faces(
    models: &dyn ModelFactory,
    pictures: &[Picture],
    faces: &[Vec<FaceBox>],
) -> anyhow::Result<Vec<Vec<f32>>> {
    let mut embedder = models.create_face_embedder()?;
    let mut vectors = Vec::new();
    for batch in list_crops(pictures, faces).chunks(models.batch_sizes().embed.max(1)) {
        vectors.extend(embedder.embed(batch)?.into_iter().map(|face| face.vector));
    }
    Ok(vectors)
}

fn read_texts(
    models: &dyn ModelFactory,
    pictures: &[Picture],
    faces: &[Vec<FaceBox>],
) -> anyhow::Result<Vec<Vec<ObservedText>>> {
    let mut reader = models.create_bib_reader()?;
    let pattern = BibPattern::new(DEFAULT_PATTERN)?;
    let mut texts = Vec::new();
    for batch in list_requests(pictures, faces, &pattern).chunks(models.batch_sizes().read.max(1)) {
        for found in reader.read(batch)? {
            let text = |t: BibText| ObservedText { text: t.text, confidence: t.confidence, is_bib: t.is_bib };
            texts.push(found.into_iter().map(text).collect());
        }
    }
    Ok(texts)
}
