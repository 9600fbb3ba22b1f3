//! How fast the pipeline would be with a GPU: its real feed, threads, channels, tickets and database, with networks and
//! decoding that take the time that a device would take by [`assumptions`]. Nothing here was measured on a GPU: the
//! figures are derived.

mod assumptions;
mod resource;
mod simulated;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use photofinish_models::traits::BatchSizes;
use photofinish_pipeline::{
    DEVICE_CALL_LIMIT, Limits, Pipeline, PipelineDependencies, PipelineSettings, ReservedCores, ThreadCounts,
};
use photofinish_store::conformance::{AlbumFixture, test_settings};
use photofinish_store::{Store, StoreSettings};

use self::assumptions::{CORES, DEVICES, DeviceModel, PHOTOS, PhotoModel};
use self::resource::Resource;
use self::simulated::{Design, Machine, SimulatedBlobs, SimulatedModels};
use crate::report::goals::Goal;
use crate::report::{OutputOptions, Report, Table};

/// Size of the photo that is really decoded: it costs next to nothing.
const WIDTH: usize = 320;
const HEIGHT: usize = 240;

/// Of the photos, those that are ready when the measurement begins and ends: before, the pipeline fills, then it drains.
const BEGIN: f64 = 0.2;
const END: f64 = 0.85;

/// Least share of the time in which the bottleneck must be busy.
const MIN_BUSY: f64 = 0.9;

/// Longest run of one configuration.
const MAX_RUN_TIME: Duration = Duration::from_mins(5);

const ON_CUDA: BatchSizes = BatchSizes { detect: 16, embed: 64, read: 16 };
const ONE_BY_ONE: BatchSizes = BatchSizes { detect: 1, embed: 1, read: 1 };

/// From the pipeline of the CPU with its networks on a device to what issue 11 asks for.
const DESIGNS: [Design; 4] = [
    Design { name: "one item per call", batch_sizes: ONE_BY_ONE, overlaps: false, decodes_on_device: false },
    Design {
        name: "as built: batches across photos",
        batch_sizes: ON_CUDA,
        overlaps: false,
        decodes_on_device: false,
    },
    Design {
        name: "not built: copies overlap calls",
        batch_sizes: ON_CUDA,
        overlaps: true,
        decodes_on_device: false,
    },
    Design {
        name: "not built: and nvJPEG decodes",
        batch_sizes: ON_CUDA,
        overlaps: true,
        decodes_on_device: true,
    },
];

/// The designs that must keep their bottleneck busy: those with batches.
const WITH_BATCHES: std::ops::RangeFrom<usize> = 1..;

/// How much to simulate.
#[derive(Clone, Debug, clap::Args)]
pub struct GpuModelOptions {
    /// Photos of each run.
    #[arg(long, default_value_t = 1500)]
    pub photos: usize,
    /// Photos a second that this machine really processes at most: what is simulated is slowed down to it, so that what is
    /// really done here does not count.
    #[arg(long, default_value_t = 40.0)]
    pub real_rate: f64,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// What a run of one configuration gave.
struct Derived {
    rate: f64,
    /// Share of the time in which each resource was busy.
    busy: [(&'static str, f64); 3],
}

impl Derived {
    fn bottleneck(&self) -> (&'static str, f64) {
        self.busy.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("none", 0.0))
    }
}

/// Runs all configurations.
///
/// # Errors
/// When the store cannot be opened or a run does not end.
pub fn run(options: &GpuModelOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("gpu-model", "The pipeline with a GPU: derived, not measured");
    let columns =
        ["device", "photos", "design", "photos/s", "bottleneck", "busy", "cores", "device", "engine"];
    let caption = format!(
        "The real feed, threads, channels, tickets and database, with networks and decoding that take the time of the \
         assumptions in docs/PERFORMANCE.md; {CORES} cores. Derived: no GPU was used."
    );
    let mut table = Table::new(&caption, &columns);
    let mut least_busy = f64::INFINITY;
    for device in DEVICES {
        for photo in PHOTOS {
            for (index, design) in DESIGNS.into_iter().enumerate() {
                let derived = derive(options, device, photo, design)?;
                let (name, busy) = derived.bottleneck();
                if WITH_BATCHES.contains(&index) {
                    least_busy = least_busy.min(busy);
                }
                let shares = derived.busy.map(|(_, share)| format!("{share:.2}"));
                let row = [device.name, photo.name, design.name].map(str::to_owned);
                let figures = [format!("{:.0}", derived.rate), name.to_owned(), format!("{busy:.2}")];
                table.add_row(row.into_iter().chain(figures).chain(shares));
                eprintln!(
                    "{} {} {}: {:.0}/s, {name} {busy:.2}",
                    device.name, photo.name, design.name, derived.rate
                );
            }
        }
    }
    report.tables.push(table);
    report.goals.push(Goal::at_least(
        "least busy share of a bottleneck, batched designs",
        least_busy,
        MIN_BUSY,
    ));
    report.notes.push(format!(
        "{} photos a run, slowed down to at most {} a second, so that the work that is really done on this machine does not \
         count.",
        options.photos, options.real_rate
    ));
    Ok(report)
}

fn derive(
    options: &GpuModelOptions,
    device: DeviceModel,
    photo: PhotoModel,
    design: Design,
) -> anyhow::Result<Derived> {
    let machine = Arc::new(Machine {
        cores: Resource::new(CORES),
        device: Resource::new(1),
        decoder: Resource::new(1),
        model: device,
        photo,
        design,
        slow_motion: (simulated::most_photos_per_second(&device, &photo, &design) / options.real_rate)
            .max(1.0),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let (store, fixture) = runtime.block_on(async {
        let database_url = format!("sqlite:{}", folder.path().join("model.sqlite").display());
        let store = Store::open(StoreSettings { database_url, ..test_settings(folder.path()) }).await?;
        let fixture = AlbumFixture::create(&store).await;
        let mut rest = options.photos;
        while rest > 0 {
            let count = rest.min(500);
            fixture.queue_photos(count).await;
            rest -= count;
        }
        anyhow::Ok((store, fixture))
    })?;
    let dependencies = PipelineDependencies {
        queue: Arc::clone(&store.queue),
        blobs: Arc::new(SimulatedBlobs {
            machine: Arc::clone(&machine),
            file: encode_photo()?,
            inner: Arc::clone(&store.blobs),
        }),
        watermarks: Arc::clone(&store.watermarks),
        models: vec![Arc::new(SimulatedModels(Arc::clone(&machine)))],
        runtime: runtime.handle().clone(),
        reserved_cores: ReservedCores::default(),
    };
    let pipeline = Pipeline::start(settings(), dependencies);
    let ready = || {
        let counts = runtime.block_on(store.photos.count_by_state(fixture.album))?;
        anyhow::ensure!(counts.failed == 0, "{} photos failed", counts.failed);
        anyhow::Ok(counts.ready as f64)
    };
    let begin = wait_for(&ready, &machine, options.photos as f64 * BEGIN)?;
    let end = wait_for(&ready, &machine, options.photos as f64 * END)?;
    pipeline.stop();
    runtime.block_on(store.close());
    Ok(begin.until(&end, &machine))
}

/// The state of a run at a moment.
struct Sample {
    at: Instant,
    ready: f64,
    busy: [Duration; 3],
}

impl Sample {
    fn until(&self, end: &Self, machine: &Machine) -> Derived {
        let seconds = (end.at - self.at).as_secs_f64();
        let units = [&machine.cores, &machine.device, &machine.decoder].map(Resource::units);
        let share = |index: usize| {
            let busy = end.busy[index].saturating_sub(self.busy[index]).as_secs_f64();
            // What was requested before the end may be done after it.
            (busy / (seconds * units[index] as f64)).min(1.0)
        };
        let rate = (end.ready - self.ready) / seconds * machine.slow_motion;
        Derived { rate, busy: [("cores", share(0)), ("device", share(1)), ("engine", share(2))] }
    }
}

/// Waits until so many photos are ready.
fn wait_for(
    ready: &dyn Fn() -> anyhow::Result<f64>,
    machine: &Machine,
    wanted: f64,
) -> anyhow::Result<Sample> {
    let start = Instant::now();
    loop {
        let ready = ready()?;
        if ready >= wanted {
            let busy = [&machine.cores, &machine.device, &machine.decoder].map(Resource::busy);
            return Ok(Sample { at: Instant::now(), ready, busy });
        }
        anyhow::ensure!(start.elapsed() < MAX_RUN_TIME, "{ready} photos ready within {MAX_RUN_TIME:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The settings of a machine with a device. The cores decode, which here is part of fetching, so that threads wait there for
/// them and for the engine.
fn settings() -> PipelineSettings {
    let threads = ThreadCounts::for_device(CORES);
    PipelineSettings {
        cores: CORES,
        decode_threads: 4,
        resize_threads: 2,
        fetch_threads: 2 * CORES,
        detect_threads: threads.detect,
        embed_threads: threads.embed,
        read_threads: threads.read,
        file_budget_bytes: 256 << 20,
        pixel_budget_bytes: 1 << 30,
        limits: Limits { max_file_bytes: 1 << 20, max_pixels: 1 << 20, reads_heic: false },
        max_grid_cells: 16,
        max_runners: 100,
        lease_ttl: Duration::from_secs(600),
        device_call_limit: DEVICE_CALL_LIMIT,
        drain_grace: Duration::from_secs(30),
    }
}

fn encode_photo() -> anyhow::Result<Bytes> {
    let pixels: Vec<u8> = (0..WIDTH * HEIGHT * 3).map(|index| (index % 251) as u8).collect();
    let image = turbojpeg::Image {
        pixels: pixels.as_slice(),
        width: WIDTH,
        pitch: WIDTH * 3,
        height: HEIGHT,
        format: turbojpeg::PixelFormat::RGB,
    };
    let file = turbojpeg::compress(image, 80, turbojpeg::Subsamp::Sub2x2).context("encoding a photo")?;
    Ok(Bytes::copy_from_slice(&file))
}
