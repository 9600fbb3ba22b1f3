//! A pipeline of three stages that do nothing but fail as they are told, under the real feed, runner, generation and
//! supervisor: for tests of what becomes of photos whatever dies.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::PhotoSize;
use photofinish_store::traits::{Lease, PhotoResults, Queue};

use crate::engine::budget::{Budget, BudgetPermit};
use crate::engine::fault::{Component, Outage};
use crate::engine::generation::{Generation, StageSpec, StageThreads};
use crate::engine::leases::{LeaseRenewer, LeaseTable};
use crate::engine::runner::{Inlet, Outlet};
use crate::engine::spans::PhotoOutcome;
use crate::engine::stage::{BatchResults, Stage};
use crate::engine::stage_stats::PipelineStats;
use crate::engine::store_client::{KillSwitch, StoreClient};
use crate::engine::supervisor::{
    GenerationFactory, POLL_INTERVAL, PendingGeneration, PipelineStatus, SharedState, StopReport, Supervisor,
    SupervisorTimeouts, stop_channel,
};
use crate::engine::ticket::InFlight;
use crate::stages::feed::Feed;
use crate::testing::memory_queue::MemoryQueue;

/// What happens in a run of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// The run panics.
    Panic,
    /// The run panics, and so does building the stage anew.
    PanicOnRebuild,
    /// The run answers an outage.
    Outage,
    /// The run takes longer than several looks of the supervisor, then answers an outage: what a storage that hangs does.
    SlowOutage,
    /// The run answers too few results.
    MissingResult,
    /// The run waits at the gate, and whatever else ends does not end it: a thread that hangs in native code.
    HangUntilOpened,
}

/// What fails when.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    /// By stage and number of its run, over all threads and generations.
    pub(crate) by_run: HashMap<(usize, usize), InjectedFault>,
    /// Photos that panic in the second stage each time.
    pub(crate) panicking: HashSet<PhotoId>,
    /// Photos for which the second stage has no room, though it is sound.
    pub(crate) too_large: HashSet<PhotoId>,
    pub(crate) runs: [AtomicUsize; 3],
    pub(crate) fails_to_build: [AtomicBool; 3],
    /// Generations that were started, with all their stages.
    pub(crate) generations: AtomicUsize,
    /// Sizes of the batches of the second stage.
    pub(crate) batches: Mutex<Vec<usize>>,
    /// Opens when its sender is dropped, also by a test that fails; always open where there is none.
    pub(crate) gate: Option<Receiver<()>>,
}

pub(crate) const STAGE_NAMES: [&str; 4] = ["feed", "one", "two", "three"];

/// An item with a hold of a budget, as real ones have.
#[derive(Debug)]
struct TestPhoto {
    lease: Arc<Lease>,
    _permit: Option<BudgetPermit>,
}

struct FaultyStage {
    index: usize,
    plan: Arc<FaultPlan>,
    budget: Budget,
    queue: Arc<MemoryQueue>,
    store: StoreClient,
}

impl FaultyStage {
    fn new(index: usize, faults: &Arc<FaultPlan>, budget: &Budget, work: &StageResources) -> Self {
        assert!(!faults.fails_to_build[index].load(Ordering::Acquire), "told to die while being built");
        Self {
            index,
            plan: Arc::clone(faults),
            budget: budget.clone(),
            queue: Arc::clone(&work.queue),
            store: work.store.clone(),
        }
    }

    fn inject_fault(&self, batch: &[Arc<Lease>]) -> Result<(), Outage> {
        let run = self.plan.runs[self.index].fetch_add(1, Ordering::AcqRel);
        match self.plan.by_run.get(&(self.index, run)) {
            Some(InjectedFault::Panic) => panic!("told to panic"),
            Some(InjectedFault::PanicOnRebuild) => {
                self.plan.fails_to_build[self.index].store(true, Ordering::Release);
                panic!("told to die")
            }
            Some(InjectedFault::Outage) => return Err(Outage::new(Component::Models, "told to be out")),
            Some(InjectedFault::SlowOutage) => {
                std::thread::sleep(3 * POLL_INTERVAL);
                return Err(Outage::new(Component::Models, "told to be out after a while"));
            }
            Some(InjectedFault::HangUntilOpened) => {
                // Nothing is ever sent: it ends with its sender.
                let _open = self.plan.gate.as_ref().map(Receiver::recv);
            }
            Some(InjectedFault::MissingResult) | None => {}
        }
        if self.index == 1 && batch.iter().any(|lease| self.plan.too_large.contains(&lease.photo)) {
            return Err(Outage { counts_as_attempt: true, ..Outage::new(Component::Models, "no room") });
        }
        let is_cursed = |lease: &Arc<Lease>| self.plan.panicking.contains(&lease.photo);
        assert!(!(self.index == 1 && batch.iter().any(is_cursed)), "a cursed photo");
        Ok(())
    }

    fn drops_a_result(&self) -> bool {
        let run = self.plan.runs[self.index].load(Ordering::Acquire).wrapping_sub(1);
        self.plan.by_run.get(&(self.index, run)) == Some(&InjectedFault::MissingResult)
    }
}

struct FirstStage(FaultyStage);

impl Stage for FirstStage {
    type In = Arc<Lease>;
    type Out = TestPhoto;

    fn run(&mut self, batch: &[Arc<Lease>]) -> Result<BatchResults<TestPhoto>, Outage> {
        self.0.inject_fault(batch)?;
        batch
            .iter()
            .map(|lease| {
                let held = self
                    .0
                    .budget
                    .acquire(10)
                    .map_err(|closed| Outage::new(Component::Storage, closed.to_string()))?;
                Ok(Ok(TestPhoto { lease: Arc::clone(lease), _permit: Some(held) }))
            })
            .collect()
    }
}

struct SecondStage(FaultyStage);

impl Stage for SecondStage {
    type In = TestPhoto;
    type Out = TestPhoto;

    fn run(&mut self, batch: &[TestPhoto]) -> Result<BatchResults<TestPhoto>, Outage> {
        self.0.plan.batches.lock().unwrap().push(batch.len());
        self.0.inject_fault(&batch.iter().map(|item| Arc::clone(&item.lease)).collect::<Vec<_>>())?;
        let honest = batch.len() - usize::from(self.0.drops_a_result());
        Ok(batch[..honest]
            .iter()
            .map(|item| Ok(TestPhoto { lease: Arc::clone(&item.lease), _permit: None }))
            .collect())
    }
}

struct ThirdStage(FaultyStage);

impl Stage for ThirdStage {
    type In = TestPhoto;
    type Out = ();

    fn run(&mut self, batch: &[TestPhoto]) -> Result<BatchResults<()>, Outage> {
        self.0.inject_fault(&batch.iter().map(|item| Arc::clone(&item.lease)).collect::<Vec<_>>())?;
        let photos = batch.iter().map(|item| finished(&item.lease)).collect();
        self.0
            .store
            .call(Component::Database, self.0.queue.finish(photos))?
            .map_err(|error| Outage::from_store_error(Component::Database, error))?;
        Ok(batch.iter().map(|_| Ok(())).collect())
    }
}

fn finished(lease: &Lease) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: PhotoSize { width: 1, height: 1 },
        taken_at: None,
        camera: None,
        faces: Vec::new(),
        texts: Vec::new(),
    }
}

#[derive(Clone)]
struct StageResources {
    queue: Arc<MemoryQueue>,
    store: StoreClient,
}

/// The pipeline of failing stages.
pub(crate) struct FaultyPipeline {
    pub(crate) shared: Arc<SharedState>,
    stop: Sender<()>,
    supervisor: JoinHandle<StopReport>,
    /// The metrics of the supervisor's thread.
    metrics_page: PrometheusHandle,
    _runtime: tokio::runtime::Runtime,
}

/// Threads of each stage, and photos a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageShape {
    pub(crate) threads: usize,
    pub(crate) batch_size: usize,
}

/// How long a rig waits for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PipelineTimings {
    /// How long leases hold.
    pub(crate) lease_ttl: Duration,
    pub(crate) timeouts: SupervisorTimeouts,
    /// After so many failures in a row.
    pub(crate) backoff: fn(u32) -> Duration,
    /// After this photos that do not end hang.
    pub(crate) stall_timeout: Duration,
}

impl Default for PipelineTimings {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_millis(90),
            timeouts: SupervisorTimeouts::SERVICE,
            backoff: |_| Duration::from_millis(1),
            stall_timeout: Duration::from_secs(60),
        }
    }
}

impl FaultyPipeline {
    pub(crate) fn start(queue: &Arc<MemoryQueue>, faults: &Arc<FaultPlan>, shape: StageShape) -> Self {
        Self::start_with(PipelineTimings::default(), queue, faults, shape)
    }

    pub(crate) fn start_with(
        pace: PipelineTimings,
        queue: &Arc<MemoryQueue>,
        faults: &Arc<FaultPlan>,
        shape: StageShape,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::new(SharedState {
            status: Mutex::new(PipelineStatus::Starting),
            stats: Arc::new(PipelineStats::new(&STAGE_NAMES)),
            leases: Arc::new(LeaseTable::new(Arc::clone(queue) as Arc<dyn Queue>)),
            wakeup: Mutex::default(),
        });
        let calls = StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() };
        let (stop, stopped) = stop_channel();
        let supervisor = Supervisor {
            shared: Arc::clone(&shared),
            stop: stopped,
            renewer: LeaseRenewer::start(Arc::clone(&shared.leases), calls, pace.lease_ttl).unwrap(),
            runtime: runtime.handle().clone(),
            drain_grace: Duration::from_secs(10),
            backoff: pace.backoff,
            start_generation: generation_factory(
                queue,
                faults,
                (shape, pace),
                (Arc::clone(&shared), runtime.handle().clone()),
            ),
        };
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics_page = recorder.handle();
        let work =
            move || metrics::with_local_recorder(&recorder, || supervisor.run_with_timeouts(pace.timeouts));
        let supervisor = std::thread::Builder::new().name("supervisor".into()).spawn(work).unwrap();
        Self { shared, stop, supervisor, metrics_page, _runtime: runtime }
    }

    /// Whether the metrics of the supervisor's thread have this line.
    pub(crate) fn has_metric(&self, line: &str) -> bool {
        self.metrics_page.render().lines().any(|shown| shown == line)
    }

    pub(crate) fn stop(self) -> StopReport {
        self.stop.send(()).unwrap();
        self.supervisor.join().unwrap()
    }
}

fn generation_factory(
    queue: &Arc<MemoryQueue>,
    faults: &Arc<FaultPlan>,
    (shape, pace): (StageShape, PipelineTimings),
    (shared, runtime): (Arc<SharedState>, tokio::runtime::Handle),
) -> GenerationFactory {
    let (queue, faults) = (Arc::clone(queue), Arc::clone(faults));
    Box::new(move |kill| {
        faults.generations.fetch_add(1, Ordering::AcqRel);
        faults.fails_to_build.iter().for_each(|dying| dying.store(false, Ordering::Release));
        let calls = StoreClient { runtime: runtime.clone(), kill_switch: kill.clone() };
        let work = StageResources { queue: Arc::clone(&queue), store: calls.clone() };
        // Room for three items at once: stages wait for each other all the time.
        let budget = Budget::new(30);
        let (leased, one, two) = (bounded::<InFlight<Arc<Lease>>>(4), bounded(2), bounded(2));
        let mut crew = StageThreads::new(calls.clone(), Arc::clone(&shared.stats));
        let link = |number: usize| {
            let (faults, budget, work) = (Arc::clone(&faults), budget.clone(), work.clone());
            move || FaultyStage::new(number, &faults, &budget, &work)
        };
        let StageShape { threads, batch_size } = shape;
        let third = link(2);
        let build: crate::engine::runner::StageFactory<ThirdStage> =
            Arc::new(move || Ok(ThirdStage(third())));
        crew.spawn_stage(
            StageSpec { stage: "three", threads: 1, batch_size: 8, factory: build },
            Inlet(two.1),
            Outlet::Terminal(|()| PhotoOutcome::Ready),
        )?;
        let second = link(1);
        let build: crate::engine::runner::StageFactory<SecondStage> =
            Arc::new(move || Ok(SecondStage(second())));
        crew.spawn_stage(
            StageSpec { stage: "two", threads, batch_size, factory: build },
            Inlet(one.1),
            Outlet::Next(two.0),
        )?;
        let first = link(0);
        let build: crate::engine::runner::StageFactory<FirstStage> =
            Arc::new(move || Ok(FirstStage(first())));
        crew.spawn_stage(
            StageSpec { stage: "one", threads, batch_size: 1, factory: build },
            Inlet(leased.1),
            Outlet::Next(one.0),
        )?;
        let bell = bounded(1);
        let drain = Arc::new(AtomicBool::new(false));
        let feed = Feed {
            leases: Arc::clone(&shared.leases),
            store: calls,
            outlet: leased.0,
            wakeup: bell.1,
            is_draining: Arc::clone(&drain),
            lease_ttl: pace.lease_ttl,
            stats: shared.stats.stage("feed"),
        };
        let budgets = [budget.clone(), Budget::new(1)];
        Ok(PendingGeneration {
            generation: Generation {
                threads: crew,
                kill_switch: kill,
                is_draining: drain,
                wakeup: bell.0,
                budgets,
            },
            start_feed: Box::new(move |generation| {
                generation
                    .threads
                    .spawn_thread("feed", 0, move || feed.run_with_stall_timeout(pace.stall_timeout))
            }),
        })
    })
}
