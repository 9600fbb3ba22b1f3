//! Runs a stage on its thread: forms batches, confines a panic to the photo that caused it, and forwards the results. It
//! knows nothing of what the stage does, and of the other stages only the edge to the next one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use photofinish_store::model::cost::{OVERHEAD_STAGE, Spent};
use photofinish_store::model::photo::FailureReason;
use photofinish_store::panic_message;

use crate::engine::cpu_shares::{CpuShares, HeldShare};
use crate::engine::edge::{Inlet, OpenPhoto, Received};
use crate::engine::fault::{Outage, Poison};
use crate::engine::outlet::Outlet;
use crate::engine::spans::{PhotoOutcome, StageSpan};
use crate::engine::stage::{Step, StepResults, SteppedStage};
use crate::engine::stage_shares::StageShares;
use crate::engine::stage_stats::{StageStats, begin_overhead, carry_overhead};
use crate::engine::store_client::StoreClient;
use crate::engine::ticket::{InFlight, Ticket};

/// Builds a stage on the thread that will own it, and rebuilds it after a panic.
pub(crate) type StageFactory<S> = Arc<dyn Fn() -> Result<S, Outage> + Send + Sync>;

/// What the steps of a batch did with its photos.
type ResultsOf<S> = StepResults<<S as SteppedStage>::Part, <S as SteppedStage>::Out>;

/// Why a thread of the pipeline ended.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The previous stage has ended and everything it sent is processed.
    Drained,
    /// The next stage has ended.
    DownstreamClosed,
    /// The generation was ended.
    Killed,
    /// A component is down.
    Outage(Outage),
    /// The thread panicked outside of the processing of a batch.
    Panicked(String),
}

/// One thread of a stage.
pub(crate) struct Worker<S: SteppedStage> {
    pub(crate) factory: StageFactory<S>,
    pub(crate) batch_size: usize,
    pub(crate) inlet: Inlet<S::In, S::Part>,
    pub(crate) outlet: Outlet<S::Out>,
    pub(crate) stats: Arc<StageStats>,
    pub(crate) store: StoreClient,
    /// Of the cores, for a stage that computes on them.
    pub(crate) cpu_shares: Option<StageShares>,
    /// Whether the worker ended because nothing was left to do; its edge then belongs to the other threads of the stage.
    pub(crate) has_drained: bool,
}

impl<S: SteppedStage> Drop for Worker<S> {
    fn drop(&mut self) {
        if !self.has_drained {
            // The whole generation ends, so photos that another thread of the stage could still take go back too.
            self.inlet.close();
        }
        self.stats.reset_depth();
    }
}

/// The photos of a batch, by what is known of them; all of the same length.
struct Batch<S: SteppedStage> {
    tickets: Vec<Ticket>,
    items: Vec<S::In>,
    parts: Vec<Vec<S::Part>>,
    spans: Vec<StageSpan>,
}

/// A photo with which this stage is done.
struct EndedPhoto<T> {
    ticket: Ticket,
    result: Result<T, Poison>,
}

impl<S: SteppedStage> Worker<S> {
    /// Builds the stage, calls `ready`, then processes batches until there is nothing more to do.
    pub(crate) fn run(mut self, ready: impl FnOnce()) -> Exit {
        let mut stage = match (self.factory)() {
            Ok(stage) => Some(stage),
            Err(outage) => return Exit::Outage(outage),
        };
        ready();
        begin_overhead();
        loop {
            let batch = self.next_batch();
            if self.store.kill_switch.is_set() {
                return Exit::Killed;
            }
            let Some(batch) = batch else {
                self.has_drained = true;
                return Exit::Drained;
            };
            let mut timer = self.stats.start_batch();
            let (batch, share) = self.wait_for_share(batch);
            let step_began = timer.begin_step();
            // Before the stage runs: the last one writes what its photos cost.
            charge_overhead(&batch, timer.take_overhead());
            let results = match self.run_isolated(&mut stage, &batch) {
                Ok(results) => results,
                Err(outage) => {
                    drop(share);
                    let spent = timer.finish_step(batch.items.len(), 0);
                    self.charge(&batch, spent);
                    return self.exit_after(outage, batch.tickets);
                }
            };
            let count = |is_counted: fn(&Step<S::Part, S::Out>) -> bool| {
                results.iter().flatten().filter(|step| is_counted(step)).count()
            };
            let waiting = count(|step| matches!(step, Step::Wait(_)));
            let more = count(|step| matches!(step, Step::Part(_)));
            let spent = timer.finish_step(batch.items.len() - waiting, batch.items.len() - waiting - more);
            match self.outlet {
                Outlet::Next(_) => self.charge(&batch, spent),
                // The costs of its photos are written already.
                Outlet::Terminal(_) => carry_overhead(spent.cpu),
            }
            // Photos that wait took no step.
            if waiting == 0 {
                self.record_step(&batch, step_began.elapsed());
            }
            let ended = self.put_back_unfinished(batch, results);
            match self.forward_results(ended, share) {
                Ok(true) => {}
                Ok(false) => return Exit::DownstreamClosed,
                Err(outage) => return Exit::Outage(outage),
            }
        }
    }

    /// Shares what a step spent between the photos of a batch.
    fn charge(&self, batch: &Batch<S>, spent: Spent) {
        let weights: Vec<u64> =
            batch.items.iter().zip(&batch.parts).map(|(item, parts)| S::weigh(item, parts)).collect();
        let all = weights.iter().sum::<u64>().max(1);
        for (ticket, weight) in batch.tickets.iter().zip(weights) {
            let share = weight as f64 / all as f64;
            let (cpu, device) = (spent.cpu.mul_f64(share), spent.device.mul_f64(share));
            ticket.charge(self.stats.name(), Spent { cpu, device, ..Spent::default() });
        }
    }

    /// Records how long a step took, in equal parts for the photos of its batch.
    fn record_step(&self, batch: &Batch<S>, took: Duration) {
        let photos = u32::try_from(batch.tickets.len()).unwrap_or(u32::MAX).max(1);
        for ticket in &batch.tickets {
            self.inlet.record_step(ticket.organization(), took / photos);
        }
    }

    /// Waits for a core, for a stage that computes on them. When the core is for another organization, whose photo came
    /// meanwhile, that photo is taken instead.
    fn wait_for_share(&self, mut batch: Batch<S>) -> (Batch<S>, Option<HeldShare>) {
        // Of several one is enough.
        let carried = batch.tickets.iter_mut().filter_map(Ticket::take_share).last();
        let (Some(StageShares { shares, candidates }), Some(ticket)) =
            (&self.cpu_shares, batch.tickets.first())
        else {
            return (batch, None);
        };
        if let Some(share) = carried {
            return (batch, Some(CpuShares::hold_carried(share)));
        }
        let owner = ticket.organization();
        let mut share = shares.hold(owner, candidates);
        if share.owner == owner {
            return (batch, Some(share));
        }
        let has_space = |other| other == share.owner && self.outlet.has_space(other);
        // Another thread of the stage may have taken it.
        let Some(mut photo) = self.inlet.try_recv(has_space) else {
            share.charge_to(owner);
            return (batch, Some(share));
        };
        drop(photo.photo.ticket.take_share());
        let Batch { tickets, items, parts, spans } = batch;
        // The last one first, so that they keep their order.
        for (((ticket, item), parts), span) in tickets.into_iter().zip(items).zip(parts).zip(spans).rev() {
            let photo = InFlight { ticket, item };
            self.inlet.put_back_first(OpenPhoto { photo, parts, span: Some(span) });
        }
        (self.open_batch(vec![photo]), Some(share))
    }

    /// Gives the photos of a batch back after an outage. Their attempts count where one of them may be the cause, but
    /// never when the generation is ending anyway.
    fn exit_after(&self, outage: Outage, tickets: Vec<Ticket>) -> Exit {
        if self.store.kill_switch.is_set() {
            return Exit::Killed;
        }
        if outage.counts_as_attempt {
            tickets.into_iter().for_each(Ticket::leave_to_expire);
        }
        Exit::Outage(outage)
    }

    /// Waits for one photo, then adds those that are queued already, up to the batch size, without waiting for more. So
    /// a busy device gets large batches, and an idle one starts at once.
    fn next_batch(&self) -> Option<Batch<S>> {
        let has_space = |organization| self.outlet.has_space(organization);
        let Received { photo, starved, blocked } = self.inlet.recv(has_space)?;
        let mut photos = Vec::with_capacity(self.batch_size);
        photos.push(photo);
        while photos.len() < self.batch_size
            && let Some(photo) = self.inlet.try_recv(has_space)
        {
            photos.push(photo);
        }
        self.stats.record_received(photos.len(), || self.inlet.len(), starved);
        self.stats.record_blocked_out(blocked);
        Some(self.open_batch(photos))
    }

    fn open_batch(&self, photos: Vec<OpenPhoto<S::In, S::Part>>) -> Batch<S> {
        let batch_size = photos.len();
        let empty = Batch { tickets: Vec::new(), items: Vec::new(), parts: Vec::new(), spans: Vec::new() };
        photos.into_iter().fold(empty, |mut batch, OpenPhoto { photo, parts, span }| {
            batch.spans.push(span.unwrap_or_else(|| self.open_stage_span(&photo.ticket, batch_size)));
            batch.tickets.push(photo.ticket);
            batch.items.push(photo.item);
            batch.parts.push(parts);
            batch
        })
    }

    fn open_stage_span(&self, ticket: &Ticket, batch_size: usize) -> StageSpan {
        StageSpan::new(ticket.span().clone(), self.stats.name(), batch_size, ticket.waiting_time())
    }

    /// Runs a step of each photo. After a panic the stage, whose state is then unknown, is rebuilt and the batch is run
    /// photo by photo; a photo that panics alone is a poison.
    fn run_isolated(&self, stage: &mut Option<S>, batch: &Batch<S>) -> Result<ResultsOf<S>, Outage> {
        let _entered = StageSpan::enter_single(&batch.spans);
        match self.run_catching_panics(stage, &batch.items, &batch.parts)? {
            BatchOutcome::Completed(results) => return Ok(results),
            BatchOutcome::Panicked(message) => {
                let stage = self.stats.name();
                let photos = batch.items.len();
                tracing::warn!(stage, photos, message, "batch panicked, retrying its photos one by one");
            }
        }
        let mut results = Vec::with_capacity(batch.items.len());
        for ((item, parts), span) in batch.items.iter().zip(&batch.parts).zip(&batch.spans) {
            let _entered = span.enter();
            let (item, parts) = (std::slice::from_ref(item), std::slice::from_ref(parts));
            match self.run_catching_panics(stage, item, parts)? {
                BatchOutcome::Completed(result) => results.extend(result),
                BatchOutcome::Panicked(message) => results.push(Err(Poison::new(
                    FailureReason::ProcessingCrashed,
                    format!("stage {} panicked: {message}", self.stats.name()),
                ))),
            }
        }
        Ok(results)
    }

    /// Runs the stage on a batch and rebuilds it after a panic or a wrong number of results. The broken one goes first: both may
    /// not fit into the memory of a device. If there is none afterwards the attempt counts, because a photo that breaks it
    /// each time would stop all others forever.
    fn run_catching_panics(
        &self,
        stage: &mut Option<S>,
        items: &[S::In],
        parts: &[Vec<S::Part>],
    ) -> Result<BatchOutcome<ResultsOf<S>>, Outage> {
        let working = match stage {
            Some(stage) => stage,
            None => stage.insert((self.factory)()?),
        };
        let message = match catch_unwind(AssertUnwindSafe(|| working.step(items, parts))) {
            Ok(Ok(results)) if results.len() == items.len() => return Ok(BatchOutcome::Completed(results)),
            Ok(Ok(results)) => format!("{} results for {} photos", results.len(), items.len()),
            Ok(Err(outage)) => return Err(outage),
            Err(panic) => panic_message(panic.as_ref()),
        };
        self.stats.record_panic();
        let broken = stage.take();
        if catch_unwind(AssertUnwindSafe(|| drop(broken))).is_err() {
            tracing::warn!(stage = self.stats.name(), "stage panicked again while it was dropped");
        }
        let rebuilt = (self.factory)().map_err(|outage| Outage { counts_as_attempt: true, ..outage })?;
        *stage = Some(rebuilt);
        Ok(BatchOutcome::Panicked(message))
    }

    /// Puts back the photos that need more steps, and returns the others without their inputs, whose memory is freed
    /// before any of them is sent on.
    fn put_back_unfinished(&self, batch: Batch<S>, results: ResultsOf<S>) -> Vec<EndedPhoto<S::Out>> {
        let Batch { tickets, items, parts, spans } = batch;
        let mut ended = Vec::with_capacity(results.len());
        let photos = tickets.into_iter().zip(items).zip(parts).zip(spans);
        for ((((mut ticket, item), mut parts), span), result) in photos.zip(results) {
            if !matches!(result, Ok(Step::Wait(_))) {
                ticket.mark_waiting();
            }
            match result {
                Ok(Step::Part(part)) => {
                    S::add_part(&mut parts, part);
                    let photo = InFlight { ticket, item };
                    self.inlet.put_back(OpenPhoto { photo, parts, span: Some(span) });
                }
                Ok(Step::Wait(part)) => {
                    if let Some(part) = part {
                        S::add_part(&mut parts, part);
                    }
                    let photo = InFlight { ticket, item };
                    self.inlet.put_back_waiting(OpenPhoto { photo, parts, span: Some(span) });
                }
                Ok(Step::Done(output)) => ended.push(EndedPhoto { ticket, result: Ok(output) }),
                Err(poison) => ended.push(EndedPhoto { ticket, result: Err(poison) }),
            }
        }
        ended
    }

    /// Sends each photo to the next stage or ends it. Returns `false` when the next stage has ended. The share is given back
    /// when the photos are where others see them, or goes along with the photo.
    fn forward_results(
        &self,
        mut photos: Vec<EndedPhoto<S::Out>>,
        share: Option<HeldShare>,
    ) -> Result<bool, Outage> {
        let _until_sent = share.and_then(|share| self.pass_share(&mut photos, share));
        for EndedPhoto { ticket, result } in photos {
            match (result, &self.outlet) {
                (Err(poison), _) => ticket.fail(&poison, &self.store)?,
                (Ok(result), Outlet::Terminal(to_outcome)) => {
                    let outcome = to_outcome(&result);
                    ticket.finish(outcome);
                    if outcome == PhotoOutcome::Ready {
                        self.stats.record_finished();
                    }
                }
                (Ok(item), Outlet::Next(sender)) => {
                    if sender.send(InFlight { ticket, item }).is_err() {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Lets a photo take the share along to a stage that waits for it. Returns the share if it stays with this thread until
    /// the photos are sent.
    fn pass_share(&self, photos: &mut [EndedPhoto<S::Out>], share: HeldShare) -> Option<HeldShare> {
        let Outlet::Next(sender) = &self.outlet else { return None };
        match photos {
            // A failure is written to the database, which needs no core.
            photos if photos.iter().any(|photo| photo.result.is_err()) => None,
            [photo] if photo.ticket.organization() == share.owner && sender.is_awaited() => {
                if let Some(share) = share.carry() {
                    photo.ticket.carry(share);
                }
                None
            }
            _ => Some(share),
        }
    }
}

/// Charges the photos of a batch what the thread spent since its last one.
fn charge_overhead<S: SteppedStage>(batch: &Batch<S>, cpu: Duration) {
    let cpu = cpu / u32::try_from(batch.tickets.len()).unwrap_or(u32::MAX).max(1);
    for ticket in &batch.tickets {
        ticket.charge(OVERHEAD_STAGE, Spent { cpu, ..Spent::default() });
    }
}

/// The outcome of one call of a stage.
enum BatchOutcome<R> {
    Completed(R),
    Panicked(String),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crossbeam_channel::{Receiver, Sender, bounded};
    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
    use photofinish_store::model::cost::thread_cpu_time;
    use photofinish_store::model::ids::{OrganizationId, PhotoId};
    use photofinish_store::traits::{LeaseKind, LeaseRequest, Queue};
    use tokio::runtime::Runtime;

    use super::*;
    use crate::engine::edge::{PhotoSender, edge};
    use crate::engine::fault::Component;
    use crate::engine::leases::LeaseTable;
    use crate::engine::stage::{BatchResults, Stage};
    use crate::engine::store_client::KillSwitch;
    use crate::engine::sync::lock;
    use crate::testing::lease_of;
    use crate::testing::memory_queue::MemoryQueue;

    /// What [`RecordingStage`] saw while it ran a batch.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct RecordedBatch {
        photos: usize,
        /// The value of the gauge of the channel's depth.
        shown_depth: String,
    }

    fn recorded(photos: usize, shown_depth: &str) -> RecordedBatch {
        RecordedBatch { photos, shown_depth: shown_depth.to_owned() }
    }

    /// A stage that records its batches and returns an outage in batch number `fails_at`, counted from 1.
    struct RecordingStage {
        metrics_page: PrometheusHandle,
        batches: Arc<Mutex<Vec<RecordedBatch>>>,
        fails_at: usize,
    }

    impl Stage for RecordingStage {
        type In = ();
        type Out = ();

        fn run(&mut self, batch: &[()]) -> Result<BatchResults<()>, Outage> {
            let mut batches = lock(&self.batches);
            batches.push(recorded(batch.len(), &shown_depth(&self.metrics_page)));
            if batches.len() == self.fails_at {
                return Err(Outage::new(Component::Models, "injected outage"));
            }
            Ok(batch.iter().map(|()| Ok(())).collect())
        }
    }

    fn shown_depth(page: &PrometheusHandle) -> String {
        let page = page.render();
        let depth = page.lines().find_map(|line| line.strip_prefix("photofinish_edge_depth{stage=\"one\"} "));
        depth.unwrap_or("nothing").to_owned()
    }

    /// Runs a worker with batches of 8 over 20 photos on this thread. Returns its exit and the recorded batches.
    fn run_worker(recorder: &PrometheusRecorder, fails_at: usize) -> (Exit, Vec<RecordedBatch>) {
        let runtime = Runtime::new().unwrap();
        let photos: Vec<PhotoId> = (0..20).map(|_| PhotoId::generate()).collect();
        let queue = MemoryQueue::with_photos(&photos);
        let leases = Arc::new(LeaseTable::new(Arc::clone(&queue) as Arc<dyn Queue>));
        let request = LeaseRequest { limit: 20, ttl: Duration::from_secs(60), kind: LeaseKind::Fresh };
        let (sender, inlet) = edge(20);
        for lease in runtime.block_on(queue.lease(request)).unwrap() {
            let ticket = Ticket::open(&leases, Arc::new(lease));
            sender.send(InFlight { ticket, item: () }).unwrap();
        }
        drop(sender);
        let (metrics_page, batches) = (recorder.handle(), Arc::<Mutex<Vec<RecordedBatch>>>::default());
        let stage_batches = Arc::clone(&batches);
        let factory: StageFactory<RecordingStage> = Arc::new(move || {
            let (metrics_page, batches) = (metrics_page.clone(), Arc::clone(&stage_batches));
            Ok(RecordingStage { metrics_page, batches, fails_at })
        });
        let worker = Worker {
            factory,
            batch_size: 8,
            inlet,
            outlet: Outlet::Terminal(|()| PhotoOutcome::Ready),
            stats: Arc::new(StageStats::new("one")),
            store: StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() },
            cpu_shares: None,
            has_drained: false,
        };
        let exit = metrics::with_local_recorder(recorder, || worker.run(|| {}));
        let batches = lock(&batches).clone();
        (exit, batches)
    }

    #[test]
    fn the_depth_gauge_shows_what_waits_when_a_batch_is_taken() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (exit, batches) = run_worker(&recorder, usize::MAX);
        assert!(matches!(exit, Exit::Drained), "{exit:?}");
        assert_eq!(batches, [recorded(8, "12"), recorded(8, "4"), recorded(4, "0")]);
    }

    #[test]
    fn nothing_waits_for_a_thread_that_has_ended() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (exit, batches) = run_worker(&recorder, 1);
        assert!(matches!(exit, Exit::Outage(_)), "{exit:?}");
        assert_eq!(batches, [recorded(8, "12")]);
        assert_eq!(shown_depth(&recorder.handle()), "0");
    }

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// A stage whose calls begin and end when the test says so.
    struct PacedStage {
        /// Is sent the photos of each call when it begins.
        began: Sender<usize>,
        /// Lets a call end.
        may_end: Receiver<()>,
    }

    impl Stage for PacedStage {
        type In = ();
        type Out = ();

        fn run(&mut self, batch: &[()]) -> Result<BatchResults<()>, Outage> {
            self.began.send(batch.len()).unwrap();
            self.may_end.recv_timeout(TIMEOUT).unwrap();
            Ok(batch.iter().map(|()| Ok(())).collect())
        }
    }

    /// A device that is idle takes what there is; what arrives while it works is its next call.
    #[test]
    fn a_lone_photo_starts_at_once_and_one_that_arrives_meanwhile_goes_right_after_it() {
        let runtime = Runtime::new().unwrap();
        let leases = Arc::new(LeaseTable::new(Arc::new(MemoryQueue::default())));
        let (sender, inlet) = edge(8);
        let (next_sender, next_inlet) = edge::<(), Infallible>(8);
        let (began_sender, began) = bounded(8);
        let (end_call, may_end) = bounded(8);
        let factory: StageFactory<PacedStage> =
            Arc::new(move || Ok(PacedStage { began: began_sender.clone(), may_end: may_end.clone() }));
        let worker = Worker {
            factory,
            batch_size: 8,
            inlet,
            outlet: Outlet::to(next_sender),
            stats: Arc::new(StageStats::new("one")),
            store: StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() },
            cpu_shares: None,
            has_drained: false,
        };
        let thread = std::thread::Builder::new().spawn(move || worker.run(|| {})).unwrap();
        let organization = OrganizationId::generate();
        let send = || {
            let ticket = Ticket::open(&leases, Arc::new(lease_of(organization)));
            sender.send(InFlight { ticket, item: () }).unwrap();
        };
        // No more follow for now, and the sender stays: nothing but the photo itself says that a call may begin.
        send();
        assert_eq!(began.recv_timeout(TIMEOUT), Ok(1));
        send();
        end_call.send(()).unwrap();
        assert_eq!(began.recv_timeout(TIMEOUT), Ok(1), "without waiting for seven others");
        (0..3).for_each(|_| send());
        end_call.send(()).unwrap();
        assert_eq!(began.recv_timeout(TIMEOUT), Ok(3), "all that arrived meanwhile");
        end_call.send(()).unwrap();
        drop(sender);
        let exit = thread.join().unwrap();
        assert!(matches!(exit, Exit::Drained), "{exit:?}");
        assert_eq!(std::iter::from_fn(|| next_inlet.try_recv(|_| true)).count(), 5);
    }

    /// A stage that takes as many steps for a photo as its item says, and records the item of each step.
    struct SteppingStage {
        log: Arc<Mutex<Vec<usize>>>,
        /// Called before each step with the number of steps so far.
        before_step: Arc<dyn Fn(usize) + Send + Sync>,
    }

    impl SteppedStage for SteppingStage {
        type In = usize;
        type Part = usize;
        type Out = Vec<usize>;

        fn step(
            &mut self,
            batch: &[usize],
            parts: &[Vec<usize>],
        ) -> Result<StepResults<usize, Vec<usize>>, Outage> {
            let taken = lock(&self.log).len();
            (self.before_step)(taken);
            let step = |(steps, parts): (&usize, &Vec<usize>)| {
                lock(&self.log).push(*steps);
                if parts.len() + 1 < *steps {
                    return Ok(Step::Part(parts.len()));
                }
                let mut all = parts.clone();
                all.push(parts.len());
                Ok(Step::Done(all))
            };
            Ok(batch.iter().zip(parts).map(step).collect())
        }
    }

    /// What a worker of [`SteppingStage`] did.
    struct SteppingRun {
        exit: Exit,
        steps: Vec<usize>,
        /// What the next stage was sent.
        sent: Vec<Vec<usize>>,
        leases: Arc<LeaseTable>,
    }

    /// Runs a worker over photos of these owners, which take so many steps.
    fn run_stepping(
        photos: &[(OrganizationId, usize)],
        kill_switch: &KillSwitch,
        before_step: impl Fn(usize) + Send + Sync + 'static,
    ) -> SteppingRun {
        let runtime = Runtime::new().unwrap();
        let leases = Arc::new(LeaseTable::new(Arc::new(MemoryQueue::default())));
        let (sender, inlet) = edge(8);
        let (next_sender, next_inlet) = edge::<Vec<usize>, Infallible>(8);
        for (organization, steps) in photos {
            let ticket = Ticket::open(&leases, Arc::new(lease_of(*organization)));
            sender.send(InFlight { ticket, item: *steps }).unwrap();
        }
        drop(sender);
        let (log, before_step) = (Arc::<Mutex<Vec<usize>>>::default(), Arc::new(before_step));
        let stage_log = Arc::clone(&log);
        let worker = Worker {
            factory: Arc::new(move || {
                let before_step: Arc<dyn Fn(usize) + Send + Sync> = before_step.clone();
                Ok(SteppingStage { log: Arc::clone(&stage_log), before_step })
            }),
            batch_size: 1,
            inlet,
            outlet: Outlet::to(next_sender),
            stats: Arc::new(StageStats::new("one")),
            store: StoreClient { runtime: runtime.handle().clone(), kill_switch: kill_switch.clone() },
            cpu_shares: None,
            has_drained: false,
        };
        let exit = worker.run(|| {});
        let sent = std::iter::from_fn(|| next_inlet.try_recv(|_| true)).map(|open| open.photo.item).collect();
        let steps = lock(&log).clone();
        SteppingRun { exit, steps, sent, leases }
    }

    const BURNT: Duration = Duration::from_millis(1);

    fn burn() {
        let until = thread_cpu_time() + BURNT;
        while thread_cpu_time() < until {}
    }

    /// A photo whose memory takes long to be freed, which is after its step.
    struct Heavy;

    impl Drop for Heavy {
        fn drop(&mut self) {
            burn();
        }
    }

    struct BurningStage;

    impl Stage for BurningStage {
        type In = Heavy;
        type Out = ();

        fn run(&mut self, batch: &[Heavy]) -> Result<BatchResults<()>, Outage> {
            batch.iter().for_each(|_| burn());
            Ok(batch.iter().map(|_| Ok(())).collect())
        }
    }

    #[test]
    fn what_a_thread_spends_between_photos_is_charged_as_overhead() {
        const PHOTOS: usize = 100;
        let runtime = Runtime::new().unwrap();
        let leases = Arc::new(LeaseTable::new(Arc::new(MemoryQueue::default())));
        let (sender, inlet) = edge(PHOTOS);
        let (next_sender, next_inlet) = edge::<(), Infallible>(PHOTOS);
        let photos: Vec<Arc<_>> =
            (0..PHOTOS).map(|_| Arc::new(lease_of(OrganizationId::generate()))).collect();
        for lease in &photos {
            let ticket = Ticket::open(&leases, Arc::clone(lease));
            sender.send(InFlight { ticket, item: Heavy }).unwrap();
        }
        drop(sender);
        // What is spent until the stage is ready is for no photo.
        let factory: StageFactory<BurningStage> = Arc::new(|| {
            (0..50).for_each(|_| burn());
            Ok(BurningStage)
        });
        let worker = Worker {
            factory,
            batch_size: 1,
            inlet,
            outlet: Outlet::to(next_sender),
            stats: Arc::new(StageStats::new("one")),
            store: StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() },
            cpu_shares: None,
            has_drained: false,
        };
        let mut cpu_when_ready = Duration::ZERO;
        let recorder = PrometheusBuilder::new().build_recorder();
        let exit =
            metrics::with_local_recorder(&recorder, || worker.run(|| cpu_when_ready = thread_cpu_time()));
        assert!(matches!(exit, Exit::Drained), "{exit:?}");
        let of_thread = thread_cpu_time() - cpu_when_ready;
        let mut charged = BTreeMap::<&str, Duration>::new();
        for (stage, spent) in photos.iter().flat_map(|lease| lease.spent.by_stage()) {
            *charged.entry(stage).or_default() += spent.cpu;
        }
        let all: Duration = charged.values().sum();
        assert!(all <= of_thread && all >= of_thread.mul_f64(0.98), "{charged:?} of {of_thread:?}");
        let expected = BURNT * PHOTOS as u32;
        assert!(charged[OVERHEAD_STAGE] >= expected - BURNT && charged["one"] >= expected, "{charged:?}");
        let page = recorder.handle().render();
        let metered = |name: &str| -> f64 {
            let name = format!("photofinish_stage_{name}_seconds_total{{stage=\"one\"}} ");
            page.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
        };
        let metered = metered("cpu") + metered("overhead_cpu");
        assert!((all.as_secs_f64() / metered - 1.0).abs() < 0.001, "{all:?} of {metered} s");
        drop(next_inlet);
    }

    #[test]
    fn a_photo_of_another_waits_for_one_step_of_a_long_photo() {
        let (large, small) = (OrganizationId::generate(), OrganizationId::generate());
        let photos = [(large, 5), (large, 4), (small, 2)];
        let run = run_stepping(&photos, &KillSwitch::new(), |_| {});
        assert!(matches!(run.exit, Exit::Drained), "{:?}", run.exit);
        assert_eq!(
            run.steps,
            [5, 2, 4, 2, 5, 4, 5, 4, 5, 4, 5],
            "the owners in turn, then the photos of each"
        );
        assert_eq!(run.sent, [(0..2).collect::<Vec<_>>(), (0..4).collect(), (0..5).collect()]);
    }

    #[test]
    fn a_worker_is_killed_between_two_steps_of_a_photo() {
        let kill_switch = KillSwitch::new();
        let killed = kill_switch.clone();
        let run = run_stepping(&[(OrganizationId::generate(), 100)], &kill_switch, move |taken| {
            if taken == 2 {
                killed.set();
            }
        });
        assert!(matches!(run.exit, Exit::Killed), "{:?}", run.exit);
        assert_eq!(run.steps.len(), 3);
        assert_eq!((run.sent.len(), run.leases.ticket_count()), (0, 0), "the photo goes back to the queue");
    }

    #[test]
    fn a_panic_repeats_one_step_and_not_the_photo() {
        let has_panicked = AtomicBool::new(false);
        let run = run_stepping(&[(OrganizationId::generate(), 4)], &KillSwitch::new(), move |taken| {
            assert!(taken != 2 || has_panicked.swap(true, Ordering::AcqRel), "injected panic");
        });
        assert!(matches!(run.exit, Exit::Drained), "{:?}", run.exit);
        assert_eq!((run.steps.len(), run.sent), (4, vec![vec![0, 1, 2, 3]]));
    }
}
