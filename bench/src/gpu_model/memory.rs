//! Whether memory stays flat over many photos with a device: the pipeline with its database, networks that compute nothing,
//! and a device that counts the bytes which it holds ([`super::counting_gpu`]), lacks memory now and then and is lost now and
//! then. So halved batches, and generations that are replaced with all their networks, are part of the run. No GPU is used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_kernels::batch::letterbox::{self, Placement};
use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::{GpuError, Resident};
use photofinish_kernels::image::frame::Frame;
use photofinish_kernels::image::tensor::{Channels, Normalisation, Tensor};
use photofinish_models::bucket::Bucket;
use photofinish_models::onnx::kernels::KernelDevice;
use photofinish_models::traits::{
    BatchSizes, BibReader, BibText, EmbeddedFace, FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelError,
    ModelFactory, ModelIdentity, ReadRequest,
};
use photofinish_pipeline::PipelineSettings;

use super::assumptions::FACES;
use super::counted_queue::CountedQueue;
use super::counting_gpu::{CANVAS, CountingGpu, Counts, CountsNow, Faults};
use super::simulated::{SHARPNESS, SimulatedBlobs, face, vector};
use super::world::{PHOTOS_PER_CALL, World, encode_photo};
use super::{ON_CUDA, settings};
use crate::process;
use crate::report::goals::Goal;
use crate::report::statistics::median;
use crate::report::{OutputOptions, Report, Table};

/// Photos that wait at least, as long as there are more.
const WAITING: u64 = 1000;

/// Pause between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// The run fails when no photo becomes ready for so long.
const STALL_LIMIT: Duration = Duration::from_mins(2);

/// How much more memory the last quarter of the photos may take than the second: the first one fills channels and caches.
const MAX_GROWTH: f64 = 1.05;

/// How long a call of the detector takes: longer than its threads need for the photos that come meanwhile, so that photos
/// wait and batches form.
const CALL_TIME: Duration = Duration::from_millis(20);

/// Bytes of each network on the device.
static WEIGHTS: [u8; 1 << 20] = [0; 1 << 20];

const INPUT: Normalisation = Normalisation::raw(Channels::Bgr);

/// Photos in whose call the device was lost are processed again when their leases expire.
const LEASE_TTL: Duration = Duration::from_secs(3);

/// Few pixels at once, so that what photos in flight take is little beside what a leak would.
const PIXEL_BUDGET_BYTES: usize = 64 << 20;

/// Options of the run.
#[derive(Clone, Debug, clap::Args)]
pub struct GpuMemoryOptions {
    /// Photos.
    #[arg(long, default_value_t = 100_000)]
    pub photos: usize,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Memory at a moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    ready: u64,
    /// Of this process.
    resident: u64,
    on_device: u64,
}

/// What a run showed.
struct Findings {
    seconds: f64,
    samples: Vec<Sample>,
    /// After the end, when everything is freed.
    device: CountsNow,
    ready: u64,
    /// How often results of a photo were written, of all photos.
    finished: u64,
    leased: u64,
}

/// Runs the photos through the pipeline.
///
/// # Errors
/// When the store cannot be opened, a photo fails or none becomes ready for two minutes.
pub fn run(options: &GpuMemoryOptions) -> anyhow::Result<Report> {
    let photos = options.photos.max(1) as u64;
    // At 100,000 photos each thousandth call, and eight losses; in shorter runs enough of both to matter.
    let faults =
        Faults { calls_per_lack: (photos / 100).clamp(20, 1000), frames_per_loss: (photos / 8).max(1500) };
    let findings = process_photos(photos, faults)?;
    Ok(build_report(photos, faults, &findings))
}

fn process_photos(photos: u64, faults: Faults) -> anyhow::Result<Findings> {
    let (counts, world) = (Counts::new(faults), World::open()?);
    let opened = Arc::clone(&counts);
    let kernels = KernelDevice::opened_by(move || Ok(CountingGpu::open(&opened)));
    let blobs = Arc::new(SimulatedBlobs {
        machine: None,
        file: encode_photo()?,
        inner: Arc::clone(&world.store.blobs),
    });
    let queue = Arc::new(CountedQueue::new(Arc::clone(&world.store.queue)));
    let settings =
        PipelineSettings { lease_ttl: LEASE_TTL, pixel_budget_bytes: PIXEL_BUDGET_BYTES, ..settings() };
    let start = Instant::now();
    let pipeline = world.start(settings, queue.clone(), blobs, Arc::new(CountedModels { kernels }));
    let mut samples: Vec<Sample> = Vec::new();
    let (mut queued, mut changed_at) = (0, start);
    let ready = loop {
        let ready = world.count_photos()?.ready;
        if samples.last().is_none_or(|last| last.ready != ready) {
            changed_at = Instant::now();
        }
        let resident = process::read_memory(std::process::id())?.resident;
        samples.push(Sample { ready, resident, on_device: counts.read().live_bytes });
        if ready >= photos {
            break ready;
        }
        if queued < photos && queued - ready < WAITING {
            let more = (photos - queued).min(PHOTOS_PER_CALL as u64);
            world.queue_photos(more as usize);
            queued += more;
            pipeline.wake();
        }
        anyhow::ensure!(changed_at.elapsed() < STALL_LIMIT, "{ready} of {photos} photos ready");
        std::thread::sleep(SAMPLE_INTERVAL);
    };
    let seconds = start.elapsed().as_secs_f64();
    let report = pipeline.stop();
    anyhow::ensure!(report.drained, "the pipeline did not end: {report:?}");
    world.close();
    let (finished, leased) = (queue.finished(), queue.leased());
    Ok(Findings { seconds, samples, device: counts.read(), ready, finished, leased })
}

fn build_report(photos: u64, faults: Faults, findings: &Findings) -> Report {
    let mut report =
        Report::new("gpu-memory", &format!("Memory over {photos} photos with a device that has faults"));
    report.tables = vec![tabulate_memory(photos, &findings.samples), tabulate_device(findings)];
    let device = &findings.device;
    let [growth, growth_on_device] = [|sample: &Sample| sample.resident, |sample: &Sample| sample.on_device]
        .map(|bytes: fn(&Sample) -> u64| grow(photos, &findings.samples, bytes));
    report.goals = vec![
        Goal::at_most("resident memory, last quarter of the photos over second", growth, MAX_GROWTH),
        Goal::at_most("bytes on the device, last quarter over second", growth_on_device, MAX_GROWTH),
        Goal::at_most("bytes left on the device at the end", device.live_bytes as f64, 0.0),
        Goal::at_most("devices left open at the end", device.open as f64, 0.0),
        Goal::at_least("photos ready", findings.ready as f64, photos as f64),
        Goal::at_most("results written, of all photos", findings.finished as f64, photos as f64),
        Goal::at_least("calls that lacked memory for a batch", device.lacks_of_batches as f64, 1.0),
        Goal::at_least("losses of the device", device.losses as f64, 1.0),
    ];
    report.notes = vec![
        format!(
            "{:.0} photos a second. The device lacks memory at each {}th call and is lost at each {}th frame; it computes \
             nothing. A call of the detector takes {} ms, other networks no time; queue, tickets, channels, decoding, \
             resizing and transactions are real. No GPU was used.",
            photos as f64 / findings.seconds,
            faults.calls_per_lack,
            faults.frames_per_loss,
            CALL_TIME.as_millis()
        ),
        format!(
            "Photos are queued {PHOTOS_PER_CALL} at a time while others are processed. Memory is sampled every {} ms; \
             growth compares medians.",
            SAMPLE_INTERVAL.as_millis()
        ),
    ];
    report
}

/// The memory by tenth of the photos.
fn tabulate_memory(photos: u64, samples: &[Sample]) -> Table {
    let columns =
        ["of the photos", "resident, MB, median", "most", "on the device, MB, median", "most", "samples"];
    let mut table = Table::new("Memory of this process and of the device by photos ready", &columns);
    for tenth in 0..10 {
        let part: Vec<&Sample> =
            samples.iter().filter(|sample| (sample.ready * 10 / photos).min(9) == tenth).collect();
        let figures = [|sample: &Sample| sample.resident, |sample: &Sample| sample.on_device].map(
            |bytes: fn(&Sample) -> u64| {
                let megabytes: Vec<f64> = part.iter().map(|sample| bytes(sample) as f64 / 1e6).collect();
                let most = megabytes.iter().copied().fold(f64::NAN, f64::max);
                [median(&megabytes), most].map(|figure| format!("{figure:.1}"))
            },
        );
        let name = format!("{} to {} %", tenth * 10, tenth * 10 + 10);
        table.add_row([name].into_iter().chain(figures.concat()).chain([part.len().to_string()]));
    }
    table
}

fn tabulate_device(findings: &Findings) -> Table {
    let device = &findings.device;
    let mut table = Table::new("The device, and the work that its faults cost", &["what", "figure"]);
    let per_call = device.frames as f64 / device.calls.max(1) as f64;
    for (what, figure) in [
        ("calls of the detector", device.calls.to_string()),
        ("frames a call, mean", format!("{per_call:.1}")),
        ("frames a call, most", device.most_frames.to_string()),
        ("calls that lacked memory", device.lacks.to_string()),
        ("of these, batches, whose items were then in smaller calls", device.lacks_of_batches.to_string()),
        ("losses of the device, after which a generation was replaced", device.losses.to_string()),
        ("devices opened", device.opened.to_string()),
        ("leases of photos", findings.leased.to_string()),
    ] {
        table.add_row([what.to_owned(), figure]);
    }
    table
}

/// The median of the last quarter of the photos over that of the second.
fn grow(photos: u64, samples: &[Sample], bytes: fn(&Sample) -> u64) -> f64 {
    let median_of = |quarter: u64| {
        let part = samples.iter().filter(|sample| (sample.ready * 4 / photos).min(3) == quarter);
        median(&part.map(|sample| bytes(sample) as f64).collect::<Vec<_>>())
    };
    median_of(3) / median_of(1)
}

/// Networks on a device. They compute nothing and find the same in every photo.
struct CountedModels {
    kernels: KernelDevice,
}

/// A network, whose weights are on the device as long as it exists.
struct OnDevice {
    kernels: KernelDevice,
    bucket: Bucket,
    input: Tensor,
    identity: ModelIdentity,
    _weights: Resident,
}

impl CountedModels {
    fn create(&self, name: &str) -> Result<Box<OnDevice>, ModelError> {
        self.kernels.open()?;
        let weights = self.kernels.run(name, |device| match device {
            Device::Gpu(gpu) => gpu.upload(&WEIGHTS),
            _ => Err(GpuError::Failed("no device".into())),
        })?;
        Ok(Box::new(OnDevice {
            kernels: self.kernels.clone(),
            bucket: Bucket::new(ON_CUDA.detect),
            input: Tensor::default(),
            identity: ModelIdentity { name: name.to_owned(), version: 1 },
            _weights: weights,
        }))
    }
}

impl ModelFactory for CountedModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        Ok(self.create("counted-detector")?)
    }

    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        Ok(self.create("counted-embedder")?)
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        Ok(self.create("counted-reader")?)
    }

    fn batch_sizes(&self) -> BatchSizes {
        ON_CUDA
    }

    fn uses_cores(&self) -> bool {
        false
    }

    fn longest_device_call(&self) -> Option<Duration> {
        self.kernels.longest_call()
    }
}

impl FaceDetector for OnDevice {
    fn detect(&mut self, frames: &[Frame<'_>], _long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        let Self { kernels, bucket, input, identity, .. } = self;
        bucket.run(frames, |part| {
            let placements: Vec<_> = part.iter().map(|frame| place(*frame)).collect();
            let place_all =
                |device: &Device| letterbox::place_all(device, &placements, CANVAS, &INPUT, input);
            kernels.run(&identity.name, place_all)?;
            std::thread::sleep(CALL_TIME);
            Ok(vec![(0..FACES).map(face).collect(); part.len()])
        })
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

fn place(frame: Frame<'_>) -> Placement<'_> {
    Placement { window: frame.as_window(), size: frame.size().fit_within(CANVAS.width), skipped_rows: 0 }
}

impl FaceEmbedder for OnDevice {
    fn embed(&mut self, faces: &[FaceCrop<'_>]) -> Result<Vec<EmbeddedFace>, ModelError> {
        Ok(vec![EmbeddedFace { vector: vector(), sharpness: SHARPNESS }; faces.len()])
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

impl BibReader for OnDevice {
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
        Ok(vec![Vec::new(); photos.len()])
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_grows_with_the_photos_is_seen() {
        let samples = |bytes: fn(u64) -> u64| -> Vec<Sample> {
            (0..=100).map(|ready| Sample { ready, resident: bytes(ready), on_device: 7 }).collect()
        };
        let growth = |bytes| grow(100, &samples(bytes), |sample| sample.resident);
        assert!(growth(|ready| 100 + ready.min(25)) <= MAX_GROWTH, "the first quarter may fill caches");
        assert!(growth(|ready| 1000 + 2 * ready) > MAX_GROWTH);
        assert_eq!(grow(100, &samples(|_| 1), |sample| sample.on_device), 1.0);
        let table = tabulate_memory(100, &samples(|ready| ready * 1_000_000));
        assert_eq!((table.rows.len(), table.rows[9][1].as_str()), (10, "95.0"));
    }
}
