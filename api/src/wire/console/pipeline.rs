//! What the pipelines of all processes do.

use std::collections::BTreeMap;

use photofinish_store::model::process::{PipelineReport, Process as Stored, StageReport};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::wire::{Output, sample};

/// A stage, of one process or of all together.
#[derive(Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stage {
    name: String,
    /// Photos that wait for it.
    #[schema(value_type = f64, minimum = 0)]
    depth: u64,
    /// Photos that it was done with, per second.
    photos_per_second: f64,
    /// The share of its threads' time in which they worked, 0 to 1.
    busy: f64,
    /// The share in which they waited for space or memory, 0 to 1.
    blocked: f64,
}

impl From<&StageReport> for Stage {
    fn from(report: &StageReport) -> Self {
        Self {
            name: report.name.clone(),
            depth: report.depth,
            photos_per_second: report.photos_per_second,
            busy: report.busy,
            blocked: report.blocked,
        }
    }
}

/// A memory budget.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Budget {
    name: String,
    #[schema(value_type = f64, minimum = 0)]
    used_bytes: u64,
    #[schema(value_type = f64, minimum = 0)]
    limit_bytes: u64,
}

/// A running process.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Process {
    id: Uuid,
    /// `all`, `serve` or `work`.
    role: String,
    host: String,
    version: String,
    #[serde(with = "time::serde::rfc3339")]
    started_at: OffsetDateTime,
    #[schema(value_type = f64, minimum = 0)]
    photos_in_flight: u64,
    /// The stage that limits its throughput; null while it does little.
    #[schema(required)]
    bottleneck: Option<String>,
    stages: Vec<Stage>,
    budgets: Vec<Budget>,
    /// The models that it reads photos with, by their roles.
    models: BTreeMap<String, String>,
    /// What runs the models, such as the CPU or a GPU; null in a process without models and in earlier versions.
    #[schema(required)]
    device: Option<String>,
}

impl From<Stored> for Process {
    fn from(stored: Stored) -> Self {
        let pipeline = stored.report.pipeline.unwrap_or_default();
        let budgets = pipeline.budgets.into_iter().map(|budget| Budget {
            name: budget.name,
            used_bytes: budget.used_bytes,
            limit_bytes: budget.limit_bytes,
        });
        Self {
            id: stored.id.0,
            role: stored.role,
            host: stored.host,
            version: stored.version,
            started_at: stored.started_at,
            photos_in_flight: pipeline.photos_in_flight,
            bottleneck: pipeline.bottleneck,
            stages: pipeline.stages.iter().map(Stage::from).collect(),
            budgets: budgets.collect(),
            models: pipeline.models,
            device: pipeline.device,
        }
    }
}

/// What the pipelines of all processes do.
#[derive(Serialize, ToSchema)]
pub(crate) struct PipelineOverview {
    /// Oldest first.
    processes: Vec<Process>,
    /// The stages of all processes together, in the order in which photos pass them.
    stages: Vec<Stage>,
    /// The stage that limits the processes with most of the photos; null while they do little.
    #[schema(required)]
    bottleneck: Option<String>,
}

impl PipelineOverview {
    pub(crate) fn new(processes: Vec<Stored>, bottleneck: Option<String>) -> Self {
        let pipelines = processes.iter().filter_map(|process| process.report.pipeline.as_ref());
        let stages = sum_stages(pipelines);
        Self { processes: processes.into_iter().map(Process::from).collect(), stages, bottleneck }
    }
}

/// Adds up what waits and what was done; the shares of time are means.
fn sum_stages<'a>(pipelines: impl Iterator<Item = &'a PipelineReport>) -> Vec<Stage> {
    let mut sums: Vec<(Stage, f64)> = Vec::new();
    for report in pipelines.flat_map(|pipeline| &pipeline.stages) {
        let index = sums.iter().position(|(stage, _)| stage.name == report.name).unwrap_or_else(|| {
            sums.push((Stage { name: report.name.clone(), ..Stage::default() }, 0.0));
            sums.len() - 1
        });
        let (stage, processes) = &mut sums[index];
        stage.depth += report.depth;
        stage.photos_per_second += report.photos_per_second;
        stage.busy += report.busy;
        stage.blocked += report.blocked;
        *processes += 1.0;
    }
    sums.into_iter()
        .map(|(stage, processes)| Stage {
            busy: stage.busy / processes,
            blocked: stage.blocked / processes,
            ..stage
        })
        .collect()
}

impl Output for PipelineOverview {
    fn example() -> Self {
        let stage =
            Stage { name: "read".to_owned(), depth: 9, photos_per_second: 12.5, busy: 0.875, blocked: 0.0 };
        let process = Process {
            id: sample::KEY.0,
            role: "work".to_owned(),
            host: "worker-7".to_owned(),
            version: "0.1.0".to_owned(),
            started_at: sample::TIME,
            photos_in_flight: 12,
            bottleneck: Some("read".to_owned()),
            stages: vec![stage.clone()],
            budgets: vec![Budget { name: "pixels".to_owned(), used_bytes: 7 << 20, limit_bytes: 1 << 30 }],
            models: BTreeMap::new(),
            device: Some("CPU".to_owned()),
        };
        Self { processes: vec![process], stages: vec![stage], bottleneck: Some("read".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_of_processes_are_added_up_in_their_order() {
        let stage = |name: &str, depth, busy| StageReport {
            name: name.to_owned(),
            depth,
            photos_per_second: 2.0,
            busy,
            blocked: 0.0,
        };
        let pipelines = [
            PipelineReport {
                stages: vec![stage("decode", 1, 1.0), stage("read", 5, 0.5)],
                ..Default::default()
            },
            PipelineReport { stages: vec![stage("decode", 2, 0.5)], ..Default::default() },
        ];
        let sums = sum_stages(pipelines.iter());
        let names: Vec<_> = sums.iter().map(|stage| (stage.name.as_str(), stage.depth)).collect();
        assert_eq!(names, [("decode", 3), ("read", 5)]);
        assert_eq!((sums[0].photos_per_second, sums[0].busy, sums[1].busy), (4.0, 0.75, 0.5));
    }
}
