//! Settings of the pipeline.

use std::num::NonZero;
use std::time::Duration;

use super::parsers::{self, MEGABYTE};
use super::queue::QUEUE_HEADING;

/// More threads than this make nothing faster.
const MAX_PROCESSING_THREADS: u64 = 256;

/// Default memory per core: twice what makes the photos of one organization as fast as they can be, which is two files and
/// three decoded frames of photos of 24 megapixels, so that a core works on one photo while the next waits. An organization
/// has half of a budget; the rest is for others.
const FILE_MEGABYTES_PER_CORE: u64 = 32;
const PIXEL_MEGABYTES_PER_CORE: u64 = 56;
/// The budgets of a machine with fewer cores are those of this many.
const MIN_BUDGET_CORES: u64 = 2;

/// Settings of the pipeline.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Pipeline (roles all, work)")]
pub struct PipelineArguments {
    /// Cores that the pipeline uses, 256 at most [default: all]
    #[arg(long, env = "PHOTOFINISH_PROCESSING_THREADS", value_name = "COUNT", value_parser = parsers::count)]
    pub processing_threads: Option<u64>,
    /// Undecoded photos in memory at once, megabytes; half is for one organization [default: 32 per core, 64 at least]
    #[arg(long = "file-budget-mb", env = "PHOTOFINISH_FILE_BUDGET_MB", value_name = "MEGABYTES")]
    #[arg(value_parser = parsers::megabytes)]
    pub file_budget_bytes: Option<u64>,
    /// Decoded pixels in memory at once, megabytes; half is for one organization [default: 56 per core, 112 at least]
    #[arg(long = "pixel-budget-mb", env = "PHOTOFINISH_PIXEL_BUDGET_MB", value_name = "MEGABYTES")]
    #[arg(value_parser = parsers::megabytes)]
    pub pixel_budget_bytes: Option<u64>,
    /// Cells per photo and network, at most, in albums in grid mode, whatever their grids ask for; each costs a run of the
    /// network
    // The outbox of every role counts cells as costs.
    #[arg(help_heading = QUEUE_HEADING)]
    #[arg(long = "max-grid-cells", env = "PHOTOFINISH_MAX_GRID_CELLS", value_name = "COUNT")]
    #[arg(default_value = "16", value_parser = parsers::grid_cells)]
    pub max_grid_cells: u32,
    /// Runners of a photo whose bibs are read, at most, largest first; each costs a run of the text network. Photos say how
    /// many were skipped
    #[arg(long = "max-runners", env = "PHOTOFINISH_MAX_RUNNERS", value_name = "COUNT")]
    #[arg(default_value = "100", value_parser = parsers::runners)]
    pub max_runners: usize,
    /// How long a worker has a photo before another may take it, seconds
    // Each role may create the consumer in NATS, which delivers a message again after this time.
    #[arg(help_heading = QUEUE_HEADING)]
    #[arg(long = "lease-seconds", env = "PHOTOFINISH_LEASE_SECONDS", value_name = "SECONDS")]
    #[arg(default_value = "60", value_parser = parsers::seconds)]
    pub lease_ttl: Duration,
    /// How long photos in flight may take to finish at a stop, seconds
    #[arg(long = "drain-seconds", env = "PHOTOFINISH_DRAIN_SECONDS", value_name = "SECONDS")]
    #[arg(default_value = "20", value_parser = parsers::seconds)]
    pub drain_grace: Duration,
}

/// Cores and memory of the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub processing_threads: usize,
    pub file_budget_bytes: usize,
    pub pixel_budget_bytes: usize,
}

impl PipelineArguments {
    /// What is configured; the rest by the cores of this machine.
    pub fn capacity(&self) -> Capacity {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get) as u64;
        let threads = self.processing_threads.unwrap_or(cores).min(MAX_PROCESSING_THREADS);
        let budget = |given: Option<u64>, megabytes_per_core: u64| {
            given.unwrap_or(megabytes_per_core * MEGABYTE * threads.max(MIN_BUDGET_CORES)) as usize
        };
        Capacity {
            processing_threads: threads as usize,
            file_budget_bytes: budget(self.file_budget_bytes, FILE_MEGABYTES_PER_CORE),
            pixel_budget_bytes: budget(self.pixel_budget_bytes, PIXEL_MEGABYTES_PER_CORE),
        }
    }
}
