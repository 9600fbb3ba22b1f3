//! How fast the pipeline would be with a GPU: its real feed, threads, channels, tickets and database, with networks and
//! decoding that take the time that a device would take by [`assumptions`], of which some were measured on one GPU. The
//! figures are derived. [`memory`] runs the same pipeline on a device that computes nothing and has faults.

mod assumptions;
mod counted_queue;
mod counting_gpu;
pub mod memory;
mod resource;
mod simulated;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_models::traits::BatchSizes;
use photofinish_pipeline::{DEVICE_CALL_LIMIT, Limits, PipelineSettings, ThreadCounts};
use tokio::sync::Semaphore;

use self::assumptions::{CORES, DEVICES, DeviceModel, PHOTOS, PhotoModel};
use self::resource::Resource;
use self::simulated::{Design, Machine, Network, SimulatedBlobs, SimulatedModels};
use self::world::{World, encode_photo};
use crate::report::goals::Goal;
use crate::report::{OutputOptions, Report, Table};

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
        name: "not built: copies of pinned memory overlap calls",
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

/// What is built, of [`DESIGNS`].
const AS_BUILT: usize = 1;

/// Of [`DEVICES`], those whose memory budgets are varied: a large one and one that 16 cores keep busy.
const WITH_BUDGETS: [usize; 2] = [1, 2];

/// Photos whose pixels have room at once; without a number, as many as the channels between the stages hold.
const BUDGETS: [Option<usize>; 4] = [Some(10), Some(40), Some(160), None];

/// Networks whose items per call are reported, with the items' name.
const REPORTED_CALLS: [NamedCalls; 3] = [
    NamedCalls { network: Network::Detector, items: "frames a call" },
    NamedCalls { network: Network::Embedder, items: "faces a call" },
    NamedCalls { network: Network::TextDetector, items: "torsos a call" },
];

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

/// A network with the name of its items in a table.
struct NamedCalls {
    network: Network,
    items: &'static str,
}

/// What is simulated.
#[derive(Clone, Copy)]
struct Configuration {
    device: DeviceModel,
    photo: PhotoModel,
    design: Design,
    /// Photos whose pixels have room at once.
    budget: Option<usize>,
}

/// What a run of one configuration gave.
struct Derived {
    rate: f64,
    /// Share of the time in which each resource was busy.
    busy: [(&'static str, f64); 3],
    /// Items of a call on average, in the order of [`Network::ALL`]; NaN without a call.
    items_per_call: [f64; 4],
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
    compare_designs(options, &mut report)?;
    compare_budgets(options, &mut report)?;
    report.notes.push(format!(
        "{} photos a run, slowed down to at most {} a second, so that the work that is really done on this machine does not \
         count.",
        options.photos, options.real_rate
    ));
    Ok(report)
}

/// Each device with each kind of photos in each design.
fn compare_designs(options: &GpuModelOptions, report: &mut Report) -> anyhow::Result<()> {
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
                let derived = derive(options, Configuration { device, photo, design, budget: None })?;
                let (name, busy) = derived.bottleneck();
                if WITH_BATCHES.contains(&index) {
                    least_busy = least_busy.min(busy);
                }
                let shares = derived.busy.map(|(_, share)| format!("{share:.2}"));
                let row = [device.name, photo.name, design.name].map(str::to_owned);
                let figures = [format!("{:.0}", derived.rate), name.to_owned(), format!("{busy:.2}")];
                table.add_row(row.into_iter().chain(figures).chain(shares));
            }
        }
    }
    report.tables.push(table);
    report.goals.push(Goal::at_least(
        "least busy share of a bottleneck, batched designs",
        least_busy,
        MIN_BUSY,
    ));
    Ok(())
}

/// The design as built, with memory for the pixels of few and of many photos.
fn compare_budgets(options: &GpuModelOptions, report: &mut Report) -> anyhow::Result<()> {
    let columns = ["device", "photos", "with room at once", "photos/s", "bottleneck", "busy"];
    let columns: Vec<&str> =
        columns.into_iter().chain(REPORTED_CALLS.iter().map(|calls| calls.items)).collect();
    let caption = format!(
        "{}, with room for the pixels of so many photos of one organization, each from the beginning of its decoding until \
         its bibs are read, and what batches then form",
        DESIGNS[AS_BUILT].name
    );
    let mut table = Table::new(&caption, &columns);
    for device in WITH_BUDGETS.map(|index| DEVICES[index]) {
        for photo in PHOTOS {
            for budget in BUDGETS {
                let design = DESIGNS[AS_BUILT];
                let derived = derive(options, Configuration { device, photo, design, budget })?;
                let (name, busy) = derived.bottleneck();
                let room = budget.map_or("all that channels hold".to_owned(), |photos| photos.to_string());
                let row = [device.name.to_owned(), photo.name.to_owned(), room];
                let figures = [format!("{:.0}", derived.rate), name.to_owned(), format!("{busy:.2}")];
                let batches = REPORTED_CALLS
                    .iter()
                    .map(|calls| format!("{:.1}", derived.items_per_call[calls.network as usize]));
                table.add_row(row.into_iter().chain(figures).chain(batches));
            }
        }
    }
    report.tables.push(table);
    Ok(())
}

fn derive(options: &GpuModelOptions, configuration: Configuration) -> anyhow::Result<Derived> {
    let Configuration { device, photo, design, budget } = configuration;
    let machine = Arc::new(Machine {
        cores: Resource::new(CORES),
        device: Resource::new(1),
        decoder: Resource::new(1),
        model: device,
        photo,
        design,
        slow_motion: (simulated::most_photos_per_second(&device, &photo, &design) / options.real_rate)
            .max(1.0),
        memory: budget.map(Semaphore::new),
        calls: Default::default(),
    });
    let world = World::open()?;
    world.queue_photos(options.photos);
    let blobs = Arc::new(SimulatedBlobs {
        machine: Some(Arc::clone(&machine)),
        file: encode_photo()?,
        inner: Arc::clone(&world.store.blobs),
    });
    let models = Arc::new(SimulatedModels(Arc::clone(&machine)));
    let pipeline = world.start(settings(), Arc::clone(&world.store.queue), blobs, models);
    let begin = wait_for(&world, &machine, options.photos as f64 * BEGIN)?;
    let end = wait_for(&world, &machine, options.photos as f64 * END)?;
    pipeline.stop();
    world.close();
    let derived = begin.until(&end, &machine);
    let (bottleneck, busy) = derived.bottleneck();
    eprintln!(
        "{} {} {}, room for {budget:?}: {:.0}/s, {bottleneck} {busy:.2}",
        device.name, photo.name, design.name, derived.rate
    );
    Ok(derived)
}

/// The state of a run at a moment.
struct Sample {
    at: Instant,
    ready: f64,
    busy: [Duration; 3],
    /// Calls and their items by network.
    calls: [[u64; 2]; 4],
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
        let items_per_call = Network::ALL.map(|network| {
            let [calls, items] = [0, 1]
                .map(|part| (end.calls[network as usize][part] - self.calls[network as usize][part]) as f64);
            items / calls
        });
        Derived {
            rate,
            busy: [("cores", share(0)), ("device", share(1)), ("engine", share(2))],
            items_per_call,
        }
    }
}

/// Waits until so many photos are ready.
fn wait_for(world: &World, machine: &Machine, wanted: f64) -> anyhow::Result<Sample> {
    let start = Instant::now();
    loop {
        let ready = world.count_photos()?.ready as f64;
        if ready >= wanted {
            let busy = [&machine.cores, &machine.device, &machine.decoder].map(Resource::busy);
            let calls = Network::ALL.map(|network| machine.calls[network as usize].read());
            return Ok(Sample { at: Instant::now(), ready, busy, calls });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_few_photos_leaves_cores_without_work() {
        const ROOM: usize = 4;
        let options = GpuModelOptions {
            photos: 60,
            real_rate: 120.0,
            output: OutputOptions { write: false, json: None, strict: false },
        };
        let (device, photo, design) = (DEVICES[WITH_BUDGETS[0]], PHOTOS[0], DESIGNS[AS_BUILT]);
        let configuration = Configuration { device, photo, design, budget: Some(ROOM) };
        let derived = derive(&options, configuration).unwrap();
        // Decoding alone takes each so long.
        let most = ROOM as f64 / photo.with_decoding.as_secs_f64();
        assert!(derived.rate > 0.0 && derived.rate < 1.2 * most, "{} of {most}", derived.rate);
        let (_, cores) = derived.busy[0];
        assert!(cores < 1.2 * ROOM as f64 / CORES as f64, "{cores}");
        let items = derived.items_per_call;
        assert!(items.iter().all(|items| *items >= 1.0 && *items <= 12.0), "{items:?}: of {ROOM} photos");
    }
}
