//! What the processes of one database need of each other. The traits are part of [`crate::traits`].

use std::time::Duration;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::model::ids::ProcessId;
use crate::model::process::{HeldTask, Process, Task, TaskLease};

type Result<T> = std::result::Result<T, StoreError>;

/// Tasks that one process at a time does. Timed by the database's clock.
#[async_trait]
pub trait TaskLeases: Send + Sync {
    /// Takes a task for `ttl` if it is free, if its lease has expired, or if the process has it already; `None` if another
    /// process has it.
    async fn take(&self, task: Task, holder: ProcessId, ttl: Duration) -> Result<Option<TaskLease>>;
    /// Extends a lease to `ttl` from now; returns whether the process still has the task.
    async fn renew(&self, lease: TaskLease, ttl: Duration) -> Result<bool>;
    /// Gives a task back, so that another process can take it at once. Without effect when another has it.
    async fn release(&self, lease: TaskLease) -> Result<()>;
    /// Returns the tasks that processes have now, by their names.
    async fn list(&self) -> Result<Vec<HeldTask>>;
}

/// What running processes report.
#[async_trait]
pub trait Processes: Send + Sync {
    /// Stores what a process reports in place of what it reported before, and removes processes that have not reported for
    /// a minute.
    async fn report(&self, process: &Process) -> Result<()>;
    /// Returns the processes that have reported within the last 10 seconds, oldest first.
    async fn list(&self) -> Result<Vec<Process>>;
    /// Removes a process that ends.
    async fn remove(&self, id: ProcessId) -> Result<()>;
}
