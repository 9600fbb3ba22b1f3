//! The handle with which the service starts the pipeline, reads its status and stops it.

use std::sync::{Arc, Mutex};

use crate::assembly::Assembly;
use crate::engine::budget::{BudgetLoad, OversizePlace};
use crate::engine::cpu_shares::CpuShares;
use crate::engine::device::name_device;
use crate::engine::pipeline_stats::{PipelineStats, StageLoad};
use crate::engine::stage::STAGES;
use crate::engine::status::{PipelineStatus, SharedState, StopReport};
use crate::engine::suspect_gate::SuspectGate;
use crate::engine::sync::lock;
use crate::image::pool::BufferPool;
use crate::lane::Lane;
use crate::settings::{PipelineDependencies, PipelineSettings};

/// The pipeline, running on its own threads.
#[derive(Debug)]
pub struct Pipeline {
    /// One for each device.
    lanes: Vec<Lane>,
    /// Of the first lane; what is computed from them is of all.
    stats: Arc<PipelineStats>,
    report: Mutex<Option<StopReport>>,
}

impl Pipeline {
    /// Starts the pipeline and returns at once; the first generation of each device starts in the background. If the operating
    /// system refuses a supervisor's thread, the status of the pipeline is [`PipelineStatus::Down`].
    pub fn start(settings: PipelineSettings, dependencies: PipelineDependencies) -> Self {
        let count = dependencies.models.len();
        let stats = Arc::new(PipelineStats::new(&STAGES));
        let suspect_gate = Arc::<SuspectGate>::default();
        let pool = BufferPool::default();
        let oversize_pixels = OversizePlace::default();
        let cpu_shares = CpuShares::new(settings.cores, &dependencies.reserved_cores);
        let mut lanes = Vec::with_capacity(count);
        for models in &dependencies.models {
            let number = lanes.len();
            let stats = if number == 0 { Arc::clone(&stats) } else { Arc::new(stats.for_another_lane()) };
            let shared = SharedState::new(stats, Arc::clone(&dependencies.queue), &suspect_gate);
            let assembly = Assembly {
                settings: settings.for_lane_of(count),
                dependencies: dependencies.clone(),
                models: Arc::clone(models),
                shared: Arc::new(shared),
                pool: pool.clone(),
                cpu_shares: cpu_shares.clone(),
                oversize_pixels: oversize_pixels.clone(),
            };
            lanes.push(Lane::start(assembly, name_device(&**models, number), count == 1));
        }
        Self { lanes, stats, report: Mutex::default() }
    }

    /// Returns the current status: with several devices it runs while one of them does.
    pub fn status(&self) -> PipelineStatus {
        let statuses: Vec<PipelineStatus> = self.lanes.iter().map(Lane::status).collect();
        // The first of the best.
        let best = statuses.iter().min_by_key(|status| status.severity()).cloned();
        match best.unwrap_or(PipelineStatus::Starting) {
            PipelineStatus::Running if statuses.iter().any(|status| *status != PipelineStatus::Running) => {
                PipelineStatus::RunningOnSome { reason: self.list_reasons(&statuses) }
            }
            PipelineStatus::Down { component, since, .. } if statuses.len() > 1 => {
                PipelineStatus::Down { component, since, reason: self.list_reasons(&statuses) }
            }
            best => best,
        }
    }

    /// Says which devices are down and why, and how many work.
    fn list_reasons(&self, statuses: &[PipelineStatus]) -> String {
        let running = statuses.iter().filter(|status| **status == PipelineStatus::Running).count();
        let mut text = format!("{running} of {} devices work", statuses.len());
        for (lane, status) in self.lanes.iter().zip(statuses) {
            if let PipelineStatus::Down { reason, .. } = status {
                let until = if lane.has_ended() { " until the process is replaced" } else { "" };
                text.push_str(&format!("; {} does not{until}: {reason}", lane.device));
            }
        }
        text
    }

    /// Returns the stage that limits the throughput; `None` while few photos are processed.
    pub fn bottleneck(&self) -> Option<&'static str> {
        self.stats.bottleneck()
    }

    /// Returns what each stage did over the last seconds, in the order in which photos pass the stages.
    pub fn stage_loads(&self) -> Vec<StageLoad> {
        self.stats.loads()
    }

    /// Returns how much of its memory budgets is in use; empty while it does not run.
    pub fn budget_loads(&self) -> Vec<BudgetLoad> {
        let mut sums: Vec<BudgetLoad> = Vec::new();
        for load in self.lanes.iter().flat_map(|lane| lock(&lane.shared.budgets).clone()) {
            match sums.iter_mut().find(|sum| sum.budget == load.budget) {
                Some(sum) => {
                    sum.used_bytes += load.used_bytes;
                    sum.limit_bytes += load.limit_bytes;
                }
                None => sums.push(load),
            }
        }
        sums
    }

    /// Returns why the pipeline has ended by itself: on each of its devices a call never returned, or the device is lost and
    /// could not be opened again. The process has to be replaced; [`Self::stop`] has nothing to wait for.
    pub fn device_failure(&self) -> Option<&str> {
        if !self.lanes.iter().all(Lane::has_ended) {
            return None;
        }
        self.lanes.iter().find_map(|lane| lane.shared.device_failure.get()).map(String::as_str)
    }

    /// Returns the number of photos that this process is working on.
    pub fn in_flight(&self) -> usize {
        self.lanes.iter().map(|lane| lane.shared.leases.in_flight()).sum()
    }

    /// Wakes the feeds from their pauses, because photos were confirmed.
    pub fn wake(&self) {
        self.lanes.iter().for_each(Lane::wake);
    }

    /// Stops the pipeline: leases no more photos, finishes what is in flight within the drain grace, gives back the rest
    /// and ends all threads. Blocks. A second call returns the report of the first.
    pub fn stop(&self) -> StopReport {
        // Locked until the end, so that a second caller waits for the first.
        let mut report = lock(&self.report);
        report.get_or_insert_with(|| self.stop_lanes()).clone()
    }

    /// Stops all lanes at the same time.
    fn stop_lanes(&self) -> StopReport {
        self.lanes.iter().for_each(Lane::end);
        let mut all =
            StopReport { drained: true, given_back: 0, unfinished: 0, abandoned_threads: Vec::new() };
        for lane in &self.lanes {
            let StopReport { drained, given_back, unfinished, abandoned_threads } = lane.join();
            all.drained &= drained;
            all.given_back += given_back;
            all.unfinished += unfinished;
            let is_only = self.lanes.len() == 1;
            let named = abandoned_threads.into_iter().map(|thread| match is_only {
                true => thread,
                false => format!("{thread} of {}", lane.device),
            });
            all.abandoned_threads.extend(named);
        }
        all
    }
}

impl Drop for Pipeline {
    /// Tells the threads to end without waiting for them; [`Pipeline::stop`] waits.
    fn drop(&mut self) {
        if self.lanes.iter().any(Lane::is_supervised) {
            tracing::warn!("pipeline dropped without being stopped");
            self.lanes.iter().for_each(Lane::end);
        }
    }
}
