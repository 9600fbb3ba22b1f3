//! CPU time of each step of a photo, in this process, one photo after the other: to find the slow steps. Calls the same
//! kernels and networks as the pipeline, with the same sizes; the command `cpu` measures the whole service.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use photofinish_kernels::image::frame::{Frame, Picture, Size};
use photofinish_kernels::resize::{Filter, ResizeTarget, Resizer};
use photofinish_models::onnx::runtime::{DeviceChoice, Precision};
use photofinish_models::traits::{
    BibPattern, BibReader, FaceCrop, FaceDetector, FaceEmbedder, ModelFactory, ReadRequest,
};
use turbojpeg::{Compressor, Decompressor, Image, PixelFormat, ScalingFactor, Subsamp};

use crate::networks;
use crate::paths::InputPaths;
use crate::process::own_cpu;
use crate::report::statistics::{median, to_milliseconds};
use crate::report::{OutputOptions, Report, Table};
use crate::service::album::list_jpegs;

/// Defaults of the pipeline; sides in pixels.
const WORKING_LONG_SIDE: u32 = 2048;
const THUMBNAIL_LONG_SIDE: u32 = 512;
const FACE_LONG_SIDE: u32 = 640;
const JPEG_QUALITY: i32 = 80;
const DEFAULT_PATTERN: &str = "[A-Z]{0,2}[0-9]{2,5}[A-Z]?";

/// A step that the pipeline has not: what its thumbnails would cost otherwise.
const BICUBIC_THUMBNAIL: &str = "(a bicubic thumbnail)";

/// Photos that are read first and not counted: networks prepare memory for each new shape.
const WARM_UP_PHOTOS: usize = 2;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct ReadingOptions {
    /// A folder of JPEG files.
    #[arg(long, value_name = "DIR")]
    pub photos: PathBuf,
    /// Most photos to read.
    #[arg(long, default_value_t = 40)]
    pub limit: usize,
    /// Text networks in bf16 where OpenVINO runs them.
    #[arg(long)]
    pub bf16: bool,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Runs the measurement.
///
/// # Errors
/// When the photos or the networks are not available.
pub fn run(options: &ReadingOptions) -> anyhow::Result<Report> {
    let precision = if options.bf16 { Precision::Bf16 } else { Precision::F32 };
    let models = networks::open(&options.paths, DeviceChoice::Cpu, precision)??;
    let files = list_jpegs(&options.photos)?;
    let mut steps = StepTimer::new(&models)?;
    for file in files.iter().take(WARM_UP_PHOTOS) {
        steps.process_photo(&options.photos.join(file))?;
    }
    steps.laps.clear();
    steps.found = FoundTotals::default();
    let files = &files[..files.len().min(options.limit)];
    for file in files {
        steps.process_photo(&options.photos.join(file))?;
    }
    let mut report = Report::new("reading", "CPU of each step, one photo after the other");
    report.versions.push(networks::describe_runtime(&models, &options.paths)?);
    report.tables.push(steps.to_table());
    report.notes = vec![format!(
        "{} photos, {:.2} faces and {:.2} texts in each; user and system time of the whole process.",
        files.len(),
        steps.found.faces as f64 / files.len() as f64,
        steps.found.texts as f64 / files.len() as f64,
    )];
    Ok(report)
}

#[derive(Default)]
struct FoundTotals {
    faces: usize,
    texts: usize,
}

/// Runs the steps and records their times.
struct StepTimer {
    baseline: photofinish_jpeg::Decoder,
    decoder: Decompressor,
    encoder: Compressor,
    resizer: Resizer,
    detector: Box<dyn FaceDetector>,
    embedder: Box<dyn FaceEmbedder>,
    reader: Box<dyn BibReader>,
    pattern: BibPattern,
    pixels: Vec<u8>,
    laps: BTreeMap<&'static str, Vec<f64>>,
    found: FoundTotals,
}

impl StepTimer {
    fn new(models: &dyn ModelFactory) -> anyhow::Result<Self> {
        let mut encoder = Compressor::new()?;
        encoder.set_quality(JPEG_QUALITY)?;
        encoder.set_subsamp(Subsamp::Sub2x2)?;
        Ok(Self {
            baseline: photofinish_jpeg::Decoder::new(),
            decoder: Decompressor::new()?,
            encoder,
            resizer: Resizer::default(),
            detector: models.create_face_detector()?,
            embedder: models.create_face_embedder()?,
            reader: models.create_bib_reader()?,
            pattern: BibPattern::new(DEFAULT_PATTERN)?,
            pixels: Vec::new(),
            laps: BTreeMap::new(),
            found: FoundTotals::default(),
        })
    }

    fn process_photo(&mut self, path: &Path) -> anyhow::Result<()> {
        let file = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let mut clock = own_cpu();
        let photo = self.decode(&file)?;
        self.record_lap("1 decode", &mut clock);
        let frame = self.shrink(photo.frame(), WORKING_LONG_SIDE, Filter::Bicubic);
        self.record_lap("2 resize to the preview", &mut clock);
        let thumbnail = self.shrink_to_thumbnail(frame.frame());
        self.record_lap("2 resize to the thumbnail", &mut clock);
        self.shrink(frame.frame(), THUMBNAIL_LONG_SIDE, Filter::Bicubic);
        self.record_lap(BICUBIC_THUMBNAIL, &mut clock);
        self.encode(frame.frame())?;
        self.encode(thumbnail.frame())?;
        self.record_lap("3 encode", &mut clock);
        let faces = self.detector.detect(&[frame.frame()], FACE_LONG_SIDE)?.pop().unwrap_or_default();
        self.record_lap("4 detect", &mut clock);
        let crop = |landmarks| FaceCrop::new(frame.frame(), landmarks);
        let crops: Vec<FaceCrop<'_>> = faces.iter().map(|face| crop(face.landmarks)).collect();
        self.embedder.embed(&crops)?;
        self.record_lap("5 embed", &mut clock);
        let request = ReadRequest { frame: frame.frame(), faces: &faces, pattern: &self.pattern };
        let texts = self.reader.read(&[request])?.pop().unwrap_or_default();
        self.record_lap("6 read", &mut clock);
        self.found.faces += faces.len();
        self.found.texts += texts.len();
        self.pixels = photo.into_pixels();
        Ok(())
    }

    fn record_lap(&mut self, step: &'static str, clock: &mut Duration) {
        let now = own_cpu();
        self.laps.entry(step).or_default().push(to_milliseconds(now.saturating_sub(*clock)));
        *clock = now;
    }

    /// Decodes at the smallest scale that is enough for the working frame, into a reused buffer.
    fn decode(&mut self, file: &[u8]) -> anyhow::Result<Picture> {
        let header = self.decoder.read_header(file)?;
        let long = header.width.max(header.height);
        let is_enough =
            |eighths: &usize| ScalingFactor::new(*eighths, 8).scale(long) >= WORKING_LONG_SIDE as usize;
        let eighths = (1..=8).find(is_enough).unwrap_or(8);
        let scale = ScalingFactor::new(eighths, 8);
        let (width, height) = (scale.scale(header.width), scale.scale(header.height));
        let mut pixels = std::mem::take(&mut self.pixels);
        pixels.resize(width * height * 3, 0);
        if !self.decode_baseline(file, eighths, &mut pixels) {
            let (pixels, format) = (pixels.as_mut_slice(), PixelFormat::RGB);
            self.decoder.set_scaling_factor(scale)?;
            self.decoder.decompress(file, Image { pixels, width, pitch: width * 3, height, format })?;
        }
        Ok(Picture::new(pixels, u32::try_from(width)?, u32::try_from(height)?)?)
    }

    /// Decodes what cameras write; as the pipeline does, leaves the rest to libjpeg-turbo.
    fn decode_baseline(&mut self, file: &[u8], eighths: usize, pixels: &mut [u8]) -> bool {
        let scale = u8::try_from(eighths).ok().and_then(photofinish_jpeg::Scale::from_eighths);
        let (Some(scale), Ok(header)) = (scale, photofinish_jpeg::Header::read(file)) else { return false };
        header.rgb_bytes(scale) == pixels.len() && self.baseline.decode(&header, scale, pixels).is_ok()
    }

    fn shrink(&mut self, frame: Frame<'_>, long_side: u32, filter: Filter) -> Picture {
        let size = Size { width: frame.width(), height: frame.height() }.fit_within(long_side);
        self.resizer.resize_frame(frame, ResizeTarget { size, filter })
    }

    fn shrink_to_thumbnail(&mut self, frame: Frame<'_>) -> Picture {
        let size = frame.size().fit_within(THUMBNAIL_LONG_SIDE);
        self.resizer.resize_frame(frame, ResizeTarget::for_thumbnail(frame.size(), size))
    }

    fn encode(&mut self, frame: Frame<'_>) -> anyhow::Result<Vec<u8>> {
        let (width, height) = (frame.width() as usize, frame.height() as usize);
        let image =
            Image { pixels: frame.pixels(), width, pitch: width * 3, height, format: PixelFormat::RGB };
        Ok(self.encoder.compress_to_vec(image)?)
    }

    fn to_table(&self) -> Table {
        let mut table = Table::new("CPU ms per photo", &["step", "mean", "median", "most"]);
        let mut whole = 0.0;
        for (step, laps) in &self.laps {
            let mean = laps.iter().sum::<f64>() / laps.len().max(1) as f64;
            let most = laps.iter().copied().fold(0.0, f64::max);
            if *step != BICUBIC_THUMBNAIL {
                whole += mean;
            }
            let (mean, middle) = (format!("{mean:.1}"), format!("{:.1}", median(laps)));
            table.add_row([(*step).to_owned(), mean, middle, format!("{most:.1}")]);
        }
        table.add_row(["all".to_owned(), format!("{whole:.1}"), String::new(), String::new()]);
        table
    }
}
