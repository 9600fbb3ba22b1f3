//! A pipeline of three stages that only inject faults, run by the real feed, runner, generation and supervisor: for tests
//! of what happens to photos when parts of the pipeline fail.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use photofinish_models::onnx::kernels::DEVICE_CALL_LIMIT;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::PhotoSize;
use photofinish_store::traits::{Lease, PhotoResults, PictureSizes, Queue};
use tokio::runtime::Runtime;

use crate::engine::budget::{Budget, BudgetPermit, Budgets};
use crate::engine::cpu_shares::{CpuShares, ReservedCores};
use crate::engine::edge::{Inlet, edge};
use crate::engine::fault::{Component, Outage};
use crate::engine::generation::{Generation, StageSpec, StageThreads};
use crate::engine::leases::LeaseRenewer;
use crate::engine::outlet::Outlet;
use crate::engine::pipeline_stats::PipelineStats;
use crate::engine::runner::StageFactory;
use crate::engine::spans::PhotoOutcome;
use crate::engine::stage::{BatchResults, Stage};
use crate::engine::status::{SharedState, StopReport};
use crate::engine::store_client::{KillSwitch, StoreClient};
use crate::engine::supervisor::{
    POLL_INTERVAL, PendingGeneration, SupervisedDevice, Supervisor, stop_channel,
};
use crate::engine::supervisor_timeouts::SupervisorTimeouts;
use crate::engine::suspect_gate::SuspectGate;
use crate::stages::feed::{Feed, SuspectPatience};
use crate::stages::long_photos::LongPhotos;
use crate::testing::fault_plan::{FaultPlan, InjectedFault};
use crate::testing::memory_queue::MemoryQueue;

const STAGE_NAMES: [&str; 4] = ["feed", "one", "two", "three"];

/// The bytes of budget that each photo acquires in the first stage.
const PHOTO_BYTES: usize = 10;

/// A photo with a permit of a budget, as in the real stages.
#[derive(Debug)]
struct TestPhoto {
    lease: Arc<Lease>,
    _permit: Option<BudgetPermit>,
}

/// What the stages of one generation share.
#[derive(Clone)]
struct StageResources {
    plan: Arc<FaultPlan>,
    budget: Budget,
    queue: Arc<MemoryQueue>,
    store: StoreClient,
}

/// What the three stages have in common.
struct FaultyStage {
    index: usize,
    resources: StageResources,
}

impl FaultyStage {
    fn new(index: usize, resources: &StageResources) -> Self {
        let fails = resources.plan.fails_to_build[index].load(Ordering::Acquire);
        assert!(!fails, "injected panic while the stage is built");
        Self { index, resources: resources.clone() }
    }

    fn inject_fault(&self, batch: &[TestPhoto]) -> Result<(), Outage> {
        self.inject_fault_for(batch.iter().map(|photo| photo.lease.photo).collect())
    }

    fn inject_fault_for(&self, batch: HashSet<PhotoId>) -> Result<(), Outage> {
        let plan = &self.resources.plan;
        let run = plan.runs[self.index].fetch_add(1, Ordering::AcqRel);
        match plan.by_run.get(&(self.index, run)) {
            Some(InjectedFault::Panic) => panic!("injected panic"),
            Some(InjectedFault::PanicOnRebuild) => {
                plan.fails_to_build[self.index].store(true, Ordering::Release);
                panic!("injected panic")
            }
            Some(InjectedFault::Outage) => return Err(Outage::new(Component::Models, "injected outage")),
            Some(InjectedFault::SlowOutage) => {
                std::thread::sleep(3 * POLL_INTERVAL);
                return Err(Outage::new(Component::Models, "injected outage"));
            }
            Some(InjectedFault::HangUntilOpened) => {
                // Nothing is ever sent: the wait ends when the sender is dropped.
                let _opened = plan.gate.as_ref().map(Receiver::recv);
            }
            Some(InjectedFault::MissingResult) | None => {}
        }
        let is_second = self.index == 1;
        if is_second && !batch.is_disjoint(&plan.too_large) {
            return Err(Outage {
                counts_as_attempt: true,
                ..Outage::new(Component::Models, "injected lack of memory")
            });
        }
        let panics = is_second && !batch.is_disjoint(&plan.panicking);
        assert!(!panics, "injected panic of a photo");
        Ok(())
    }

    /// Whether the latest run of this stage returns too few results.
    fn drops_a_result(&self) -> bool {
        let run = self.resources.plan.runs[self.index].load(Ordering::Acquire).wrapping_sub(1);
        self.resources.plan.by_run.get(&(self.index, run)) == Some(&InjectedFault::MissingResult)
    }
}

struct FirstStage(FaultyStage);

impl Stage for FirstStage {
    type In = Arc<Lease>;
    type Out = TestPhoto;

    fn run(&mut self, batch: &[Arc<Lease>]) -> Result<BatchResults<TestPhoto>, Outage> {
        self.0.inject_fault_for(batch.iter().map(|lease| lease.photo).collect())?;
        let mut photos = Vec::new();
        for lease in batch {
            let permit = self.0.resources.budget.acquire(lease.organization, PHOTO_BYTES);
            let permit = permit.map_err(|closed| Outage::new(Component::Storage, closed.to_string()))?;
            photos.push(Ok(TestPhoto { lease: Arc::clone(lease), _permit: Some(permit) }));
        }
        Ok(photos)
    }
}

struct SecondStage(FaultyStage);

impl Stage for SecondStage {
    type In = TestPhoto;
    type Out = TestPhoto;

    fn run(&mut self, batch: &[TestPhoto]) -> Result<BatchResults<TestPhoto>, Outage> {
        self.0.resources.plan.batches.lock().unwrap().push(batch.len());
        std::thread::sleep(self.0.resources.plan.delay);
        self.0.inject_fault(batch)?;
        let result_count = batch.len() - usize::from(self.0.drops_a_result());
        let results = batch[..result_count].iter();
        Ok(results.map(|photo| Ok(TestPhoto { lease: Arc::clone(&photo.lease), _permit: None })).collect())
    }
}

struct ThirdStage(FaultyStage);

impl Stage for ThirdStage {
    type In = TestPhoto;
    type Out = ();

    fn run(&mut self, batch: &[TestPhoto]) -> Result<BatchResults<()>, Outage> {
        self.0.inject_fault(batch)?;
        let resources = &self.0.resources;
        let photos = batch.iter().map(|photo| empty_results(&photo.lease)).collect();
        resources
            .store
            .call(Component::Database, resources.queue.finish(photos))?
            .map_err(|error| Outage::from_store_error(Component::Database, error))?;
        Ok(batch.iter().map(|_| Ok(())).collect())
    }
}

fn empty_results(lease: &Lease) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: PhotoSize { width: 1, height: 1 },
        taken_at: None,
        camera: None,
        watermark_version: 0,
        pictures: PictureSizes::default(),
        skipped_runners: 0,
        faces: Vec::new(),
        texts: Vec::new(),
    }
}

/// The pipeline of faulty stages.
pub(crate) struct FaultyPipeline {
    pub(crate) shared: Arc<SharedState>,
    stop: Sender<()>,
    supervisor: JoinHandle<StopReport>,
    /// The metrics of the supervisor's thread.
    metrics_page: PrometheusHandle,
    _runtime: Runtime,
}

/// The threads and the batch size of each stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageShape {
    pub(crate) threads: usize,
    pub(crate) batch_size: usize,
}

/// The times that a test can shorten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PipelineTimings {
    pub(crate) lease_ttl: Duration,
    pub(crate) timeouts: SupervisorTimeouts,
    /// Returns the pause after a number of consecutive failures.
    pub(crate) backoff: fn(u32) -> Duration,
    /// When photos in flight make no progress for so long, the pipeline is stalled.
    pub(crate) stall_timeout: Duration,
    /// For how long a crash suspect keeps photos from other lanes.
    pub(crate) suspect_patience: SuspectPatience,
    /// How long a stop waits for photos in flight.
    pub(crate) drain_grace: Duration,
}

impl Default for PipelineTimings {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_millis(90),
            timeouts: SupervisorTimeouts::SERVICE,
            backoff: |_| Duration::from_millis(1),
            stall_timeout: Duration::from_secs(60),
            suspect_patience: SuspectPatience::default(),
            drain_grace: Duration::from_secs(10),
        }
    }
}

impl FaultyPipeline {
    pub(crate) fn start(queue: &Arc<MemoryQueue>, plan: &Arc<FaultPlan>, shape: StageShape) -> Self {
        Self::start_with(PipelineTimings::default(), queue, plan, shape)
    }

    pub(crate) fn start_with(
        timings: PipelineTimings,
        queue: &Arc<MemoryQueue>,
        plan: &Arc<FaultPlan>,
        shape: StageShape,
    ) -> Self {
        Self::start_lane(&Arc::default(), timings, queue, plan, shape)
    }

    /// Starts several lanes of one process.
    pub(crate) fn start_lanes(
        count: usize,
        queue: &Arc<MemoryQueue>,
        plan: &Arc<FaultPlan>,
        shape: StageShape,
    ) -> Vec<Self> {
        let gate = Arc::default();
        (0..count).map(|_| Self::start_lane(&gate, PipelineTimings::default(), queue, plan, shape)).collect()
    }

    /// Starts one of the lanes that share a gate.
    pub(crate) fn start_lane(
        gate: &Arc<SuspectGate>,
        timings: PipelineTimings,
        queue: &Arc<MemoryQueue>,
        plan: &Arc<FaultPlan>,
        shape: StageShape,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let stats = Arc::new(PipelineStats::new(&STAGE_NAMES));
        let queue_of_lane = Arc::clone(queue) as Arc<dyn Queue>;
        let shared = Arc::new(SharedState::new(stats, queue_of_lane, gate));
        let store = StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() };
        let assembly = FaultyAssembly {
            queue: Arc::clone(queue),
            plan: Arc::clone(plan),
            shape,
            timings,
            shared: Arc::clone(&shared),
            runtime: runtime.handle().clone(),
        };
        let (stop, stopped) = stop_channel();
        let supervisor = Supervisor {
            device: SupervisedDevice { name: "device 0".to_owned(), is_only: true },
            shared: Arc::clone(&shared),
            stop: stopped,
            renewer: LeaseRenewer::start(Arc::clone(&shared.leases), store, timings.lease_ttl).unwrap(),
            runtime: runtime.handle().clone(),
            drain_grace: timings.drain_grace,
            backoff: timings.backoff,
            free_idle_memory: Box::new(|| ()),
            longest_device_call: Box::new(|| None),
            device_call_limit: DEVICE_CALL_LIMIT,
            start_generation: Box::new(move |kill_switch| assembly.start_generation(kill_switch)),
        };
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics_page = recorder.handle();
        let work = move || {
            metrics::with_local_recorder(&recorder, || supervisor.run_with_timeouts(timings.timeouts))
        };
        let supervisor = std::thread::Builder::new().name("supervisor".into()).spawn(work).unwrap();
        Self { shared, stop, supervisor, metrics_page, _runtime: runtime }
    }

    /// Whether the metrics of the supervisor's thread contain this line.
    pub(crate) fn has_metric(&self, expected: &str) -> bool {
        self.metrics_page.render().lines().any(|line| line == expected)
    }

    pub(crate) fn stop(self) -> StopReport {
        self.stop.send(()).unwrap();
        self.supervisor.join().unwrap()
    }
}

/// Starts generations of the faulty stages.
struct FaultyAssembly {
    queue: Arc<MemoryQueue>,
    plan: Arc<FaultPlan>,
    shape: StageShape,
    timings: PipelineTimings,
    shared: Arc<SharedState>,
    runtime: tokio::runtime::Handle,
}

impl FaultyAssembly {
    fn start_generation(&self, kill_switch: KillSwitch) -> Result<PendingGeneration, Outage> {
        self.plan.generations.fetch_add(1, Ordering::AcqRel);
        self.plan.fails_to_build.iter().for_each(|fails| fails.store(false, Ordering::Release));
        let store = StoreClient { runtime: self.runtime.clone(), kill_switch: kill_switch.clone() };
        let (leased_tx, leased_rx) = edge(4);
        let (wakeup_tx, wakeup_rx) = bounded(1);
        let is_draining = Arc::new(AtomicBool::new(false));
        let feed = Feed {
            leases: Arc::clone(&self.shared.leases),
            suspect_gate: Arc::clone(&self.shared.suspect_gate),
            store: store.clone(),
            outlet: leased_tx,
            long_photos: LongPhotos::new(1, |_| false),
            wakeup: wakeup_rx,
            is_draining: Arc::clone(&is_draining),
            lease_ttl: self.timings.lease_ttl,
            suspect_patience: self.timings.suspect_patience,
            stats: self.shared.stats.stage("feed"),
        };
        // Three photos fit at once, so that stages wait for each other all the time.
        let budgets = Budgets { files: Budget::new(3 * PHOTO_BYTES), pixels: Budget::new(1) };
        let cpu_shares = CpuShares::new(2, &ReservedCores::default());
        let mut threads = StageThreads::new(store.clone(), Arc::clone(&self.shared.stats), cpu_shares);
        self.spawn_stages(&mut threads, store, &budgets, leased_rx)?;
        let stall_timeout = self.timings.stall_timeout;
        Ok(PendingGeneration {
            generation: Generation { threads, kill_switch, is_draining, wakeup: wakeup_tx, budgets },
            start_feed: Box::new(move |generation| {
                generation.threads.spawn_thread("feed", 0, move || feed.run_with_stall_timeout(stall_timeout))
            }),
        })
    }

    fn spawn_stages(
        &self,
        threads: &mut StageThreads,
        store: StoreClient,
        budgets: &Budgets,
        leased_rx: Inlet<Arc<Lease>, Infallible>,
    ) -> Result<(), Outage> {
        let (plan, queue) = (Arc::clone(&self.plan), Arc::clone(&self.queue));
        let resources = StageResources { plan, budget: budgets.files.clone(), queue, store };
        let StageShape { threads: count, batch_size } = self.shape;
        let one = StageSpec::new("one", count, 1, factory(0, FirstStage, &resources));
        let two = StageSpec::new("two", count, batch_size, factory(1, SecondStage, &resources));
        let three = StageSpec::new("three", 1, 8, factory(2, ThirdStage, &resources));
        let (one_tx, one_rx) = edge(2);
        let (two_tx, two_rx) = edge(2);
        threads.spawn_stage(one, leased_rx, Outlet::to(one_tx))?;
        threads.spawn_stage(two, one_rx, Outlet::to(two_tx))?;
        threads.spawn_stage(three, two_rx, Outlet::Terminal(|()| PhotoOutcome::Ready))
    }
}

fn factory<S: Stage + 'static>(
    index: usize,
    wrap: fn(FaultyStage) -> S,
    resources: &StageResources,
) -> StageFactory<S> {
    let resources = resources.clone();
    Arc::new(move || Ok(wrap(FaultyStage::new(index, &resources))))
}
