//! A lane: what keeps one device busy, which is its leases, its supervisor and the generations of its threads. A pipeline has one
//! for each device. Lanes share nothing but the cores, buffers and statistics of the process, and the gate for crash suspects;
//! what they work on they get from the queue, so that the faster one takes more.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use time::OffsetDateTime;

use crate::assembly::Assembly;
use crate::engine::device::{Work, show_usable};
use crate::engine::fault::Component;
use crate::engine::leases::LeaseRenewer;
use crate::engine::status::{PipelineStatus, SharedState, StopReport};
use crate::engine::store_client::{KillSwitch, StoreClient};
use crate::engine::supervisor::{SupervisedDevice, Supervisor, backoff, stop_channel};
use crate::engine::sync::lock;
use crate::image::pool::IDLE_LIFETIME;

/// A running lane.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The name of its device.
    pub(crate) device: String,
    pub(crate) shared: Arc<SharedState>,
    stop: Sender<()>,
    is_started: bool,
    /// `None` if it could not be started, or was joined.
    supervisor: Mutex<Option<JoinHandle<StopReport>>>,
}

impl Lane {
    /// Starts the lane and returns at once. If the operating system refuses a thread, its status is
    /// [`PipelineStatus::Down`]. `is_only` is whether the pipeline has no other.
    pub(crate) fn start(assembly: Assembly, device: String, is_only: bool) -> Self {
        let shared = Arc::clone(&assembly.shared);
        show_usable(&device, Work::Photos);
        let (stop, stopped) = stop_channel();
        let supervisor =
            start_supervisor(assembly, SupervisedDevice { name: device.clone(), is_only }, stopped)
                .inspect_err(|error| {
                    let reason = format!("no thread: {error}");
                    tracing::error!(reason, "failed to start pipeline");
                    let since = OffsetDateTime::now_utc();
                    *lock(&shared.status) =
                        PipelineStatus::Down { component: Component::Stage("supervisor"), reason, since };
                })
                .ok();
        let is_started = supervisor.is_some();
        Self { device, shared, stop, is_started, supervisor: Mutex::new(supervisor) }
    }

    pub(crate) fn status(&self) -> PipelineStatus {
        lock(&self.shared.status).clone()
    }

    /// Whether it processes no photos until the process is replaced: its device is lost, or it never started.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.device_failure.get().is_some() || !self.is_started
    }

    /// Wakes the feed from its pause.
    pub(crate) fn wake(&self) {
        if let Some(wakeup) = lock(&self.shared.wakeup).as_ref() {
            // If the channel is full, a wakeup is pending already.
            let _pending = wakeup.try_send(());
        }
    }

    /// Whether it was started and [`Self::join`] was not called.
    pub(crate) fn is_supervised(&self) -> bool {
        lock(&self.supervisor).is_some()
    }

    /// Tells its threads to end, without waiting for them.
    pub(crate) fn end(&self) {
        // If the channel is full, the stop is pending already.
        let _pending = self.stop.try_send(());
    }

    /// Waits for its threads after [`Self::end`].
    pub(crate) fn join(&self) -> StopReport {
        let supervisor = lock(&self.supervisor).take();
        let joined = supervisor.map(JoinHandle::join);
        if matches!(joined, Some(Err(_))) {
            tracing::error!("pipeline supervisor panicked");
        }
        joined.and_then(Result::ok).unwrap_or_else(|| StopReport {
            drained: false,
            given_back: self.shared.leases.released_count(),
            unfinished: self.shared.leases.in_flight(),
            abandoned_threads: vec!["supervisor".to_owned()],
        })
    }
}

fn start_supervisor(
    assembly: Assembly,
    device: SupervisedDevice,
    stop: Receiver<()>,
) -> std::io::Result<JoinHandle<StopReport>> {
    let (runtime, shared) = (assembly.dependencies.runtime.clone(), Arc::clone(&assembly.shared));
    // The renewer outlives every generation, so its kill switch is never set.
    let store = StoreClient { runtime: runtime.clone(), kill_switch: KillSwitch::new() };
    let (models, idle_pool) = (Arc::clone(&assembly.models), assembly.pool.clone());
    let supervisor = Supervisor {
        device,
        stop,
        renewer: LeaseRenewer::start(Arc::clone(&shared.leases), store, assembly.settings.lease_ttl)?,
        runtime,
        shared,
        drain_grace: assembly.settings.drain_grace,
        backoff,
        longest_device_call: Box::new(move || models.longest_device_call()),
        device_call_limit: assembly.settings.device_call_limit,
        start_generation: assembly.into_generation_factory(),
        free_idle_memory: Box::new(move || idle_pool.free_idle_for(IDLE_LIFETIME)),
    };
    std::thread::Builder::new().name("supervisor".into()).spawn(move || supervisor.run())
}
