//! What is known of the pipeline outside of its threads: its status, how it stopped, and what its supervisor shares.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use crossbeam_channel::Sender;
use photofinish_store::traits::Queue;
use time::OffsetDateTime;

use crate::engine::budget::BudgetLoad;
use crate::engine::fault::Component;
use crate::engine::leases::LeaseTable;
use crate::engine::stage_stats::PipelineStats;

/// The status of the pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineStatus {
    /// The first generation is starting.
    Starting,
    /// Photos are processed as they arrive.
    Running,
    /// No photos are processed; the supervisor retries by itself.
    Down {
        /// The component that is down.
        component: Component,
        /// Why, in one line.
        reason: String,
        /// When the outage began.
        since: OffsetDateTime,
    },
}

/// How the pipeline stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Whether everything in flight was finished; otherwise it was given back.
    pub drained: bool,
    /// Photos given back to the queue since the pipeline started.
    pub given_back: u64,
    /// Photos that could not be given back. They are retried when their leases expire, which counts an attempt.
    pub unfinished: usize,
    /// The names of the threads that did not exit. The process must end without unloading the code that they run.
    pub abandoned_threads: Vec<String>,
}

/// The state shared by the supervisor and [`Pipeline`](crate::Pipeline).
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) status: Mutex<PipelineStatus>,
    pub(crate) stats: Arc<PipelineStats>,
    pub(crate) leases: Arc<LeaseTable>,
    /// Wakes the feed of the current generation.
    pub(crate) wakeup: Mutex<Option<Sender<()>>>,
    /// The budgets of the current generation; empty while there is none.
    pub(crate) budgets: Mutex<Vec<BudgetLoad>>,
    /// Why the pipeline has ended, once this process cannot use its device any more.
    pub(crate) device_failure: OnceLock<String>,
    /// Whether the device was lost, and no photo has been finished since: networks prove that they work before they are
    /// given one, so that no photo is held to be the cause of what is wrong without it.
    pub(crate) is_device_suspect: AtomicBool,
}

impl SharedState {
    /// The state of a pipeline that is starting, with these stages.
    pub(crate) fn new(stats: Arc<PipelineStats>, queue: Arc<dyn Queue>) -> Self {
        Self {
            status: Mutex::new(PipelineStatus::Starting),
            stats,
            leases: Arc::new(LeaseTable::new(queue)),
            wakeup: Mutex::default(),
            budgets: Mutex::default(),
            device_failure: OnceLock::new(),
            is_device_suspect: AtomicBool::new(false),
        }
    }
}
