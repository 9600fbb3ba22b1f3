//! Which faults the stages of a faulty pipeline have, and what is known of their runs.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::Receiver;
use photofinish_store::model::ids::PhotoId;

/// A fault in one run of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// The run panics.
    Panic,
    /// The run panics, and so does rebuilding the stage.
    PanicOnRebuild,
    /// The run returns an outage.
    Outage,
    /// The run takes longer than several polls of the supervisor and then returns an outage, like a storage that hangs.
    SlowOutage,
    /// The run returns too few results.
    MissingResult,
    /// The run waits until the gate opens, even if its generation ends, like a thread that hangs in native code.
    HangUntilOpened,
}

/// A run of a stage: the stage's index, and the number of the run over all threads and generations.
pub(crate) type StageRun = (usize, usize);

/// Which faults are injected, and what happened.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    pub(crate) by_run: HashMap<StageRun, InjectedFault>,
    /// Photos for which the second stage panics each time.
    pub(crate) panicking: HashSet<PhotoId>,
    /// Photos for which the second stage has not enough memory, though it works for others.
    pub(crate) too_large: HashSet<PhotoId>,
    /// How long each run of the second stage takes.
    pub(crate) delay: Duration,
    /// The number of runs of each stage.
    pub(crate) runs: [AtomicUsize; 3],
    /// Whether building the stage panics, until the next generation.
    pub(crate) fails_to_build: [AtomicBool; 3],
    /// The number of generations that were started.
    pub(crate) generations: AtomicUsize,
    /// The sizes of the batches of the second stage.
    pub(crate) batches: Mutex<Vec<usize>>,
    /// Opens when its sender is dropped, even by a test that panics; without a gate nothing hangs.
    pub(crate) gate: Option<Receiver<()>>,
}

impl FaultPlan {
    /// A plan with one fault, in the first run of the second stage.
    pub(crate) fn hanging_until_opened(gate: Receiver<()>) -> Arc<Self> {
        let by_run = [((1, 0), InjectedFault::HangUntilOpened)].into();
        Arc::new(Self { by_run, gate: Some(gate), ..Self::default() })
    }
}
