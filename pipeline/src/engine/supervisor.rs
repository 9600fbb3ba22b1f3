//! The supervisor starts a generation, monitors it, ends it when a component fails, and starts the next one after a pause
//! of 1, 2, 4 .. 60 s. It maintains the status of its lane. It knows no stages: a function that it is given starts them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use time::OffsetDateTime;

use crate::engine::device::{Work, show_lost};
use crate::engine::fault::{Component, Outage, UNKNOWN_STAGE};
use crate::engine::generation::{ExitLimits, Generation, Termination, ThreadExit};
use crate::engine::leases::LeaseRenewer;
use crate::engine::metrics as names;
use crate::engine::status::{PipelineStatus, SharedState, StopReport};
use crate::engine::store_client::{CALL_TIMEOUT, KillSwitch, with_timeout};
use crate::engine::supervisor_timeouts::SupervisorTimeouts;
use crate::engine::sync::lock;

/// Starts the stages of a generation.
pub(crate) type GenerationFactory = Box<dyn Fn(KillSwitch) -> Result<PendingGeneration, Outage> + Send>;

/// Starts the feed of a generation.
pub(crate) type StartFeed = Box<dyn FnOnce(&mut Generation) -> Result<(), Outage> + Send>;

/// A generation whose stages are being built. Its feed is started when all of them are ready.
pub(crate) struct PendingGeneration {
    pub(crate) generation: Generation,
    pub(crate) start_feed: StartFeed,
}

/// The device of a lane.
#[derive(Clone, Debug)]
pub(crate) struct SupervisedDevice {
    /// See [`name_device`](crate::engine::device::name_device).
    pub(crate) name: String,
    /// Whether the pipeline has no other: the log then does not name it.
    pub(crate) is_only: bool,
}

impl SupervisedDevice {
    /// The device, for the log, where there are several.
    fn logged_name(&self) -> Option<&str> {
        (!self.is_only).then_some(&*self.name)
    }
}

/// The thread that owns all others of a lane.
pub(crate) struct Supervisor {
    pub(crate) device: SupervisedDevice,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) start_generation: GenerationFactory,
    /// For how long the oldest call of a device has been running.
    pub(crate) longest_device_call: Box<dyn Fn() -> Option<Duration> + Send>,
    /// A call that takes longer never returns.
    pub(crate) device_call_limit: Duration,
    /// Frees what stages have kept for further photos and not used for a while.
    pub(crate) free_idle_memory: Box<dyn Fn() + Send>,
    pub(crate) stop: Receiver<()>,
    pub(crate) renewer: LeaseRenewer,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) drain_grace: Duration,
    /// Returns the pause after a number of consecutive failures.
    pub(crate) backoff: fn(u32) -> Duration,
}

/// How often the statistics and the state of an outage are updated.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The longest pause between two generations.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// After so many outages of the device in a row, over some 15 s, only another process has it back: CUDA gives a process no
/// second context after an error in a kernel, while a device of Vulkan can be opened again.
const MAX_DEVICE_OUTAGES: u32 = 5;

/// A generation that has run for so long has recovered from an outage: failures are detected much sooner.
const STABLE_AFTER: Duration = Duration::from_secs(120);

/// An outage that has not ended, over all generations that failed in it.
struct OutageState {
    component: Component,
    since: OffsetDateTime,
    /// Consecutive generations that failed.
    failures: u32,
    /// Those of them, the latest ones, that failed because of the device.
    device_outages: u32,
}

/// Why a generation has to be ended.
enum GenerationEnd {
    Stopped,
    Failed(Vec<ThreadExit>),
    /// So long has a call of the device not returned.
    DeviceHangs(Duration),
}

/// How a generation ended that was stopped.
#[derive(Default)]
struct StoppedGeneration {
    drained: bool,
    abandoned_threads: Vec<String>,
    /// `None` if there was none, so that the stop may have waited for long already.
    took: Option<Duration>,
}

impl Supervisor {
    /// Keeps the pipeline running until it is stopped.
    pub(crate) fn run(self) -> StopReport {
        self.run_with_timeouts(SupervisorTimeouts::SERVICE)
    }

    /// Does the same with other timeouts.
    pub(crate) fn run_with_timeouts(self, timeouts: SupervisorTimeouts) -> StopReport {
        let mut outage_state = None;
        let stopped = loop {
            match self.run_generation(&mut outage_state, timeouts) {
                Ok(stopped) => break stopped,
                Err(outage) => {
                    let pause = self.record_outage(&outage, &mut outage_state);
                    if outage_state.as_ref().is_some_and(|state| state.device_outages >= MAX_DEVICE_OUTAGES) {
                        self.give_device_up(outage.to_string());
                        break StoppedGeneration { drained: false, ..StoppedGeneration::default() };
                    }
                    if self.stop.recv_timeout(pause).is_ok() {
                        break StoppedGeneration { drained: true, ..StoppedGeneration::default() };
                    }
                }
            }
        };
        self.renewer.stop(timeouts.for_release(self.drain_grace, stopped.took));
        let report = StopReport {
            drained: stopped.drained,
            given_back: self.shared.leases.released_count(),
            unfinished: self.shared.leases.unreleased_count(),
            abandoned_threads: stopped.abandoned_threads,
        };
        self.shared.suspect_gate.remove(&self.shared.leases);
        tracing::info!(
            device = self.device.logged_name(),
            drained = report.drained,
            given_back = report.given_back,
            left = report.unfinished,
            "pipeline stopped"
        );
        report
    }

    /// Runs one generation from start to end. Returns `Ok` when the pipeline is stopped.
    fn run_generation(
        &self,
        outage_state: &mut Option<OutageState>,
        timeouts: SupervisorTimeouts,
    ) -> Result<StoppedGeneration, Outage> {
        let kill_switch = KillSwitch::new();
        if !self.check_queue()? {
            return Ok(StoppedGeneration { drained: true, ..StoppedGeneration::default() });
        }
        let PendingGeneration { mut generation, start_feed } = (self.start_generation)(kill_switch)?;
        let end = match self.wait_until_ready(&generation) {
            Some(end) => {
                // The feed owns a sender of the first channel: until it is dropped the stages do not drain.
                drop(start_feed);
                end
            }
            None => match start_feed(&mut generation) {
                Ok(()) => self.monitor_generation(&generation, outage_state, timeouts.recovered_after),
                Err(outage) => {
                    self.fail_generation(generation, Vec::new(), &ExitLimits::fixed(timeouts.thread_exit));
                    return Err(outage);
                }
            },
        };
        *lock(&self.shared.wakeup) = None;
        match end {
            GenerationEnd::Stopped => {
                let (stopped_at, mut exits) = (Instant::now(), Vec::new());
                let drained = generation.drain(self.drain_grace, &mut exits);
                let limits = ExitLimits::fixed(timeouts.thread_exit_at_stop);
                let abandoned_threads =
                    self.terminate_generation(generation, exits, &limits).abandoned_threads;
                if !abandoned_threads.is_empty() {
                    // Not the photos' fault: they were not given more time.
                    self.shared.leases.release_all();
                }
                Ok(StoppedGeneration { drained, abandoned_threads, took: Some(stopped_at.elapsed()) })
            }
            GenerationEnd::DeviceHangs(time) => {
                Ok(self.end_hanging(generation, time, timeouts.thread_exit_at_stop))
            }
            GenerationEnd::Failed(exits) => self.end_failed(generation, exits, outage_state, timeouts),
        }
    }

    /// Ends a generation in which a component failed. Returns `Ok` when the pipeline is stopped meanwhile.
    fn end_failed(
        &self,
        generation: Generation,
        exits: Vec<ThreadExit>,
        outage_state: &mut Option<OutageState>,
        timeouts: SupervisorTimeouts,
    ) -> Result<StoppedGeneration, Outage> {
        let thread = exits.first().map(|exit| exit.thread.clone()).unwrap_or_default();
        let (stop, at_stop) = (self.stop.clone(), timeouts.thread_exit_at_stop);
        let limits = ExitLimits { timeout: timeouts.thread_exit, stop, at_stop };
        let Termination { cause, abandoned_threads, stopped_at } =
            self.fail_generation(generation, exits, &limits);
        let without_cause = || format!("thread {thread} ended without a cause");
        let outage = cause.unwrap_or_else(|| Outage::new(UNKNOWN_STAGE, without_cause()));
        let Some(stopped_at) = stopped_at else { return Err(outage) };
        self.record_outage(&outage, outage_state);
        Ok(StoppedGeneration { drained: false, abandoned_threads, took: Some(stopped_at.elapsed()) })
    }

    /// Ends a generation, and with it the pipeline, because a device hangs: other threads that call it would hang too, and
    /// only another process has it back. Photos of threads that end return to the queue; those of a thread that hangs may
    /// be why it does, so that their leases expire.
    fn end_hanging(&self, generation: Generation, time: Duration, exit: Duration) -> StoppedGeneration {
        let reason = format!("a call of the device has not returned for {} s", time.as_secs());
        let (component, since) = (Component::Models, OffsetDateTime::now_utc());
        metrics::counter!(names::OUTAGES, "part" => component.as_str()).increment(1);
        *lock(&self.shared.status) = PipelineStatus::Down { component, reason: reason.clone(), since };
        let limits = ExitLimits::fixed(exit);
        let abandoned_threads = self.fail_generation(generation, Vec::new(), &limits).abandoned_threads;
        self.give_device_up(reason);
        StoppedGeneration { drained: false, abandoned_threads, took: Some(exit) }
    }

    /// Says that this process cannot use its device any more, so that it ends unless it has others.
    fn give_device_up(&self, reason: String) {
        match self.device.logged_name() {
            None => tracing::error!(reason, "pipeline ended, its process has to be replaced"),
            device => tracing::error!(device, reason, "gave up a device until the process is replaced"),
        }
        show_lost(&self.device.name, Work::Photos);
        self.shared.stats.remove_threads();
        // The first reason is kept; there is no second.
        let _first = self.shared.device_failure.set(reason);
    }

    /// Returns the end of a generation whose device hangs.
    fn check_device(&self) -> Option<GenerationEnd> {
        let longest = (self.longest_device_call)()?;
        (longest >= self.device_call_limit).then_some(GenerationEnd::DeviceHangs(longest))
    }

    /// Terminates a generation in which a component failed, and abandons the leases of threads that do not exit.
    fn fail_generation(
        &self,
        generation: Generation,
        exits: Vec<ThreadExit>,
        limits: &ExitLimits,
    ) -> Termination {
        let terminated = self.terminate_generation(generation, exits, limits);
        if !terminated.abandoned_threads.is_empty() {
            match terminated.stopped_at {
                None => self.shared.leases.abandon_all(),
                // Not the photos' fault: they were not given all of the time.
                Some(_) => self.shared.leases.release_all(),
            }
        }
        terminated
    }

    /// Ends a generation and resets the gauges.
    fn terminate_generation(
        &self,
        generation: Generation,
        exits: Vec<ThreadExit>,
        limits: &ExitLimits,
    ) -> Termination {
        let terminated = generation.terminate(limits, exits);
        self.shared.stats.reset_depths();
        self.shared.show_budgets(Vec::new());
        terminated
    }

    /// Checks the queue before the models are loaded, because without it the feed would fail at its first lease. Returns
    /// `false` when the pipeline is stopped meanwhile.
    fn check_queue(&self) -> Result<bool, Outage> {
        let leases = Arc::clone(&self.shared.leases);
        let (sender, checked) = bounded(1);
        self.runtime.spawn(async move {
            let result = with_timeout(Component::Database, CALL_TIMEOUT, leases.queue().check()).await;
            // The receiver is gone if the pipeline was stopped.
            let _stopped = sender.try_send(result);
        });
        select! {
            recv(checked) -> result => {
                let ended = || Outage::new(Component::Database, "the runtime ended during a check");
                result.map_err(|_closed| ended())??.map_err(Outage::from_queue_error).map(|()| true)
            }
            recv(self.stop) -> _stop => Ok(false),
        }
    }

    /// Waits until every stage is built. Returns `Some` if the generation has to be ended before that.
    fn wait_until_ready(&self, generation: &Generation) -> Option<GenerationEnd> {
        let mut missing = generation.threads.len();
        while missing > 0 {
            select! {
                recv(generation.ready()) -> _ready => missing -= 1,
                recv(generation.exits()) -> exit => return Some(GenerationEnd::Failed(exit.into_iter().collect())),
                recv(self.stop) -> _stop => return Some(GenerationEnd::Stopped),
                default(POLL_INTERVAL) => {
                    if let Some(end) = self.check_device() {
                        return Some(end);
                    }
                }
            }
        }
        *lock(&self.shared.wakeup) = Some(generation.wakeup.clone());
        None
    }

    /// Monitors a running generation until a thread ends or the pipeline is stopped.
    ///
    /// After an outage the generation has recovered when it has finished a photo, has been idle for `recovered_after`,
    /// or has run for [`STABLE_AFTER`]. Photos in flight prove nothing, because a storage that hangs is detected later
    /// than that, and neither does a failed photo, which may not have reached the component that was down.
    fn monitor_generation(
        &self,
        generation: &Generation,
        outage_state: &mut Option<OutageState>,
        recovered_after: Duration,
    ) -> GenerationEnd {
        let started_at = Instant::now();
        let mut idle_since = started_at;
        let finished_before = self.shared.stats.finished_count();
        if outage_state.is_none() {
            *lock(&self.shared.status) = PipelineStatus::Running;
        }
        loop {
            select! {
                recv(generation.exits()) -> exit => return GenerationEnd::Failed(exit.into_iter().collect()),
                recv(self.stop) -> _stop => return GenerationEnd::Stopped,
                default(POLL_INTERVAL) => {}
            }
            if let Some(end) = self.check_device() {
                return end;
            }
            self.shared.stats.update_bottleneck();
            self.shared.show_budgets(generation.budgets.loads());
            (self.free_idle_memory)();
            let is_idle = self.shared.leases.in_flight() == 0;
            if !is_idle {
                idle_since = Instant::now();
            }
            let has_finished_photo = self.shared.stats.finished_count() > finished_before;
            let is_stable =
                started_at.elapsed() >= STABLE_AFTER || (is_idle && idle_since.elapsed() >= recovered_after);
            if (has_finished_photo || is_stable)
                && let Some(outage) = outage_state.take()
            {
                let (device, part) = (self.device.logged_name(), outage.component.as_str());
                tracing::info!(device, part, since = %outage.since, "pipeline recovered");
                self.shared.is_device_suspect.store(false, Ordering::Release);
                *lock(&self.shared.status) = PipelineStatus::Running;
            }
        }
    }

    /// Records an outage and returns the pause before the next generation. Only the first failure of an outage is logged
    /// as an error.
    fn record_outage(&self, outage: &Outage, outage_state: &mut Option<OutageState>) -> Duration {
        metrics::counter!(names::OUTAGES, "part" => outage.component.as_str()).increment(1);
        let is_same = outage_state.as_ref().is_some_and(|state| state.component == outage.component);
        let previous = outage_state.take();
        let failures = previous.as_ref().map_or(1, |state| state.failures + 1);
        let device_outages = previous.as_ref().map_or(0, |state| state.device_outages);
        let device_outages = if outage.is_of_device() { device_outages + 1 } else { 0 };
        let since = previous.map_or_else(OffsetDateTime::now_utc, |state| state.since);
        let pause = outage.retry_after.unwrap_or_default().max((self.backoff)(failures));
        let (component, reason) = (outage.component, outage.to_string());
        let (device, part) = (self.device.logged_name(), component.as_str());
        if is_same {
            tracing::info!(device, part, reason, failures, ?pause, "pipeline still down, retrying");
        } else {
            tracing::error!(device, part, reason, ?pause, "pipeline down, photos given back to the queue");
        }
        *lock(&self.shared.status) = PipelineStatus::Down { component, reason, since };
        self.shared.is_device_suspect.store(device_outages > 0, Ordering::Release);
        *outage_state = Some(OutageState { component, since, failures, device_outages });
        pause
    }
}

/// Returns the pause after a number of consecutive failures: 1, 2, 4 .. 60 s.
pub(crate) fn backoff(failures: u32) -> Duration {
    Duration::from_secs(1 << (failures.clamp(1, 7) - 1)).min(MAX_BACKOFF)
}

/// Creates the channel that tells the supervisor to stop.
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
