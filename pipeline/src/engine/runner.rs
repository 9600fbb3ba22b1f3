//! Runs a stage on its thread: forms batches, keeps a panic to its own photo, passes on what is done. Knows nothing
//! of what the stage does, and nothing of the other stages but the channel to the next.

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

/// Builds a stage on the thread that will own it, and anew after a panic.
pub(crate) type StageFactory<S> = Arc<dyn Fn() -> Result<S, Outage> + Send + Sync>;

/// The receiving end of an edge. Empties itself when dropped: a bounded crossbeam channel keeps what is queued alive
/// until its last sender goes, and with it tickets and budgets of photos that nobody will look at.
#[derive(Debug)]
pub(crate) struct Inlet<T>(pub(crate) Receiver<T>);

impl<T> Clone for Inlet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Drop for Inlet<T> {
    fn drop(&mut self) {
        // A worker that ends by draining finds nothing here: its channel is closed and empty. Any other end brings
        // the generation down, so what a sister thread would still have taken goes back all the same.
        self.0.try_iter().for_each(drop);
    }
}

/// Where a stage's results go.
pub(crate) enum Outlet<T> {
    /// To the next stage.
    Next(Sender<InFlight<T>>),
    /// Nowhere: the stage has written them, the ticket is settled as the answer says.
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
    /// Nothing more comes: the stage before it has ended.
    Drained,
    /// Nobody takes what it makes: the stage after it has ended.
    DownstreamClosed,
    /// The generation was ended.
    Killed,
    /// Nothing can be done now.
    Outage(Outage),
    /// Its thread panicked outside of any photo.
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
        // However it ends: what waits for it goes back with its inlet.
        self.stats.reset_depth();
    }
}

impl<S: Stage> Worker<S> {
    /// Builds the stage, calls `ready`, then works until there is nothing more to do.
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
            let work: Vec<StageSpan> =
                tickets.iter().map(|ticket| self.open_stage_span(ticket, items.len())).collect();
            let measured = self.stats.start_batch();
            let answers = self.run_isolated(&mut stage, (&items, &work));
            measured.finish(items.len());
            drop((items, work));
            tickets.iter_mut().for_each(Ticket::mark_waiting);
            let answers = match answers {
                Ok(answers) => answers,
                Err(outage) => {
                    if outage.counts_as_attempt {
                        tickets.into_iter().for_each(Ticket::leave_to_expire);
                    }
                    return Exit::Outage(outage);
                }
            };
            match self.forward_results(tickets, answers) {
                Ok(true) => {}
                Ok(false) => return Exit::DownstreamClosed,
                Err(outage) => return Exit::Outage(outage),
            }
        }
    }

    fn open_stage_span(&self, ticket: &Ticket, batch_size: usize) -> StageSpan {
        StageSpan::new(ticket.span().clone(), self.stats.name(), (batch_size, ticket.waiting_time()))
    }

    /// Waits for the first photo, then takes what is queued, at most a batch, without waiting: while the device works
    /// the next batch forms by itself, and an idle device is not kept waiting for company.
    fn next_batch(&self) -> Option<Vec<InFlight<S::In>>> {
        let began = Instant::now();
        let first = self.inlet.0.recv().ok()?;
        let waited = began.elapsed();
        let mut batch = Vec::with_capacity(self.batch_size);
        batch.push(first);
        batch.extend(self.inlet.0.try_iter().take(self.batch_size.saturating_sub(1)));
        self.stats.record_received(batch.len(), || self.inlet.0.len(), waited);
        Some(batch)
    }

    /// Runs a batch. After a panic the stage, whose state is unknown, is built anew and the batch is run photo by
    /// photo; a photo that panics alone too is poison.
    fn run_isolated(
        &self,
        stage: &mut S,
        (batch, work): (&[S::In], &[StageSpan]),
    ) -> Result<BatchResults<S::Out>, Outage> {
        let _entered = StageSpan::enter_single(work);
        match self.run_catching_panics(stage, batch)? {
            BatchOutcome::Completed(answers) => return Ok(answers),
            BatchOutcome::Panicked(message) => {
                tracing::warn!(stage = self.stats.name(), photos = batch.len(), message, "a batch panicked");
            }
        }
        let mut answers = Vec::with_capacity(batch.len());
        for (item, work) in batch.iter().zip(work) {
            let _entered = work.enter();
            match self.run_catching_panics(stage, std::slice::from_ref(item))? {
                BatchOutcome::Completed(done) => answers.extend(done),
                BatchOutcome::Panicked(message) => answers.push(Err(Poison::new(
                    FailureReason::ProcessingCrashed,
                    format!("stage {} panicked: {message}", self.stats.name()),
                ))),
            }
        }
        Ok(answers)
    }

    /// Runs a batch; after a panic, or the wrong number of answers, the stage is a new one.
    fn run_catching_panics(&self, stage: &mut S, batch: &[S::In]) -> Result<BatchOutcome<S::Out>, Outage> {
        let message = match catch_unwind(AssertUnwindSafe(|| stage.run(batch))) {
            Ok(Ok(answers)) if answers.len() == batch.len() => return Ok(BatchOutcome::Completed(answers)),
            Ok(Ok(answers)) => format!("{} answers for {} photos", answers.len(), batch.len()),
            Ok(Err(outage)) => return Err(outage),
            Err(panic) => panic_message(panic.as_ref()),
        };
        self.stats.record_panic();
        let broken = std::mem::replace(stage, (self.factory)()?);
        if catch_unwind(AssertUnwindSafe(|| drop(broken))).is_err() {
            tracing::warn!(stage = self.stats.name(), "a stage panicked again while it was put away");
        }
        Ok(BatchOutcome::Panicked(message))
    }

    /// Gives every photo its end or its next stage; `false` when nobody is there to take it.
    fn forward_results(&self, tickets: Vec<Ticket>, answers: BatchResults<S::Out>) -> Result<bool, Outage> {
        for (ticket, answer) in tickets.into_iter().zip(answers) {
            match (answer, &self.outlet) {
                (Err(poison), _) => ticket.fail(&poison, &self.store)?,
                (Ok(done), Outlet::Terminal(outcome)) => {
                    let outcome = outcome(&done);
                    ticket.finish(outcome);
                    if outcome == PhotoOutcome::Ready {
                        self.stats.record_finished();
                    }
                }
                (Ok(item), Outlet::Next(outlet)) => {
                    let began = Instant::now();
                    if outlet.send(InFlight { ticket, item }).is_err() {
                        return Ok(false);
                    }
                    self.stats.record_blocked_out(began.elapsed());
                }
            }
        }
        Ok(true)
    }
}

/// What became of a batch.
enum BatchOutcome<T> {
    Completed(BatchResults<T>),
    Panicked(String),
}

/// The words of a panic.
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
    use photofinish_store::traits::{LeaseRequest, Queue};
    use tokio::runtime::Runtime;

    use super::*;
    use crate::engine::fault::Component;
    use crate::engine::leases::LeaseTable;
    use crate::engine::store_client::KillSwitch;
    use crate::engine::sync::lock;
    use crate::testing::memory_queue::MemoryQueue;

    /// A stage that notes the size of each batch and the depth that metrics show while it runs, and breaks at the run of
    /// this number.
    struct RecordingStage {
        metrics_page: PrometheusHandle,
        batches: Arc<Mutex<Vec<(usize, String)>>>,
        fails_at: usize,
    }

    impl Stage for RecordingStage {
        type In = ();
        type Out = ();

        fn run(&mut self, batch: &[()]) -> Result<BatchResults<()>, Outage> {
            let mut seen = lock(&self.batches);
            seen.push((batch.len(), shown_depth(&self.metrics_page)));
            if seen.len() == self.fails_at {
                return Err(Outage::new(Component::Models, "told to be out"));
            }
            Ok(batch.iter().map(|()| Ok(())).collect())
        }
    }

    fn shown_depth(page: &PrometheusHandle) -> String {
        let page = page.render();
        let shown = page.lines().find_map(|line| line.strip_prefix("photofinish_edge_depth{stage=\"one\"} "));
        shown.unwrap_or("nothing").to_owned()
    }

    /// Leaves 20 photos to a worker with batches of 8, on this thread. Answers how it ended and what its stage saw.
    fn run_worker(recorder: &PrometheusRecorder, breaks_at: usize) -> (Exit, Vec<(usize, String)>) {
        let runtime = Runtime::new().unwrap();
        let photos: Vec<PhotoId> = (0..20).map(|_| PhotoId::generate()).collect();
        let queue = MemoryQueue::with_photos(&photos);
        let book = Arc::new(LeaseTable::new(Arc::clone(&queue) as Arc<dyn Queue>));
        let request = LeaseRequest { limit: 20, ttl: Duration::from_secs(60), suspects: false };
        let (sender, receiver) = bounded(20);
        for lease in runtime.block_on(queue.lease(request)).unwrap() {
            let ticket = Ticket::open(&book, Arc::new(lease));
            sender.send(InFlight { ticket, item: () }).unwrap();
        }
        drop(sender);
        let (page, seen) = (recorder.handle(), Arc::<Mutex<Vec<(usize, String)>>>::default());
        let noted = Arc::clone(&seen);
        let build: StageFactory<RecordingStage> = Arc::new(move || {
            Ok(RecordingStage {
                metrics_page: page.clone(),
                batches: Arc::clone(&noted),
                fails_at: breaks_at,
            })
        });
        let worker = Worker {
            factory: build,
            batch_size: 8,
            inlet: Inlet(receiver),
            outlet: Outlet::Terminal(|()| PhotoOutcome::Ready),
            stats: Arc::new(StageStats::new("one")),
            store: StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() },
        };
        let exit = metrics::with_local_recorder(recorder, || worker.run(|| {}));
        let seen = lock(&seen).clone();
        (exit, seen)
    }

    #[test]
    fn the_depth_gauge_shows_what_waits_when_a_batch_is_taken() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (exit, seen) = run_worker(&recorder, usize::MAX);
        assert!(matches!(exit, Exit::Drained), "{exit:?}");
        let expected: [(usize, &str); 3] = [(8, "12"), (8, "4"), (4, "0")];
        assert_eq!(seen, expected.map(|(photos, depth)| (photos, depth.to_owned())));
    }

    #[test]
    fn nothing_waits_for_a_thread_that_has_ended() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (exit, seen) = run_worker(&recorder, 1);
        assert!(matches!(exit, Exit::Outage(_)), "{exit:?}");
        assert_eq!(seen, [(8_usize, "12".to_owned())]);
        assert_eq!(shown_depth(&recorder.handle()), "0");
    }
}
