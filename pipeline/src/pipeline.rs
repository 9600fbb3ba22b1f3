//! The handle that `src` holds: starts the pipeline, asks how it is, stops it.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use time::OffsetDateTime;

use crate::assembly;
use crate::engine::fault::Component;
use crate::engine::leases::{LeaseRenewer, LeaseTable};
use crate::engine::stage::STAGES;
use crate::engine::stage_stats::PipelineStats;
use crate::engine::store_client::{KillSwitch, StoreClient};
use crate::engine::supervisor::{PipelineStatus, SharedState, StopReport, Supervisor, backoff, stop_channel};
use crate::engine::sync::lock;
use crate::settings::{PipelineDependencies, PipelineSettings};

/// The staged pipeline, on its own threads.
#[derive(Debug)]
pub struct Pipeline {
    shared: Arc<SharedState>,
    stop: Sender<()>,
    supervisor: Mutex<Option<JoinHandle<StopReport>>>,
    report: Mutex<Option<StopReport>>,
}

impl Pipeline {
    /// Starts it and returns at once; the first generation comes up in the background. Where the operating system
    /// refuses even a thread the pipeline is down from the start.
    pub fn start(settings: PipelineSettings, parts: PipelineDependencies) -> Self {
        let shared = Arc::new(SharedState {
            status: Mutex::new(PipelineStatus::Starting),
            stats: Arc::new(PipelineStats::new(&STAGES)),
            leases: Arc::new(LeaseTable::new(Arc::clone(&parts.queue))),
            wakeup: Mutex::default(),
        });
        let (stop, stopped) = stop_channel();
        let supervisor = start_supervisor(settings, parts, &shared, stopped)
            .inspect_err(|error| {
                let reason = format!("no thread: {error}");
                tracing::error!(reason, "the pipeline cannot start");
                let since = OffsetDateTime::now_utc();
                *lock(&shared.status) =
                    PipelineStatus::Down { component: Component::Stage("supervisor"), reason, since };
            })
            .ok();
        Self { shared, stop, supervisor: Mutex::new(supervisor), report: Mutex::default() }
    }

    /// How it is now.
    pub fn status(&self) -> PipelineStatus {
        lock(&self.shared.status).clone()
    }

    /// The stage that holds the others up, while photos are worked on.
    pub fn bottleneck(&self) -> Option<&'static str> {
        self.shared.stats.bottleneck()
    }

    /// Photos that this process works on now.
    pub fn in_flight(&self) -> usize {
        self.shared.leases.in_flight()
    }

    /// Says that something was confirmed: the feed looks at once and not when its pause is over.
    pub fn wake(&self) {
        if let Some(bell) = lock(&self.shared.wakeup).as_ref() {
            // A full bell will ring anyway.
            let _rings = bell.try_send(());
        }
    }

    /// Takes no more work, lets what is in flight end (at most the drain grace), gives the rest back, ends every
    /// thread. Blocks. A second call answers the report of the first.
    pub fn stop(&self) -> StopReport {
        // Held to the end, so that a second caller waits for the first.
        let mut report = lock(&self.report);
        if let Some(supervisor) = lock(&self.supervisor).take() {
            // Full means that it was told before.
            let _told = self.stop.try_send(());
            *report = supervisor.join().ok();
            if report.is_none() {
                tracing::error!("the supervisor of the pipeline panicked");
            }
        }
        report.clone().unwrap_or_else(|| StopReport {
            drained: false,
            given_back: self.shared.leases.given_back_count(),
            unfinished: self.shared.leases.in_flight(),
            abandoned_threads: vec!["supervisor".to_owned()],
        })
    }
}

fn start_supervisor(
    settings: PipelineSettings,
    parts: PipelineDependencies,
    shared: &Arc<SharedState>,
    stop: Receiver<()>,
) -> std::io::Result<JoinHandle<StopReport>> {
    // The keeper outlives every generation, so no kill ends its calls.
    let calls = StoreClient { runtime: parts.runtime.clone(), kill_switch: KillSwitch::new() };
    let supervisor = Supervisor {
        shared: Arc::clone(shared),
        stop,
        renewer: LeaseRenewer::start(Arc::clone(&shared.leases), calls, settings.lease_ttl)?,
        runtime: parts.runtime.clone(),
        drain_grace: settings.drain_grace,
        backoff,
        start_generation: assembly::generation_factory(settings, parts, Arc::clone(shared)),
    };
    std::thread::Builder::new().name("supervisor".into()).spawn(move || supervisor.run())
}

impl Drop for Pipeline {
    /// Tells the threads to end and does not wait: `stop` is the way to end well.
    fn drop(&mut self) {
        if lock(&self.supervisor).is_some() {
            tracing::warn!("the pipeline was dropped without being stopped");
            // Full means that it was told before.
            let _told = self.stop.try_send(());
        }
    }
}
