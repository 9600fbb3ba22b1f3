//! Starts generations, watches them, ends them, starts the next: after 1, 2, 4 .. 60 s. Says how the pipeline is.
//! Knows nothing of stages: it is given something that starts a generation.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use time::OffsetDateTime;

use crate::book::{Book, Keeper};
use crate::fault::{Outage, Part};
use crate::generation::{self, Ended, Exited, Generation, SOME_STAGE};
use crate::meters::Meters;
use crate::metric_names as names;
use crate::store_call::{Kill, StoreCalls};
use crate::sync::lock;

/// How the pipeline is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its first generation comes up.
    Starting,
    /// Photos are worked on as they come.
    Running,
    /// Nothing is worked on; it tries again by itself.
    Down {
        /// What does not serve.
        part: Part,
        /// Why, in one line.
        reason: String,
        /// Since when.
        since: OffsetDateTime,
    },
}

/// How the pipeline ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Whether all that was in flight ended in peace; otherwise it was given back.
    pub drained: bool,
    /// Photos given back unharmed in the life of the pipeline.
    pub given_back: u64,
    /// Photos that still had a ticket at the end; their leases end by themselves.
    pub left: usize,
    /// Threads that did not end.
    pub abandoned: Vec<String>,
}

/// Starts a generation: its threads report ready, the feed last.
pub(crate) type Starter = Box<dyn Fn(Kill) -> Result<Starting, Outage> + Send>;

/// Starts the feed of a generation.
pub(crate) type Opener = Box<dyn FnOnce(&mut Generation) -> Result<(), Outage> + Send>;

/// A generation whose stages are being built, and what starts its feed once they are.
pub(crate) struct Starting {
    pub(crate) generation: Generation,
    pub(crate) open: Opener,
}

/// What the handle and the supervisor share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) status: Mutex<Status>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) book: Arc<Book>,
    /// Rings the feed of the present generation.
    pub(crate) bell: Mutex<Option<Sender<()>>>,
}

/// The thread that owns all others.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) starter: Starter,
    pub(crate) stop: Receiver<()>,
    pub(crate) keeper: Keeper,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) grace: Duration,
    /// How long to wait after so many failures in a row.
    pub(crate) pause: fn(u32) -> Duration,
}

/// How often the meters and the state of an outage are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// How long the supervisor waits for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// A generation that has stood so long with no photo to prove itself on has recovered.
    pub(crate) recovered_after: Duration,
    /// For threads to end.
    pub(crate) exits: Duration,
}

impl Waits {
    /// What the service waits.
    pub(crate) const SERVICE: Self =
        Self { recovered_after: Duration::from_secs(5), exits: generation::PATIENCE };
}

/// The budgets of a generation, in its order.
const BUDGETS: [&str; 2] = ["files", "pixels"];

/// The longest pause between two generations.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A generation that lived for so long has recovered: what is out is found out in far less.
const PROVED_AFTER: Duration = Duration::from_secs(120);

/// A time of not serving, however many generations fail in it.
struct Trouble {
    part: Part,
    since: OffsetDateTime,
    failures: u32,
}

/// What ended a generation.
enum End {
    Stopped,
    Failed(Vec<Exited>),
}

impl Supervisor {
    /// Keeps the pipeline up until it is stopped.
    pub(crate) fn work(self) -> StopReport {
        self.work_with(Waits::SERVICE)
    }

    /// The same, with other waits.
    pub(crate) fn work_with(self, waits: Waits) -> StopReport {
        let mut trouble: Option<Trouble> = None;
        let (drained, abandoned) = loop {
            match self.live(&mut trouble, waits) {
                Ok(report) => break report,
                Err(outage) => {
                    let pause = self.note(&outage, &mut trouble);
                    if self.stop.recv_timeout(pause).is_ok() {
                        break (true, Vec::new());
                    }
                }
            }
        };
        self.keeper.stop();
        let report = StopReport {
            drained,
            given_back: self.shared.book.given_back_count(),
            left: self.shared.book.ticket_count(),
            abandoned,
        };
        tracing::info!(drained, given_back = report.given_back, left = report.left, "pipeline stopped");
        report
    }

    /// One generation from start to end. Answers when the pipeline is stopped.
    fn live(&self, trouble: &mut Option<Trouble>, waits: Waits) -> Result<(bool, Vec<String>), Outage> {
        let kill = Kill::new();
        self.ask_the_queue(&kill)?;
        let Starting { mut generation, open } = (self.starter)(kill)?;
        let end = match self.wait_until_ready(&generation) {
            Some(end) => {
                // The feed holds the first edge open: no stage would see that nothing comes any more.
                drop(open);
                end
            }
            None => match open(&mut generation) {
                Ok(()) => self.watch(&generation, trouble, waits.recovered_after),
                Err(outage) => {
                    self.end(generation, Vec::new(), waits.exits);
                    return Err(outage);
                }
            },
        };
        *lock(&self.shared.bell) = None;
        match end {
            End::Stopped => {
                let mut exited = Vec::new();
                let drained = generation.drain(self.grace, &mut exited);
                Ok((drained, self.end(generation, exited, waits.exits).abandoned))
            }
            End::Failed(exited) => {
                let thread = exited.first().map(|exited| exited.thread.clone()).unwrap_or_default();
                let ended = self.end(generation, exited, waits.exits);
                Err(ended.cause.unwrap_or_else(|| {
                    Outage::because(SOME_STAGE, format!("thread {thread} ended without a cause"))
                }))
            }
        }
    }

    /// Ends a generation, and what was kept up for it: the leases of threads that do not end, and the gauges.
    fn end(&self, generation: Generation, exited: Vec<Exited>, patience: Duration) -> Ended {
        let ended = generation.end_within(patience, exited);
        if !ended.abandoned.is_empty() {
            self.shared.book.abandon();
        }
        self.shared.meters.emptied();
        for name in BUDGETS {
            metrics::gauge!(names::BUDGET_USED_BYTES, "budget" => name).set(0.0);
        }
        ended
    }

    /// Before networks are loaded for nothing: the feed would fall at its first lease, and they with it.
    fn ask_the_queue(&self, kill: &Kill) -> Result<(), Outage> {
        let calls = StoreCalls { runtime: self.runtime.clone(), kill: kill.clone() };
        calls.ask(Part::Database, self.shared.book.queue().check())?.map_err(Outage::of_queue)
    }

    /// Waits until every stage is built; `Some` when that ends otherwise.
    fn wait_until_ready(&self, generation: &Generation) -> Option<End> {
        let stages = generation.crew.len();
        for _ in 0..stages {
            select! {
                recv(generation.ready()) -> _ready => {}
                recv(generation.exits()) -> exited => return Some(End::Failed(exited.into_iter().collect())),
                recv(self.stop) -> _stop => return Some(End::Stopped),
            }
        }
        *lock(&self.shared.bell) = Some(generation.bell.clone());
        None
    }

    /// Watches a generation at work until a thread ends or the pipeline is stopped. It has recovered from a trouble
    /// before it when it finishes a photo, or has none for `recovered_after`. That it holds some and nothing breaks
    /// proves nothing so soon: a storage that hangs takes longer than that to be found out. Nor does a photo that fails,
    /// for it may have got no further than what works. Two minutes in which nothing breaks do, whatever becomes of photos.
    fn watch(
        &self,
        generation: &Generation,
        trouble: &mut Option<Trouble>,
        recovered_after: Duration,
    ) -> End {
        let began = Instant::now();
        let mut idle_since = began;
        let finished_before = self.shared.meters.finished_count();
        if trouble.is_none() {
            *lock(&self.shared.status) = Status::Running;
        }
        loop {
            select! {
                recv(generation.exits()) -> exited => return End::Failed(exited.into_iter().collect()),
                recv(self.stop) -> _stop => return End::Stopped,
                default(LOOK) => {}
            }
            self.shared.meters.look();
            for (budget, name) in generation.budgets.iter().zip(BUDGETS) {
                metrics::gauge!(names::BUDGET_USED_BYTES, "budget" => name).set(budget.used() as f64);
            }
            let is_idle = self.shared.book.in_flight() == 0;
            if !is_idle {
                idle_since = Instant::now();
            }
            let has_proved = self.shared.meters.finished_count() > finished_before;
            let has_stood =
                began.elapsed() >= PROVED_AFTER || (is_idle && idle_since.elapsed() >= recovered_after);
            if (has_proved || has_stood)
                && let Some(over) = trouble.take()
            {
                tracing::info!(part = %over.part, since = %over.since, "pipeline is up again");
                *lock(&self.shared.status) = Status::Running;
            }
        }
    }

    /// Notes an outage: one error line for all generations that fail in it. Answers how long to wait.
    fn note(&self, outage: &Outage, trouble: &mut Option<Trouble>) -> Duration {
        metrics::counter!(names::OUTAGES, "part" => outage.part.as_str()).increment(1);
        let same = trouble.as_ref().is_some_and(|trouble| trouble.part == outage.part);
        let before = trouble.take();
        let failures = before.as_ref().map_or(1, |before| before.failures + 1);
        let since = before.map_or_else(OffsetDateTime::now_utc, |before| before.since);
        let pause = outage.retry_after.unwrap_or_default().max((self.pause)(failures));
        let (part, reason) = (outage.part, outage.to_string());
        if same {
            tracing::info!(%part, reason, failures, ?pause, "pipeline is still down");
        } else {
            tracing::error!(%part, reason, ?pause, "pipeline is down, photos go back to the queue");
        }
        *lock(&self.shared.status) = Status::Down { part, reason, since };
        *trouble = Some(Trouble { part, since, failures });
        pause
    }
}

/// 1, 2, 4 .. 60 s.
pub(crate) fn pause(failures: u32) -> Duration {
    Duration::from_secs(1 << (failures.clamp(1, 7) - 1)).min(LONGEST_PAUSE)
}

/// The channel on which the pipeline is told to stop.
pub(crate) fn stop_channel() -> (Sender<()>, Receiver<()>) {
    bounded(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let seconds: Vec<u64> = (1..10).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
