//! One life of all threads of the pipeline: started last stage first, ended in order, never repaired. When a part of
//! it fails the supervisor ends it and starts another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::engine::budget::Budget;
use crate::engine::fault::{Component, Outage};
use crate::engine::runner::{Exit, Inlet, Outlet, StageFactory, Worker, panic_message};
use crate::engine::stage::Stage;
use crate::engine::stage_stats::PipelineStats;
use crate::engine::store_client::{KillSwitch, StoreClient};
use crate::engine::ticket::InFlight;

/// How long threads may take to notice that they are to end: longer than any single photo takes in any stage.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Which thread ended, and why.
#[derive(Debug)]
pub(crate) struct ThreadExit {
    pub(crate) thread: String,
    pub(crate) stage: &'static str,
    pub(crate) exit: Exit,
}

/// Threads being hired. Most threads a generation can have bounds the channels on which they report.
pub(crate) struct StageThreads {
    handles: Vec<(String, JoinHandle<()>)>,
    exits: (Sender<ThreadExit>, Receiver<ThreadExit>),
    ready: (Sender<()>, Receiver<()>),
    store: StoreClient,
    stats: Arc<PipelineStats>,
}

/// A stage's place in the pipeline.
pub(crate) struct StageSpec<S: Stage> {
    pub(crate) stage: &'static str,
    pub(crate) threads: usize,
    pub(crate) batch_size: usize,
    pub(crate) factory: StageFactory<S>,
}

/// Reports from more threads than this would wait for a reader; far above what a machine runs.
const MAX_THREADS: usize = 1024;

impl StageThreads {
    pub(crate) fn new(store: StoreClient, stats: Arc<PipelineStats>) -> Self {
        Self { handles: Vec::new(), exits: bounded(MAX_THREADS), ready: bounded(MAX_THREADS), store, stats }
    }

    /// Starts the threads of one stage, named `stage-0` and on. They build their stage before they report ready.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub(crate) fn spawn_stage<S: Stage + 'static>(
        &mut self,
        post: StageSpec<S>,
        inlet: Inlet<InFlight<S::In>>,
        outlet: Outlet<S::Out>,
    ) -> Result<(), Outage> {
        let meter = self.stats.stage(post.stage);
        meter.configure(post.threads, inlet.0.capacity().unwrap_or(1));
        for i in 0..post.threads.max(1) {
            let worker = Worker {
                factory: Arc::clone(&post.factory),
                batch_size: post.batch_size.max(1),
                inlet: inlet.clone(),
                outlet: outlet.clone(),
                stats: Arc::clone(&meter),
                store: self.store.clone(),
            };
            let ready = self.ready.0.clone();
            self.spawn_thread(post.stage, i, move || {
                worker.run(|| {
                    // The supervisor may have given up on this generation already.
                    let _nobody = ready.try_send(());
                })
            })?;
        }
        Ok(())
    }

    /// Starts one thread that reports its end, whatever it is.
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
        let (exits, thread) = (self.exits.0.clone(), name.clone());
        let report = move || {
            let exit = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|panic| Exit::Panicked(panic_message(panic.as_ref())));
            // Nobody reads it once the generation was given up; the channel has room for every thread.
            let _nobody = exits.try_send(ThreadExit { thread, stage, exit });
        };
        let handle = std::thread::Builder::new()
            .name(name.clone())
            .spawn(report)
            .map_err(|error| Outage::new(Component::Stage(stage), format!("no thread: {error}")))?;
        self.handles.push((name, handle));
        Ok(())
    }

    /// Threads so far.
    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }
}

/// All threads of the pipeline, and what ends them.
pub(crate) struct Generation {
    pub(crate) threads: StageThreads,
    pub(crate) kill_switch: KillSwitch,
    pub(crate) is_draining: Arc<AtomicBool>,
    pub(crate) wakeup: Sender<()>,
    pub(crate) budgets: [Budget; 2],
}

/// How a generation ended.
#[derive(Debug, Default)]
pub(crate) struct Termination {
    /// The first fault that a thread reported.
    pub(crate) cause: Option<Outage>,
    /// Threads that did not end in time; they still own their photos.
    pub(crate) abandoned: Vec<String>,
}

impl Generation {
    /// Rings once per stage thread that is ready.
    pub(crate) fn ready(&self) -> &Receiver<()> {
        &self.threads.ready.1
    }

    /// Rings once per thread that ends.
    pub(crate) fn exits(&self) -> &Receiver<ThreadExit> {
        &self.threads.exits.1
    }

    /// Takes no more work and lets each stage flush, at most `grace` long; whether everything ended so.
    pub(crate) fn drain(&mut self, grace: Duration, exited: &mut Vec<ThreadExit>) -> bool {
        self.is_draining.store(true, Ordering::Release);
        // A full bell will ring anyway.
        let _rings = self.wakeup.try_send(());
        self.wait_for_exits(grace, exited);
        exited.len() == self.threads.len() && exited.iter().all(|exited| matches!(exited.exit, Exit::Drained))
    }

    /// Ends every thread at once; what they had goes back by its tickets. `exited` are those that have ended before.
    pub(crate) fn terminate(self, exited: Vec<ThreadExit>) -> Termination {
        self.terminate_within(EXIT_TIMEOUT, exited)
    }

    /// The same, with `patience` for threads to end.
    pub(crate) fn terminate_within(mut self, patience: Duration, mut exited: Vec<ThreadExit>) -> Termination {
        self.is_draining.store(true, Ordering::Release);
        self.kill_switch.set();
        for budget in &self.budgets {
            budget.close();
        }
        // A full bell will ring anyway.
        let _rings = self.wakeup.try_send(());
        self.wait_for_exits(patience, &mut exited);
        let mut abandoned = Vec::new();
        for (name, handle) in self.threads.handles.drain(..) {
            let has_ended = exited.iter().any(|exited| exited.thread == name);
            if !has_ended {
                abandoned.push(name);
            } else if handle.join().is_err() {
                tracing::error!(thread = name, "a thread panicked after it had reported its end");
            }
        }
        if !abandoned.is_empty() {
            tracing::error!(threads = ?abandoned, "threads do not end; their photos come back when their leases end");
        }
        Termination { cause: exited.into_iter().find_map(outage_from_exit), abandoned }
    }

    /// Collects exits until every thread has ended or the time is over.
    fn wait_for_exits(&mut self, at_most: Duration, exited: &mut Vec<ThreadExit>) {
        let deadline = Instant::now() + at_most;
        while exited.len() < self.threads.len() {
            match self.exits().recv_deadline(deadline) {
                Ok(exit) => exited.push(exit),
                Err(_late) => return,
            }
        }
    }
}

fn outage_from_exit(exited: ThreadExit) -> Option<Outage> {
    match exited.exit {
        Exit::Outage(outage) => Some(outage),
        Exit::Panicked(message) => Some(Outage::new(
            Component::Stage(exited.stage),
            format!("thread {} panicked: {message}", exited.thread),
        )),
        Exit::Drained | Exit::DownstreamClosed | Exit::Killed => None,
    }
}
