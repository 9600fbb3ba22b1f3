//! Reports what this process does, for the others of its database: so an API knows the bottleneck of the workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use photofinish_models::traits::ModelFactory;
use photofinish_pipeline::{BudgetLoad, Pipeline, StageLoad};
use photofinish_store::Store;
use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::process::{BudgetReport, PipelineReport, Process, ProcessReport, StageReport};
use time::OffsetDateTime;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};

use crate::role::Role;

/// Time between two reports: as long as the pipeline measures its stages.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// How long the last word of a process may take. Without it the report expires by itself.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// The kernel's file with the name of this machine.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// The pipeline of this process.
pub struct RunningPipeline {
    pub pipeline: Arc<Pipeline>,
    /// The identities of its models, by their roles.
    pub models: BTreeMap<String, String>,
}

impl RunningPipeline {
    /// A pipeline with the models of this factory.
    pub fn new(pipeline: Arc<Pipeline>, models: &dyn ModelFactory) -> Self {
        let models = models.identities().into_iter();
        let models = models.map(|(role, identity)| (role.to_owned(), identity.to_string())).collect();
        Self { pipeline, models }
    }
}

/// Reports until it is stopped.
pub struct Reporter {
    store: Store,
    id: ProcessId,
    /// `None` where nobody would read the reports.
    task: Option<JoinHandle<()>>,
}

/// Starts to report. Role `all` on an embedded database does not: it is the only process there.
pub fn start(store: &Store, id: ProcessId, role: Role, running: Option<RunningPipeline>) -> Reporter {
    let is_alone = role == Role::All && store.embedded().is_some();
    let task = (!is_alone).then(|| tokio::spawn(report_forever(store.clone(), id, role, running)));
    Reporter { store: store.clone(), id, task }
}

impl Reporter {
    /// Stops and removes the report, so that nobody takes this process for a running one.
    pub async fn stop(self) {
        let Some(task) = self.task else { return };
        task.abort();
        // A report that is being written must not follow the removal. The error says that it was aborted.
        drop(task.await);
        match timeout(FAREWELL_TIMEOUT, self.store.processes.remove(self.id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to remove the report of this process"),
            Err(_) => tracing::warn!("failed to remove the report of this process in 1 s"),
        }
    }
}

async fn report_forever(store: Store, id: ProcessId, role: Role, running: Option<RunningPipeline>) {
    let mut process = Process {
        id,
        role: role.as_str().to_owned(),
        host: host_name(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: OffsetDateTime::now_utc(),
        report: ProcessReport { knows_erasures: true, ..ProcessReport::default() },
    };
    let mut interval = tokio::time::interval(REPORT_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    loop {
        interval.tick().await;
        process.report.pipeline =
            running.as_ref().map(|running| report_pipeline(&running.pipeline, &running.models));
        if role.has_api() {
            // Kept as it was when the database does not respond: then nothing is reported either.
            match store.faces_as_of().await {
                Ok(as_of) => process.report.faces_as_of = Some(as_of),
                Err(error) => tracing::debug!(%error, "failed to bring the face index up to date"),
            }
        }
        let reported = store.processes.report(&process).await;
        // Once per outage: every two seconds would bury all other lines.
        if let Err(error) = &reported
            && !is_failing
        {
            tracing::warn!(%error, "failed to report this process, retrying every 2 s");
        }
        is_failing = reported.is_err();
    }
}

fn report_budget(load: BudgetLoad) -> BudgetReport {
    BudgetReport { name: load.budget.to_owned(), used_bytes: load.used_bytes, limit_bytes: load.limit_bytes }
}

fn report_pipeline(pipeline: &Pipeline, models: &BTreeMap<String, String>) -> PipelineReport {
    PipelineReport {
        photos_in_flight: pipeline.in_flight() as u64,
        bottleneck: pipeline.bottleneck().map(str::to_owned),
        stages: pipeline.stage_loads().into_iter().map(report_stage).collect(),
        budgets: pipeline.budget_loads().into_iter().map(report_budget).collect(),
        models: models.clone(),
    }
}

fn report_stage(load: StageLoad) -> StageReport {
    StageReport {
        name: load.stage.to_owned(),
        depth: load.depth as u64,
        photos_per_second: load.photos_per_second,
        busy: load.busy,
        blocked: load.blocked,
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string(HOST_NAME_FILE).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "unknown".to_owned() } else { name.to_owned() }
}
