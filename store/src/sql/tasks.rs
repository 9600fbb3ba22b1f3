//! Tasks that one process at a time does, in the database.
//!
//! A lease that expired can be taken by another process while its holder is still in the middle of a transaction. The
//! fence rules that out: it updates the row of the task, so that a transaction with the fence and a process that takes the
//! task wait for each other.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::encoding::{from_micros, micros_after};
use crate::model::ids::ProcessId;
use crate::model::process::{HeldTask, Task, TaskLease};
use crate::sql::database::{Database, Transaction};
use crate::sql::statement::query;
use crate::traits::{Result, TaskLeases};

pub(crate) struct SqlTaskLeases {
    database: Database,
}

impl SqlTaskLeases {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

const RENEW: &str = "update task_lease set held_until = $3 where name = $1 and holder = $2";

/// Begins the work of a task inside a transaction: until its end no other process can take the task. To be called before
/// the transaction reads or writes anything else.
///
/// # Errors
/// `Conflict` when another process has the task.
pub(crate) async fn fence(
    transaction: &mut Transaction,
    operation: &'static str,
    lease: TaskLease,
) -> Result<()> {
    let fence = "update task_lease set held_until = held_until where name = $1 and holder = $2";
    let held =
        query(operation, fence).bind(lease.task.as_str()).bind(lease.holder).execute(transaction).await?;
    if held == 0 {
        let task = lease.task.as_str();
        return Err(StoreError::new(
            StoreErrorKind::Conflict,
            format!("another process has the task {task}"),
        ));
    }
    Ok(())
}

#[async_trait]
impl TaskLeases for SqlTaskLeases {
    async fn take(&self, task: Task, holder: ProcessId, ttl: Duration) -> Result<Option<TaskLease>> {
        const OPERATION: &str = "take a task";
        let take = "insert into task_lease (name, holder, held_until) values ($1, $2, $3) \
                    on conflict (name) do update set holder = excluded.holder, held_until = excluded.held_until \
                    where task_lease.held_until <= $4 or task_lease.holder = excluded.holder";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let taken = query(OPERATION, take)
            .bind(task.as_str())
            .bind(holder)
            .bind(micros_after(now, ttl))
            .bind(now)
            .execute(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await?;
        Ok((taken > 0).then_some(TaskLease { task, holder }))
    }

    async fn renew(&self, lease: TaskLease, ttl: Duration) -> Result<bool> {
        const OPERATION: &str = "renew a task";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let renewed = query(OPERATION, RENEW)
            .bind(lease.task.as_str())
            .bind(lease.holder)
            .bind(micros_after(now, ttl))
            .execute(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await?;
        Ok(renewed > 0)
    }

    async fn list(&self) -> Result<Vec<HeldTask>> {
        const OPERATION: &str = "list tasks";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let now = snapshot.read_clock(OPERATION).await?;
        let list = "select name, holder, held_until from task_lease where held_until > $1 order by name";
        let rows: Vec<(String, ProcessId, i64)> =
            query(OPERATION, list).bind(now).fetch_all(&mut snapshot).await?;
        rows.into_iter()
            .map(|(name, holder, until)| Ok(HeldTask { name, holder, held_until: from_micros(until)? }))
            .collect()
    }

    async fn release(&self, lease: TaskLease) -> Result<()> {
        const OPERATION: &str = "release a task";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        query(OPERATION, "delete from task_lease where name = $1 and holder = $2")
            .bind(lease.task.as_str())
            .bind(lease.holder)
            .execute(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await
    }
}
