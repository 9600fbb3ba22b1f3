//! Runs a stage on its thread: forms batches, keeps a panic to its own photo, passes on what is done. Knows nothing
//! of what the stage does, and nothing of the other stages but the channel to the next.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use photofinish_store::photo::FailureReason;

use crate::fault::{Outage, Poison};
use crate::meters::StageMeter;
use crate::spans::{Outcome, Work};
use crate::stage::{Answers, Stage};
use crate::store_call::StoreCalls;
use crate::ticket::{InFlight, Ticket};

/// Builds a stage on the thread that will own it, and anew after a panic.
pub(crate) type Builder<S> = Arc<dyn Fn() -> Result<S, Outage> + Send + Sync>;

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
    Settled(fn(&T) -> Outcome),
}

impl<T> Clone for Outlet<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Next(sender) => Self::Next(sender.clone()),
            Self::Settled(outcome) => Self::Settled(*outcome),
        }
    }
}

/// Why a thread of the pipeline ended.
#[derive(Debug)]
pub(crate) enum Exit {
    /// Nothing more comes: the stage before it has ended.
    Drained,
    /// Nobody takes what it makes: the stage after it has ended.
    NobodyDownstream,
    /// The generation was ended.
    Killed,
    /// Nothing can be done now.
    Outage(Outage),
    /// Its thread panicked outside of any photo.
    Died(String),
}

/// One thread of a stage.
pub(crate) struct Worker<S: Stage> {
    pub(crate) build: Builder<S>,
    pub(crate) batch_size: usize,
    pub(crate) inlet: Inlet<InFlight<S::In>>,
    pub(crate) outlet: Outlet<S::Out>,
    pub(crate) meter: Arc<StageMeter>,
    pub(crate) calls: StoreCalls,
}

impl<S: Stage> Drop for Worker<S> {
    fn drop(&mut self) {
        // However it ends: what waits for it goes back with its inlet.
        self.meter.emptied();
    }
}

impl<S: Stage> Worker<S> {
    /// Builds the stage, calls `ready`, then works until there is nothing more to do.
    pub(crate) fn work(self, ready: impl FnOnce()) -> Exit {
        let mut stage = match (self.build)() {
            Ok(stage) => stage,
            Err(outage) => return Exit::Outage(outage),
        };
        ready();
        loop {
            let Some(batch) = self.next_batch() else { return Exit::Drained };
            if self.calls.kill.is_set() {
                return Exit::Killed;
            }
            let (mut tickets, items): (Vec<Ticket>, Vec<S::In>) =
                batch.into_iter().map(|photo| (photo.ticket, photo.item)).unzip();
            let work: Vec<Work> = tickets.iter().map(|ticket| self.work_on(ticket, items.len())).collect();
            let measured = self.meter.measure();
            let answers = self.run_isolated(&mut stage, (&items, &work));
            measured.settle(items.len());
            drop((items, work));
            tickets.iter_mut().for_each(Ticket::waits);
            let answers = match answers {
                Ok(answers) => answers,
                Err(outage) => {
                    if outage.is_suspicious {
                        tickets.into_iter().for_each(Ticket::suspect);
                    }
                    return Exit::Outage(outage);
                }
            };
            match self.pass_on(tickets, answers) {
                Ok(true) => {}
                Ok(false) => return Exit::NobodyDownstream,
                Err(outage) => return Exit::Outage(outage),
            }
        }
    }

    fn work_on(&self, ticket: &Ticket, batch_size: usize) -> Work {
        Work::begin(ticket.span().clone(), self.meter.name(), (batch_size, ticket.waited()))
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
        self.meter.received(batch.len(), || self.inlet.0.len(), waited);
        Some(batch)
    }

    /// Runs a batch. After a panic the stage, whose state is unknown, is built anew and the batch is run photo by
    /// photo; a photo that panics alone too is poison.
    fn run_isolated(
        &self,
        stage: &mut S,
        (batch, work): (&[S::In], &[Work]),
    ) -> Result<Answers<S::Out>, Outage> {
        let _entered = Work::enter_alone(work);
        match self.run_caught(stage, batch)? {
            Caught::Done(answers) => return Ok(answers),
            Caught::Panicked(message) => {
                tracing::warn!(stage = self.meter.name(), photos = batch.len(), message, "a batch panicked");
            }
        }
        let mut answers = Vec::with_capacity(batch.len());
        for (item, work) in batch.iter().zip(work) {
            let _entered = work.enter();
            match self.run_caught(stage, std::slice::from_ref(item))? {
                Caught::Done(done) => answers.extend(done),
                Caught::Panicked(message) => answers.push(Err(Poison::new(
                    FailureReason::ProcessingCrashed,
                    format!("stage {} panicked: {message}", self.meter.name()),
                ))),
            }
        }
        Ok(answers)
    }

    /// Runs a batch; after a panic, or the wrong number of answers, the stage is a new one.
    fn run_caught(&self, stage: &mut S, batch: &[S::In]) -> Result<Caught<S::Out>, Outage> {
        let message = match catch_unwind(AssertUnwindSafe(|| stage.run(batch))) {
            Ok(Ok(answers)) if answers.len() == batch.len() => return Ok(Caught::Done(answers)),
            Ok(Ok(answers)) => format!("{} answers for {} photos", answers.len(), batch.len()),
            Ok(Err(outage)) => return Err(outage),
            Err(panic) => panic_message(panic.as_ref()),
        };
        self.meter.panicked();
        let broken = std::mem::replace(stage, (self.build)()?);
        if catch_unwind(AssertUnwindSafe(|| drop(broken))).is_err() {
            tracing::warn!(stage = self.meter.name(), "a stage panicked again while it was put away");
        }
        Ok(Caught::Panicked(message))
    }

    /// Gives every photo its end or its next stage; `false` when nobody is there to take it.
    fn pass_on(&self, tickets: Vec<Ticket>, answers: Answers<S::Out>) -> Result<bool, Outage> {
        for (ticket, answer) in tickets.into_iter().zip(answers) {
            match (answer, &self.outlet) {
                (Err(poison), _) => ticket.fail(&poison, &self.calls)?,
                (Ok(done), Outlet::Settled(outcome)) => {
                    let outcome = outcome(&done);
                    ticket.settle(outcome);
                    if outcome == Outcome::Ready {
                        self.meter.finished();
                    }
                }
                (Ok(item), Outlet::Next(outlet)) => {
                    let began = Instant::now();
                    if outlet.send(InFlight { ticket, item }).is_err() {
                        return Ok(false);
                    }
                    self.meter.passed_on(began.elapsed());
                }
            }
        }
        Ok(true)
    }
}

/// What became of a batch.
enum Caught<T> {
    Done(Answers<T>),
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
    use photofinish_store::ids::PhotoId;
    use photofinish_store::traits::{LeaseRequest, Queue};
    use tokio::runtime::Runtime;

    use super::*;
    use crate::book::Book;
    use crate::fault::Part;
    use crate::store_call::Kill;
    use crate::sync::lock;
    use crate::testing::memory_queue::MemoryQueue;

    /// A stage that notes the size of each batch and the depth that metrics show while it runs, and breaks at the run of
    /// this number.
    struct Watching {
        page: PrometheusHandle,
        seen: Arc<Mutex<Vec<(usize, String)>>>,
        breaks_at: usize,
    }

    impl Stage for Watching {
        type In = ();
        type Out = ();

        fn run(&mut self, batch: &[()]) -> Result<Answers<()>, Outage> {
            let mut seen = lock(&self.seen);
            seen.push((batch.len(), depth(&self.page)));
            if seen.len() == self.breaks_at {
                return Err(Outage::because(Part::Models, "told to be out"));
            }
            Ok(batch.iter().map(|()| Ok(())).collect())
        }
    }

    fn depth(page: &PrometheusHandle) -> String {
        let page = page.render();
        let shown = page.lines().find_map(|line| line.strip_prefix("photofinish_edge_depth{stage=\"one\"} "));
        shown.unwrap_or("nothing").to_owned()
    }

    /// Leaves 20 photos to a worker with batches of 8, on this thread. Answers how it ended and what its stage saw.
    fn work(recorder: &PrometheusRecorder, breaks_at: usize) -> (Exit, Vec<(usize, String)>) {
        let runtime = Runtime::new().unwrap();
        let photos: Vec<PhotoId> = (0..20).map(|_| PhotoId::generate()).collect();
        let queue = MemoryQueue::with(&photos);
        let book = Arc::new(Book::new(Arc::clone(&queue) as Arc<dyn Queue>));
        let request = LeaseRequest { limit: 20, ttl: Duration::from_secs(60), suspects: false };
        let (sender, receiver) = bounded(20);
        for lease in runtime.block_on(queue.lease(request)).unwrap() {
            let ticket = Ticket::open(&book, Arc::new(lease));
            sender.send(InFlight { ticket, item: () }).unwrap();
        }
        drop(sender);
        let (page, seen) = (recorder.handle(), Arc::<Mutex<Vec<(usize, String)>>>::default());
        let noted = Arc::clone(&seen);
        let build: Builder<Watching> =
            Arc::new(move || Ok(Watching { page: page.clone(), seen: Arc::clone(&noted), breaks_at }));
        let worker = Worker {
            build,
            batch_size: 8,
            inlet: Inlet(receiver),
            outlet: Outlet::Settled(|()| Outcome::Ready),
            meter: Arc::new(StageMeter::new("one")),
            calls: StoreCalls { runtime: runtime.handle().clone(), kill: Kill::new() },
        };
        let exit = metrics::with_local_recorder(recorder, || worker.work(|| {}));
        let seen = lock(&seen).clone();
        (exit, seen)
    }

    #[test]
    fn the_depth_shown_is_what_waits_when_the_batch_is_taken() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (exit, seen) = work(&recorder, usize::MAX);
        assert!(matches!(exit, Exit::Drained), "{exit:?}");
        let expected: [(usize, &str); 3] = [(8, "12"), (8, "4"), (4, "0")];
        assert_eq!(seen, expected.map(|(photos, depth)| (photos, depth.to_owned())));
    }

    #[test]
    fn nothing_waits_for_a_thread_that_has_ended() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (exit, seen) = work(&recorder, 1);
        assert!(matches!(exit, Exit::Outage(_)), "{exit:?}");
        assert_eq!(seen, [(8_usize, "12".to_owned())]);
        assert_eq!(depth(&recorder.handle()), "0");
    }
}
