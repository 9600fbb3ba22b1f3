//! The handle with which the service starts the pipeline, reads its status and stops it.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use time::OffsetDateTime;

use crate::assembly;
use crate::engine::budget::BudgetLoad;
use crate::engine::fault::Component;
use crate::engine::leases::LeaseRenewer;
use crate::engine::stage::STAGES;
use crate::engine::stage_stats::{PipelineStats, StageLoad};
use crate::engine::status::{PipelineStatus, SharedState, StopReport};
use crate::engine::store_client::{KillSwitch, StoreClient};
use crate::engine::supervisor::{Supervisor, backoff, stop_channel};
use crate::engine::sync::lock;
use crate::image::pool::{IDLE_LIFETIME, PixelPool};
use crate::settings::{PipelineDependencies, PipelineSettings};

/// The pipeline, running on its own threads.
#[derive(Debug)]
pub struct Pipeline {
    shared: Arc<SharedState>,
    stop: Sender<()>,
    supervisor: Mutex<Option<JoinHandle<StopReport>>>,
    report: Mutex<Option<StopReport>>,
}

impl Pipeline {
    /// Starts the pipeline and returns at once; the first generation starts in the background. If the operating system
    /// refuses the supervisor's thread, the status of the pipeline is [`PipelineStatus::Down`].
    pub fn start(settings: PipelineSettings, dependencies: PipelineDependencies) -> Self {
        let stats = Arc::new(PipelineStats::new(&STAGES));
        let shared = Arc::new(SharedState::new(stats, Arc::clone(&dependencies.queue)));
        let (stop, stopped) = stop_channel();
        let supervisor = start_supervisor(settings, dependencies, &shared, stopped)
            .inspect_err(|error| {
                let reason = format!("no thread: {error}");
                tracing::error!(reason, "failed to start pipeline");
                let since = OffsetDateTime::now_utc();
                *lock(&shared.status) =
                    PipelineStatus::Down { component: Component::Stage("supervisor"), reason, since };
            })
            .ok();
        Self { shared, stop, supervisor: Mutex::new(supervisor), report: Mutex::default() }
    }

    /// Returns the current status.
    pub fn status(&self) -> PipelineStatus {
        lock(&self.shared.status).clone()
    }

    /// Returns the stage that limits the throughput; `None` while few photos are processed.
    pub fn bottleneck(&self) -> Option<&'static str> {
        self.shared.stats.bottleneck()
    }

    /// Returns what each stage did over the last seconds, in the order in which photos pass the stages.
    pub fn stage_loads(&self) -> Vec<StageLoad> {
        self.shared.stats.loads()
    }

    /// Returns how much of its memory budgets is in use; empty while it does not run.
    pub fn budget_loads(&self) -> Vec<BudgetLoad> {
        lock(&self.shared.budgets).clone()
    }

    /// Returns why the pipeline has ended by itself: a call of the device never returned, or the device is lost and could not
    /// be opened again. The process has to be replaced; [`Self::stop`] has nothing to wait for.
    pub fn device_failure(&self) -> Option<&str> {
        self.shared.device_failure.get().map(String::as_str)
    }

    /// Returns the number of photos that this process is working on.
    pub fn in_flight(&self) -> usize {
        self.shared.leases.in_flight()
    }

    /// Wakes the feed from its pause, because photos were confirmed.
    pub fn wake(&self) {
        if let Some(wakeup) = lock(&self.shared.wakeup).as_ref() {
            // If the channel is full, a wakeup is pending already.
            let _pending = wakeup.try_send(());
        }
    }

    /// Stops the pipeline: leases no more photos, finishes what is in flight within the drain grace, gives back the rest
    /// and ends all threads. Blocks. A second call returns the report of the first.
    pub fn stop(&self) -> StopReport {
        // Locked until the end, so that a second caller waits for the first.
        let mut report = lock(&self.report);
        if let Some(supervisor) = lock(&self.supervisor).take() {
            // If the channel is full, the stop is pending already.
            let _pending = self.stop.try_send(());
            *report = supervisor.join().ok();
            if report.is_none() {
                tracing::error!("pipeline supervisor panicked");
            }
        }
        report.clone().unwrap_or_else(|| StopReport {
            drained: false,
            given_back: self.shared.leases.released_count(),
            unfinished: self.shared.leases.in_flight(),
            abandoned_threads: vec!["supervisor".to_owned()],
        })
    }
}

fn start_supervisor(
    settings: PipelineSettings,
    dependencies: PipelineDependencies,
    shared: &Arc<SharedState>,
    stop: Receiver<()>,
) -> std::io::Result<JoinHandle<StopReport>> {
    // The renewer outlives every generation, so its kill switch is never set.
    let store = StoreClient { runtime: dependencies.runtime.clone(), kill_switch: KillSwitch::new() };
    let pool = PixelPool::default();
    let idle_pool = pool.clone();
    let supervisor = Supervisor {
        shared: Arc::clone(shared),
        stop,
        renewer: LeaseRenewer::start(Arc::clone(&shared.leases), store, settings.lease_ttl)?,
        runtime: dependencies.runtime.clone(),
        drain_grace: settings.drain_grace,
        backoff,
        longest_device_call: Box::new({
            let models = Arc::clone(&dependencies.models);
            move || models.longest_device_call()
        }),
        device_call_limit: settings.device_call_limit,
        start_generation: assembly::generation_factory(settings, dependencies, Arc::clone(shared), pool),
        free_idle_memory: Box::new(move || idle_pool.free_idle_for(IDLE_LIFETIME)),
    };
    std::thread::Builder::new().name("supervisor".into()).spawn(move || supervisor.run())
}

impl Drop for Pipeline {
    /// Tells the threads to end without waiting for them; [`Pipeline::stop`] waits.
    fn drop(&mut self) {
        if lock(&self.supervisor).is_some() {
            tracing::warn!("pipeline dropped without being stopped");
            // If the channel is full, the stop is pending already.
            let _pending = self.stop.try_send(());
        }
    }
}
