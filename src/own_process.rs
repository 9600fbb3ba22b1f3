//! What this process is and what it does now, for reports to the others and for the console.

use std::collections::BTreeMap;
use std::sync::Arc;

use photofinish_models::traits::ModelFactory;
use photofinish_pipeline::{BudgetLoad, Pipeline, StageLoad};
use photofinish_store::Store;
use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::process::{BudgetReport, PipelineReport, Process, ProcessReport, StageReport};
use time::OffsetDateTime;

use crate::devices;
use crate::role::Role;

/// The kernel's file with the name of this machine.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// The pipeline of this process.
pub struct RunningPipeline {
    pub pipeline: Arc<Pipeline>,
    /// The identities of its models, by their roles.
    pub models: BTreeMap<String, String>,
}

impl RunningPipeline {
    /// A pipeline with the models of these factories, which are the same on each device.
    pub fn new(pipeline: Arc<Pipeline>, models: &[Arc<dyn ModelFactory>]) -> Self {
        let models = models.first().into_iter().flat_map(|models| models.identities());
        let models = models.map(|(role, identity)| (role.to_owned(), identity.to_string())).collect();
        Self { pipeline, models }
    }
}

/// This process.
pub struct OwnProcess {
    pub id: ProcessId,
    pub role: Role,
    started_at: OffsetDateTime,
    running: Option<RunningPipeline>,
}

impl OwnProcess {
    /// This process, which starts now, with its pipeline.
    pub fn new(role: Role, running: Option<RunningPipeline>) -> Self {
        Self { id: ProcessId::generate(), role, started_at: OffsetDateTime::now_utc(), running }
    }

    /// Whether it is the only process of its database: role `all` on an embedded one.
    pub fn is_alone(&self, store: &Store) -> bool {
        self.role == Role::All && store.embedded().is_some()
    }

    /// What it does now.
    pub fn describe(&self) -> Process {
        let pipeline = self.running.as_ref();
        let pipeline = pipeline.map(|running| report_pipeline(&running.pipeline, &running.models));
        Process {
            id: self.id,
            role: self.role.as_str().to_owned(),
            host: host_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at,
            report: ProcessReport { pipeline, knows_erasures: true, ..ProcessReport::default() },
        }
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
        device: devices::describe(),
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
