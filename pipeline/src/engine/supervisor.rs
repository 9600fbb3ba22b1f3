//! Starts generations, watches them, ends them, starts the next: after 1, 2, 4 .. 60 s. Says how the pipeline is.
//! Knows nothing of stages: it is given something that starts a generation.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use time::OffsetDateTime;

use crate::engine::fault::{Component, Outage, UNKNOWN_STAGE};
use crate::engine::generation::{self, Generation, Termination, ThreadExit};
use crate::engine::leases::{LeaseRenewer, LeaseTable};
use crate::engine::metrics as names;
use crate::engine::stage_stats::PipelineStats;
use crate::engine::store_client::{KillSwitch, StoreClient};
use crate::engine::sync::lock;

/// How the pipeline is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineStatus {
    /// Its first generation comes up.
    Starting,
    /// Photos are worked on as they come.
    Running,
    /// Nothing is worked on; it tries again by itself.
    Down {
        /// What does not serve.
        component: Component,
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
    pub unfinished: usize,
    /// Threads that did not end.
    pub abandoned_threads: Vec<String>,
}

/// Starts a generation: its threads report ready, the feed last.
pub(crate) type GenerationFactory = Box<dyn Fn(KillSwitch) -> Result<PendingGeneration, Outage> + Send>;

/// Starts the feed of a generation.
pub(crate) type StartFeed = Box<dyn FnOnce(&mut Generation) -> Result<(), Outage> + Send>;

/// A generation whose stages are being built, and what starts its feed once they are.
pub(crate) struct PendingGeneration {
    pub(crate) generation: Generation,
    pub(crate) start_feed: StartFeed,
}

/// What the handle and the supervisor share.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) status: Mutex<PipelineStatus>,
    pub(crate) stats: Arc<PipelineStats>,
    pub(crate) leases: Arc<LeaseTable>,
    /// Rings the feed of the present generation.
    pub(crate) wakeup: Mutex<Option<Sender<()>>>,
}

/// The thread that owns all others.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) start_generation: GenerationFactory,
    pub(crate) stop: Receiver<()>,
    pub(crate) renewer: LeaseRenewer,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) drain_grace: Duration,
    /// How long to wait after so many failures in a row.
    pub(crate) backoff: fn(u32) -> Duration,
}

/// How often the meters and the state of an outage are looked at.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How long the supervisor waits for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SupervisorTimeouts {
    /// A generation that has stood so long with no photo to prove itself on has recovered.
    pub(crate) recovered_after: Duration,
    /// For threads to end.
    pub(crate) thread_exit: Duration,
}

impl SupervisorTimeouts {
    /// What the service waits.
    pub(crate) const SERVICE: Self =
        Self { recovered_after: Duration::from_secs(5), thread_exit: generation::EXIT_TIMEOUT };
}

/// The budgets of a generation, in its order.
const BUDGET_NAMES: [&str; 2] = ["files", "pixels"];

/// The longest pause between two generations.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// A generation that lived for so long has recovered: what is out is found out in far less.
const STABLE_AFTER: Duration = Duration::from_secs(120);

/// A time of not serving, however many generations fail in it.
struct OutageState {
    component: Component,
    since: OffsetDateTime,
    failures: u32,
}

/// What ended a generation.
enum GenerationEnd {
    Stopped,
    Failed(Vec<ThreadExit>),
}

impl Supervisor {
    /// Keeps the pipeline up until it is stopped.
    pub(crate) fn run(self) -> StopReport {
        self.run_with_timeouts(SupervisorTimeouts::SERVICE)
    }

    /// The same, with other waits.
    pub(crate) fn run_with_timeouts(self, waits: SupervisorTimeouts) -> StopReport {
        let mut trouble: Option<OutageState> = None;
        let (drained, abandoned) = loop {
            match self.run_generation(&mut trouble, waits) {
                Ok(report) => break report,
                Err(outage) => {
                    let pause = self.record_outage(&outage, &mut trouble);
                    if self.stop.recv_timeout(pause).is_ok() {
                        break (true, Vec::new());
                    }
                }
            }
        };
        self.renewer.stop();
        let report = StopReport {
            drained,
            given_back: self.shared.leases.given_back_count(),
            unfinished: self.shared.leases.ticket_count(),
            abandoned_threads: abandoned,
        };
        tracing::info!(drained, given_back = report.given_back, left = report.unfinished, "pipeline stopped");
        report
    }

    /// One generation from start to end. Answers when the pipeline is stopped.
    fn run_generation(
        &self,
        trouble: &mut Option<OutageState>,
        waits: SupervisorTimeouts,
    ) -> Result<(bool, Vec<String>), Outage> {
        let kill = KillSwitch::new();
        self.check_queue(&kill)?;
        let PendingGeneration { mut generation, start_feed: open } = (self.start_generation)(kill)?;
        let end = match self.wait_until_ready(&generation) {
            Some(end) => {
                // The feed holds the first edge open: no stage would see that nothing comes any more.
                drop(open);
                end
            }
            None => match open(&mut generation) {
                Ok(()) => self.monitor_generation(&generation, trouble, waits.recovered_after),
                Err(outage) => {
                    self.terminate_generation(generation, Vec::new(), waits.thread_exit);
                    return Err(outage);
                }
            },
        };
        *lock(&self.shared.wakeup) = None;
        match end {
            GenerationEnd::Stopped => {
                let mut exited = Vec::new();
                let drained = generation.drain(self.drain_grace, &mut exited);
                Ok((drained, self.terminate_generation(generation, exited, waits.thread_exit).abandoned))
            }
            GenerationEnd::Failed(exited) => {
                let thread = exited.first().map(|exited| exited.thread.clone()).unwrap_or_default();
                let ended = self.terminate_generation(generation, exited, waits.thread_exit);
                Err(ended.cause.unwrap_or_else(|| {
                    Outage::new(UNKNOWN_STAGE, format!("thread {thread} ended without a cause"))
                }))
            }
        }
    }

    /// Ends a generation, and what was kept up for it: the leases of threads that do not end, and the gauges.
    fn terminate_generation(
        &self,
        generation: Generation,
        exited: Vec<ThreadExit>,
        patience: Duration,
    ) -> Termination {
        let ended = generation.terminate_within(patience, exited);
        if !ended.abandoned.is_empty() {
            self.shared.leases.abandon_all();
        }
        self.shared.stats.reset_depths();
        for name in BUDGET_NAMES {
            metrics::gauge!(names::BUDGET_USED_BYTES, "budget" => name).set(0.0);
        }
        ended
    }

    /// Before networks are loaded for nothing: the feed would fall at its first lease, and they with it.
    fn check_queue(&self, kill: &KillSwitch) -> Result<(), Outage> {
        let calls = StoreClient { runtime: self.runtime.clone(), kill_switch: kill.clone() };
        calls.call(Component::Database, self.shared.leases.queue().check())?.map_err(Outage::from_queue_error)
    }

    /// Waits until every stage is built; `Some` when that ends otherwise.
    fn wait_until_ready(&self, generation: &Generation) -> Option<GenerationEnd> {
        let stages = generation.threads.len();
        for _ in 0..stages {
            select! {
                recv(generation.ready()) -> _ready => {}
                recv(generation.exits()) -> exited => return Some(GenerationEnd::Failed(exited.into_iter().collect())),
                recv(self.stop) -> _stop => return Some(GenerationEnd::Stopped),
            }
        }
        *lock(&self.shared.wakeup) = Some(generation.wakeup.clone());
        None
    }

    /// Watches a generation at work until a thread ends or the pipeline is stopped. It has recovered from a trouble
    /// before it when it finishes a photo, or has none for `recovered_after`. That it holds some and nothing breaks
    /// proves nothing so soon: a storage that hangs takes longer than that to be found out. Nor does a photo that fails,
    /// for it may have got no further than what works. Two minutes in which nothing breaks do, whatever becomes of photos.
    fn monitor_generation(
        &self,
        generation: &Generation,
        trouble: &mut Option<OutageState>,
        recovered_after: Duration,
    ) -> GenerationEnd {
        let began = Instant::now();
        let mut idle_since = began;
        let finished_before = self.shared.stats.finished_count();
        if trouble.is_none() {
            *lock(&self.shared.status) = PipelineStatus::Running;
        }
        loop {
            select! {
                recv(generation.exits()) -> exited => return GenerationEnd::Failed(exited.into_iter().collect()),
                recv(self.stop) -> _stop => return GenerationEnd::Stopped,
                default(POLL_INTERVAL) => {}
            }
            self.shared.stats.update_bottleneck();
            for (budget, name) in generation.budgets.iter().zip(BUDGET_NAMES) {
                metrics::gauge!(names::BUDGET_USED_BYTES, "budget" => name).set(budget.used() as f64);
            }
            let is_idle = self.shared.leases.in_flight() == 0;
            if !is_idle {
                idle_since = Instant::now();
            }
            let has_proved = self.shared.stats.finished_count() > finished_before;
            let has_stood =
                began.elapsed() >= STABLE_AFTER || (is_idle && idle_since.elapsed() >= recovered_after);
            if (has_proved || has_stood)
                && let Some(over) = trouble.take()
            {
                tracing::info!(part = %over.component, since = %over.since, "pipeline is up again");
                *lock(&self.shared.status) = PipelineStatus::Running;
            }
        }
    }

    /// Notes an outage: one error line for all generations that fail in it. Answers how long to wait.
    fn record_outage(&self, outage: &Outage, trouble: &mut Option<OutageState>) -> Duration {
        metrics::counter!(names::OUTAGES, "part" => outage.component.as_str()).increment(1);
        let same = trouble.as_ref().is_some_and(|trouble| trouble.component == outage.component);
        let before = trouble.take();
        let failures = before.as_ref().map_or(1, |before| before.failures + 1);
        let since = before.map_or_else(OffsetDateTime::now_utc, |before| before.since);
        let pause = outage.retry_after.unwrap_or_default().max((self.backoff)(failures));
        let (part, reason) = (outage.component, outage.to_string());
        if same {
            tracing::info!(%part, reason, failures, ?pause, "pipeline is still down");
        } else {
            tracing::error!(%part, reason, ?pause, "pipeline is down, photos go back to the queue");
        }
        *lock(&self.shared.status) = PipelineStatus::Down { component: part, reason, since };
        *trouble = Some(OutageState { component: part, since, failures });
        pause
    }
}

/// 1, 2, 4 .. 60 s.
pub(crate) fn backoff(failures: u32) -> Duration {
    Duration::from_secs(1 << (failures.clamp(1, 7) - 1)).min(MAX_BACKOFF)
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
        let seconds: Vec<u64> = (1..10).map(|failures| backoff(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
