//! Runs a stage on its thread: forms batches, confines a panic to the photo that caused it, and forwards the results. It
//! knows nothing of what the stage does, and of the other stages only the channel to the next one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::{Outage, Poison};
use crate::engine::spans::{PhotoOutcome, StageSpan};
use crate::engine::stage::{BatchResults, Stage};
use crate::engine::stage_stats::StageStats;
use crate::engine::store_client::StoreClient;
use crate::engine::ticket::{InFlight, Ticket};

/// Builds a stage on the thread that will own it, and rebuilds it after a panic.
pub(crate) type StageFactory<S> = Arc<dyn Fn() -> Result<S, Outage> + Send + Sync>;

/// The receiving end of an edge. It empties the channel when dropped: a bounded crossbeam channel otherwise keeps queued
/// photos alive until its last sender is gone, and with them their tickets and budget permits.
#[derive(Debug)]
pub(crate) struct Inlet<T>(pub(crate) Receiver<T>);

impl<T> Clone for Inlet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Drop for Inlet<T> {
    fn drop(&mut self) {
        // A worker that drained finds nothing here: its channel is closed and empty. After any other exit the whole
        // generation ends, so photos that another thread of the stage could still have taken go back to the queue too.
        self.0.try_iter().for_each(drop);
    }
}

/// Where the results of a stage go.
pub(crate) enum Outlet<T> {
    /// To the next stage.
    Next(Sender<InFlight<T>>),
    /// Nowhere: the stage has written them. The function says how the photo ended.
    Terminal(fn(&T) -> PhotoOutcome),
}

impl<T> Clone for Outlet<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Next(sender) => Self::Next(sender.clone()),
            Self::Terminal(outcome) => Self::Terminal(*outcome),
        }
    }
}

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
pub(crate) struct Worker<S: Stage> {
    pub(crate) factory: StageFactory<S>,
    pub(crate) batch_size: usize,
    pub(crate) inlet: Inlet<InFlight<S::In>>,
    pub(crate) outlet: Outlet<S::Out>,
    pub(crate) stats: Arc<StageStats>,
    pub(crate) store: StoreClient,
}

impl<S: Stage> Drop for Worker<S> {
    fn drop(&mut self) {
        // However the worker ended, its inlet empties the channel when it is dropped.
        self.stats.reset_depth();
    }
}

impl<S: Stage> Worker<S> {
    /// Builds the stage, calls `ready`, then processes batches until there is nothing more to do.
    pub(crate) fn run(self, ready: impl FnOnce()) -> Exit {
        let mut stage = match (self.factory)() {
            Ok(stage) => stage,
            Err(outage) => return Exit::Outage(outage),
        };
        ready();
        loop {
            let Some(batch) = self.next_batch() else { return Exit::Drained };
            if self.store.kill_switch.is_set() {
                return Exit::Killed;
            }
            let (mut tickets, items): (Vec<Ticket>, Vec<S::In>) =
                batch.into_iter().map(|photo| (photo.ticket, photo.item)).unzip();
            let spans: Vec<StageSpan> =
                tickets.iter().map(|ticket| self.open_stage_span(ticket, items.len())).collect();
            let timer = self.stats.start_batch();
            let results = self.run_isolated(&mut stage, &items, &spans);
            timer.finish(items.len());
            drop((items, spans));
            tickets.iter_mut().for_each(Ticket::mark_waiting);
            let results = match results {
                Ok(results) => results,
                Err(outage) => {
                    if outage.counts_as_attempt {
                        tickets.into_iter().for_each(Ticket::leave_to_expire);
                    }
                    return Exit::Outage(outage);
                }
            };
            match self.forward_results(tickets, results) {
                Ok(true) => {}
                Ok(false) => return Exit::DownstreamClosed,
                Err(outage) => return Exit::Outage(outage),
            }
        }
    }

    fn open_stage_span(&self, ticket: &Ticket, batch_size: usize) -> StageSpan {
        StageSpan::new(ticket.span().clone(), self.stats.name(), batch_size, ticket.waiting_time())
    }

    /// Waits for one photo, then adds those that are queued already, up to the batch size, without waiting for more. So
    /// a busy device gets large batches, and an idle one starts at once.
    fn next_batch(&self) -> Option<Vec<InFlight<S::In>>> {
        let started_at = Instant::now();
        let first = self.inlet.0.recv().ok()?;
        let waited = started_at.elapsed();
        let mut batch = Vec::with_capacity(self.batch_size);
        batch.push(first);
        batch.extend(self.inlet.0.try_iter().take(self.batch_size.saturating_sub(1)));
        self.stats.record_received(batch.len(), || self.inlet.0.len(), waited);
        Some(batch)
    }

    /// Runs the stage on a batch. After a panic the stage, whose state is then unknown, is rebuilt and the batch is run
    /// photo by photo; a photo that panics alone is a poison.
    fn run_isolated(
        &self,
        stage: &mut S,
        items: &[S::In],
        spans: &[StageSpan],
    ) -> Result<BatchResults<S::Out>, Outage> {
        let _entered = StageSpan::enter_single(spans);
        match self.run_catching_panics(stage, items)? {
            BatchOutcome::Completed(results) => return Ok(results),
            BatchOutcome::Panicked(message) => {
                let stage = self.stats.name();
                tracing::warn!(
                    stage,
                    photos = items.len(),
                    message,
                    "batch panicked, retrying its photos one by one"
                );
            }
        }
        let mut results = Vec::with_capacity(items.len());
        for (item, span) in items.iter().zip(spans) {
            let _entered = span.enter();
            match self.run_catching_panics(stage, std::slice::from_ref(item))? {
                BatchOutcome::Completed(result) => results.extend(result),
                BatchOutcome::Panicked(message) => results.push(Err(Poison::new(
                    FailureReason::ProcessingCrashed,
                    format!("stage {} panicked: {message}", self.stats.name()),
                ))),
            }
        }
        Ok(results)
    }

    /// Runs the stage on a batch and rebuilds it after a panic or a wrong number of results.
    fn run_catching_panics(&self, stage: &mut S, items: &[S::In]) -> Result<BatchOutcome<S::Out>, Outage> {
        let message = match catch_unwind(AssertUnwindSafe(|| stage.run(items))) {
            Ok(Ok(results)) if results.len() == items.len() => return Ok(BatchOutcome::Completed(results)),
            Ok(Ok(results)) => format!("{} results for {} photos", results.len(), items.len()),
            Ok(Err(outage)) => return Err(outage),
            Err(panic) => panic_message(panic.as_ref()),
        };
        self.stats.record_panic();
        let broken = std::mem::replace(stage, (self.factory)()?);
        if catch_unwind(AssertUnwindSafe(|| drop(broken))).is_err() {
            tracing::warn!(stage = self.stats.name(), "stage panicked again while it was dropped");
        }
        Ok(BatchOutcome::Panicked(message))
    }

    /// Sends each photo to the next stage or ends it. Returns `false` when the next stage has ended.
    fn forward_results(&self, tickets: Vec<Ticket>, results: BatchResults<S::Out>) -> Result<bool, Outage> {
        for (ticket, result) in tickets.into_iter().zip(results) {
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
                    let started_at = Instant::now();
                    if sender.send(InFlight { ticket, item }).is_err() {
                        return Ok(false);
                    }
                    self.stats.record_blocked_out(started_at.elapsed());
                }
            }
        }
        Ok(true)
    }
}

/// The outcome of one call of a stage.
enum BatchOutcome<T> {
    Completed(BatchResults<T>),
    Panicked(String),
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use crossbeam_channel::bounded;
    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
    use photofinish_store::model::ids::PhotoId;
    use photofinish_store::traits::{LeaseKind, LeaseRequest, Queue};
    use tokio::runtime::Runtime;

    use super::*;
    use crate::engine::fault::Component;
    use crate::engine::leases::LeaseTable;
    use crate::engine::store_client::KillSwitch;
    use crate::engine::sync::lock;
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
        let (sender, receiver) = bounded(20);
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
            inlet: Inlet(receiver),
            outlet: Outlet::Terminal(|()| PhotoOutcome::Ready),
            stats: Arc::new(StageStats::new("one")),
            store: StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() },
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
}
