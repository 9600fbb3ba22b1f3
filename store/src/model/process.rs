//! Processes of one database: what each reports of itself, and the tasks that one of them at a time does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::model::ids::ProcessId;

/// A task that one process at a time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Numbers what happened and hands it to those who want to know.
    EventPublisher,
    /// Watches balances and deletes what the ledger no longer needs.
    Ledger,
    /// Judges texts again by the start lists of their albums.
    Judging,
    /// Finishes erasures.
    Erasing,
    /// Erases what has been kept for long enough.
    Retention,
    /// Draws watermarks on photos that were processed without them.
    Marking,
    /// Removes expired selfies.
    Selfies,
}

impl Task {
    /// Its name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EventPublisher => "event_publisher",
            Self::Ledger => "ledger",
            Self::Judging => "judging",
            Self::Erasing => "erasing",
            Self::Retention => "retention",
            Self::Marking => "marking",
            Self::Selfies => "selfies",
        }
    }
}

/// The right of a process to do a task. Every transaction of the task checks it, and fails with `Conflict` once another
/// process has taken the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLease {
    /// The task.
    pub task: Task,
    /// The process.
    pub holder: ProcessId,
}

/// A task that a process does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTask {
    /// Its name; newer versions have tasks that this one does not know.
    pub name: String,
    /// The process.
    pub holder: ProcessId,
    /// Until when, unless it renews its lease.
    pub held_until: OffsetDateTime,
}

/// A running process.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Made at its start.
    pub id: ProcessId,
    /// `all`, `serve` or `work`.
    pub role: String,
    /// The name of its machine.
    pub host: String,
    /// The version of the program.
    pub version: String,
    /// When it started, by its own clock.
    pub started_at: OffsetDateTime,
    /// What it does.
    pub report: ProcessReport,
}

/// What a process does. Processes of other versions may report less or more: what is missing has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessReport {
    /// Its pipeline; `None` in a role without one.
    pub pipeline: Option<PipelineReport>,
    /// Whether it leaves out what was erased: versions that know no erasures do not.
    pub knows_erasures: bool,
    /// By the database's clock in microseconds, as of when its face index was brought up to date last; `None` before.
    pub faces_as_of: Option<i64>,
}

/// What a pipeline does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PipelineReport {
    /// Photos that it is working on.
    pub photos_in_flight: u64,
    /// The stage that limits its throughput; `None` while it does little.
    pub bottleneck: Option<String>,
    /// Its stages, in the order in which photos pass them.
    pub stages: Vec<StageReport>,
    /// How much of its memory budgets is in use; empty while it does not run.
    pub budgets: Vec<BudgetReport>,
    /// The models that it reads photos with, by their roles.
    pub models: BTreeMap<String, String>,
    /// What runs the models; `None` before they are loaded.
    pub device: Option<String>,
}

/// How much of a memory budget is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetReport {
    /// `files` or `pixels`.
    pub name: String,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that there are.
    pub limit_bytes: u64,
}

/// What one stage did over the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageReport {
    /// The stage.
    pub name: String,
    /// Photos that wait for it now.
    pub depth: u64,
    /// Photos that it was done with, per second.
    pub photos_per_second: f64,
    /// The share of its threads' time in which they worked, 0 to 1.
    pub busy: f64,
    /// The share in which they waited for space downstream or for memory, 0 to 1.
    pub blocked: f64,
}
