//! What is known of the pipeline outside of its threads: its status, how it stopped, and what the supervisor of a lane shares.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use crossbeam_channel::Sender;
use photofinish_store::traits::Queue;
use time::OffsetDateTime;

use crate::engine::budget::{BudgetLoad, publish_change};
use crate::engine::fault::Component;
use crate::engine::leases::LeaseTable;
use crate::engine::pipeline_stats::PipelineStats;
use crate::engine::suspect_gate::SuspectGate;
use crate::engine::sync::lock;

/// The status of the pipeline, or of one of its lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineStatus {
    /// The first generation is starting, of each device.
    Starting,
    /// Photos are processed as they arrive.
    Running,
    /// Photos are processed, but not, or not yet, on all devices.
    RunningOnSome {
        /// Which devices do not work, and why, in one line.
        reason: String,
    },
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

impl PipelineStatus {
    /// Orders statuses: the worst has the highest number.
    pub(crate) fn severity(&self) -> u8 {
        match self {
            Self::Running => 0,
            Self::RunningOnSome { .. } => 1,
            Self::Starting => 2,
            Self::Down { .. } => 3,
        }
    }
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

/// The state shared by the supervisor of a lane and [`Pipeline`](crate::Pipeline).
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) status: Mutex<PipelineStatus>,
    pub(crate) stats: Arc<PipelineStats>,
    pub(crate) leases: Arc<LeaseTable>,
    /// Wakes the feed of the current generation.
    pub(crate) wakeup: Mutex<Option<Sender<()>>>,
    /// The budgets of the current generation; empty while there is none.
    pub(crate) budgets: Mutex<Vec<BudgetLoad>>,
    /// Closed while a lane of the process has a crash suspect.
    pub(crate) suspect_gate: Arc<SuspectGate>,
    /// Why the lane has ended, once this process cannot use its device any more.
    pub(crate) device_failure: OnceLock<String>,
    /// Whether the device was lost, and no photo has been finished since: networks prove that they work before they are
    /// given one, so that no photo is held to be the cause of what is wrong without it.
    pub(crate) is_device_suspect: AtomicBool,
}

impl SharedState {
    /// The state of a lane that is starting, with these stages.
    pub(crate) fn new(stats: Arc<PipelineStats>, queue: Arc<dyn Queue>, gate: &Arc<SuspectGate>) -> Self {
        let leases = Arc::new(LeaseTable::new(queue));
        gate.add(&leases);
        Self {
            status: Mutex::new(PipelineStatus::Starting),
            stats,
            leases,
            wakeup: Mutex::default(),
            budgets: Mutex::default(),
            suspect_gate: Arc::clone(gate),
            device_failure: OnceLock::new(),
            is_device_suspect: AtomicBool::new(false),
        }
    }

    /// Shows what the budgets of the lane have now; none without a generation.
    pub(crate) fn show_budgets(&self, loads: Vec<BudgetLoad>) {
        let mut shown = lock(&self.budgets);
        publish_change(&shown, &loads);
        *shown = loads;
    }
}
