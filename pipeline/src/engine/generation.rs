//! A generation is one set of all threads of the pipeline. Its stages start first and its feed last; it drains in order
//! and is never repaired: when a component fails, the supervisor ends the generation and starts another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, never, select};
use photofinish_store::panic_message;

use crate::engine::budget::Budgets;
use crate::engine::cpu_shares::CpuShares;
use crate::engine::edge::Inlet;
use crate::engine::fault::{Component, Outage};
use crate::engine::outlet::Outlet;
use crate::engine::pipeline_stats::PipelineStats;
use crate::engine::runner::{Exit, StageFactory, Worker};
use crate::engine::stage::SteppedStage;
use crate::engine::stage_shares::StageShares;
use crate::engine::store_client::{KillSwitch, StoreClient};

/// How long threads may take to exit after an outage: longer than the longest step of a stage, which is decoding the
/// largest photo. The attempts of photos in threads that take longer count, unless the pipeline is stopped meanwhile.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Which thread ended, and why.
#[derive(Debug)]
pub(crate) struct ThreadExit {
    /// The name of the thread, such as `decode-0`.
    pub(crate) thread: String,
    pub(crate) stage: &'static str,
    pub(crate) exit: Exit,
}

/// The threads of a generation, with the channels on which they report.
pub(crate) struct StageThreads {
    handles: Vec<NamedThread>,
    exit_sender: Sender<ThreadExit>,
    exit_receiver: Receiver<ThreadExit>,
    ready_sender: Sender<()>,
    ready_receiver: Receiver<()>,
    /// Closes each edge, so that no thread waits for one that hangs.
    edge_closers: Vec<Box<dyn Fn() + Send>>,
    store: StoreClient,
    cpu_shares: CpuShares,
    stats: Arc<PipelineStats>,
}

struct NamedThread {
    name: String,
    handle: JoinHandle<()>,
}

/// The configuration of one stage.
pub(crate) struct StageSpec<S: SteppedStage> {
    name: &'static str,
    threads: usize,
    batch_size: usize,
    factory: StageFactory<S>,
    has_low_priority: bool,
    takes_shares: bool,
}

/// How much lower the priority of stages that compute is than that of the threads that answer requests and examine selfies:
/// a runner who searches waits for an answer, a photo is processed in the background. The scheduler gives a thread three
/// steps lower half of the time: with ten, a tenth, one client's flood of searches held up everybody's photos. The attack
/// `clients` was run with five, a third, and with one too: `bench/RESULTS.md` has what they make of waits.
const NICENESS: i32 = 3;

impl<S: SteppedStage> StageSpec<S> {
    /// Configures a stage with at least one thread and batches of at least one photo.
    pub(crate) fn new(
        name: &'static str,
        threads: usize,
        batch_size: usize,
        factory: StageFactory<S>,
    ) -> Self {
        let (threads, batch_size) = (threads.max(1), batch_size.max(1));
        Self { name, threads, batch_size, factory, has_low_priority: false, takes_shares: false }
    }

    /// Lets the threads of requests go first.
    #[must_use]
    pub(crate) fn with_low_priority(self) -> Self {
        Self { has_low_priority: true, ..self }
    }

    /// Configures whether each of its steps needs a share of the cores, as one that computes all the time does. One that waits
    /// for a device would keep the core from others meanwhile.
    #[must_use]
    pub(crate) fn with_shares(self, takes_shares: bool) -> Self {
        Self { takes_shares, ..self }
    }
}

/// Lowers the priority of the calling thread. On Linux it is the thread's own; elsewhere it is the process's.
fn lower_priority() {
    if cfg!(target_os = "linux")
        && let Err(error) = rustix::process::nice(NICENESS)
    {
        tracing::debug!(%error, "failed to lower the priority of a stage");
    }
}

/// The capacity of the report channels: far more threads than a machine runs, so that no report ever blocks.
const MAX_THREADS: usize = 1024;

impl StageThreads {
    /// Stages that take shares of the cores take them of `cpu_shares`.
    pub(crate) fn new(store: StoreClient, stats: Arc<PipelineStats>, cpu_shares: CpuShares) -> Self {
        let (exit_sender, exit_receiver) = bounded(MAX_THREADS);
        let (ready_sender, ready_receiver) = bounded(MAX_THREADS);
        Self {
            handles: Vec::new(),
            exit_sender,
            exit_receiver,
            ready_sender,
            ready_receiver,
            edge_closers: Vec::new(),
            store,
            cpu_shares,
            stats,
        }
    }

    /// Spawns the threads of one stage, named `decode-0`, `decode-1` and so on. Each builds its own instance of the stage
    /// and then reports that it is ready.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub(crate) fn spawn_stage<S: SteppedStage + 'static>(
        &mut self,
        spec: StageSpec<S>,
        inlet: Inlet<S::In, S::Part>,
        outlet: Outlet<S::Out>,
    ) -> Result<(), Outage> {
        let stats = self.stats.stage(spec.name);
        stats.configure(spec.threads, inlet.capacity());
        let (closed, woken) = (inlet.clone(), inlet.clone());
        outlet.call_on_space(Box::new(move || woken.wake()));
        self.edge_closers.push(Box::new(move || closed.close()));
        let cpu_shares = spec
            .takes_shares
            .then(|| StageShares::new(self.cpu_shares.clone(), inlet.clone(), outlet.clone()));
        for i in 0..spec.threads {
            let worker = Worker {
                factory: Arc::clone(&spec.factory),
                batch_size: spec.batch_size,
                inlet: inlet.clone(),
                outlet: outlet.clone(),
                stats: Arc::clone(&stats),
                store: self.store.clone(),
                cpu_shares: cpu_shares.clone(),
                has_drained: false,
            };
            let (ready, has_low_priority) = (self.ready_sender.clone(), spec.has_low_priority);
            self.spawn_thread(spec.name, i, move || {
                if has_low_priority {
                    lower_priority();
                }
                worker.run(|| {
                    // The receiver is gone if the supervisor has ended this generation already.
                    let _ended = ready.try_send(());
                })
            })?;
        }
        Ok(())
    }

    /// Spawns one thread, which reports its exit however it ends.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub(crate) fn spawn_thread(
        &mut self,
        stage: &'static str,
        number: usize,
        work: impl FnOnce() -> Exit + Send + 'static,
    ) -> Result<(), Outage> {
        let name = format!("{stage}-{number}");
        let (exit_sender, thread) = (self.exit_sender.clone(), name.clone());
        let report_exit = move || {
            let exit = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|panic| Exit::Panicked(panic_message(panic.as_ref())));
            // The channel has capacity for every thread; its receiver is gone if the generation has ended already.
            let _ended = exit_sender.try_send(ThreadExit { thread, stage, exit });
        };
        let handle = std::thread::Builder::new()
            .name(name.clone())
            .spawn(report_exit)
            .map_err(|error| Outage::new(Component::Stage(stage), format!("no thread: {error}")))?;
        self.handles.push(NamedThread { name, handle });
        Ok(())
    }

    /// Returns the number of threads spawned so far.
    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }
}

/// All threads of the pipeline, and the means to end them.
pub(crate) struct Generation {
    pub(crate) threads: StageThreads,
    pub(crate) kill_switch: KillSwitch,
    /// Tells the feed to lease no more photos.
    pub(crate) is_draining: Arc<AtomicBool>,
    /// Wakes the feed from a pause.
    pub(crate) wakeup: Sender<()>,
    pub(crate) budgets: Budgets,
}

/// How long threads that are told to end may take to exit.
pub(crate) struct ExitLimits {
    pub(crate) timeout: Duration,
    /// Receives a stop of the pipeline, which leaves them at most `at_stop` more.
    pub(crate) stop: Receiver<()>,
    pub(crate) at_stop: Duration,
}

impl ExitLimits {
    /// Limits that no stop changes.
    pub(crate) fn fixed(timeout: Duration) -> Self {
        Self { timeout, stop: never(), at_stop: timeout }
    }
}

/// How a generation ended.
#[derive(Debug, Default)]
pub(crate) struct Termination {
    /// The first outage or panic that a thread reported.
    pub(crate) cause: Option<Outage>,
    /// The names of the threads that did not exit in time. They keep their photos, which the caller takes care of.
    pub(crate) abandoned_threads: Vec<String>,
    /// When the pipeline was stopped, if it was while threads exited.
    pub(crate) stopped_at: Option<Instant>,
}

impl Generation {
    /// Receives one message per stage thread that is ready.
    pub(crate) fn ready(&self) -> &Receiver<()> {
        &self.threads.ready_receiver
    }

    /// Receives the exit of each thread.
    pub(crate) fn exits(&self) -> &Receiver<ThreadExit> {
        &self.threads.exit_receiver
    }

    /// Stops the feed and waits at most `grace` for the stages to finish what is in flight. Adds the exits to `exits` and
    /// returns whether all threads drained.
    pub(crate) fn drain(&self, grace: Duration, exits: &mut Vec<ThreadExit>) -> bool {
        self.is_draining.store(true, Ordering::Release);
        self.wake_feed();
        self.wait_for_exits(&ExitLimits::fixed(grace), exits);
        exits.len() == self.threads.len() && exits.iter().all(|exit| matches!(exit.exit, Exit::Drained))
    }

    /// Ends every thread at once, waiting for them to exit within the limits. Their tickets give the photos back. `exits`
    /// are those of threads that have ended before.
    pub(crate) fn terminate(mut self, limits: &ExitLimits, mut exits: Vec<ThreadExit>) -> Termination {
        self.is_draining.store(true, Ordering::Release);
        self.kill_switch.set();
        self.budgets.close();
        self.threads.cpu_shares.close();
        self.threads.edge_closers.iter().for_each(|close| close());
        self.wake_feed();
        let begun = Instant::now();
        let stopped_at = self.wait_for_exits(limits, &mut exits);
        let mut abandoned_threads = Vec::new();
        for NamedThread { name, handle } in self.threads.handles.drain(..) {
            let has_exited = exits.iter().any(|exit| exit.thread == name);
            if !has_exited {
                abandoned_threads.push(name);
            } else if handle.join().is_err() {
                tracing::error!(thread = name, "thread panicked after it had reported its exit");
            }
        }
        if !abandoned_threads.is_empty() {
            let threads = abandoned_threads.join(", ");
            let seconds = begun.elapsed().as_secs_f64();
            tracing::error!(threads, seconds, "threads did not exit in time, leaving them");
        }
        Termination { cause: exits.into_iter().find_map(outage_from_exit), abandoned_threads, stopped_at }
    }

    fn wake_feed(&self) {
        // If the channel is full, a wakeup is pending already.
        let _pending = self.wakeup.try_send(());
    }

    /// Collects exits until every thread has ended or their time is over. Returns when the pipeline was stopped, if it was
    /// meanwhile.
    fn wait_for_exits(&self, limits: &ExitLimits, exits: &mut Vec<ThreadExit>) -> Option<Instant> {
        let (mut deadline, mut stop) = (Instant::now() + limits.timeout, limits.stop.clone());
        let mut stopped_at = None;
        while exits.len() < self.threads.len() {
            let is_stop = select! {
                // The generation has a sender too, so that there is an exit.
                recv(self.exits()) -> exit => {
                    exits.extend(exit);
                    false
                }
                recv(stop) -> _stop => true,
                default(deadline.saturating_duration_since(Instant::now())) => return stopped_at,
            };
            if is_stop {
                let now = Instant::now();
                (stopped_at, stop) = (Some(now), never());
                deadline = deadline.min(now + limits.at_stop);
            }
        }
        stopped_at
    }
}

fn outage_from_exit(exit: ThreadExit) -> Option<Outage> {
    match exit.exit {
        Exit::Outage(outage) => Some(outage),
        Exit::Panicked(message) => Some(Outage::new(
            Component::Stage(exit.stage),
            format!("thread {} panicked: {message}", exit.thread),
        )),
        Exit::Drained | Exit::DownstreamClosed | Exit::Killed => None,
    }
}
