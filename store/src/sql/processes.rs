//! What running processes report, in the database.

use async_trait::async_trait;
use sqlx::FromRow;

use crate::error::StoreError;
use crate::model::encoding::{from_micros, to_micros};
use crate::model::ids::ProcessId;
use crate::model::process::Process;
use crate::sql::database::Database;
use crate::sql::row_types::{convert_rows, from_json, to_json};
use crate::sql::statement::{Statement, query};
use crate::traits::{Processes, Result};

/// The age of a report up to which its process counts as running: several reports may be late.
const FRESH_MICROS: i64 = 10_000_000;

/// The age from which any process may remove it.
const EXPIRED_MICROS: i64 = 60_000_000;

const REPORT: &str = "insert into process (id, role, host, version, started_at, seen_at, report) \
     values ($1, $2, $3, $4, $5, $6, $7) \
     on conflict (id) do update set seen_at = excluded.seen_at, report = excluded.report";

/// On Postgres it leaves out rows that another process is removing or writing.
const REMOVE_EXPIRED: Statement = Statement::PerDialect {
    sqlite: "delete from process where seen_at <= $1",
    postgres: "delete from process where id in \
               (select id from process where seen_at <= $1 for update skip locked)",
};

pub(crate) struct SqlProcesses {
    database: Database,
}

impl SqlProcesses {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

#[derive(FromRow)]
struct ProcessRow {
    id: ProcessId,
    role: String,
    host: String,
    version: String,
    started_at: i64,
    report: String,
}

impl TryFrom<ProcessRow> for Process {
    type Error = StoreError;
    fn try_from(row: ProcessRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            role: row.role,
            host: row.host,
            version: row.version,
            started_at: from_micros(row.started_at)?,
            report: from_json(&row.report)?,
        })
    }
}

#[async_trait]
impl Processes for SqlProcesses {
    async fn report(&self, process: &Process) -> Result<()> {
        const OPERATION: &str = "report a process";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        query(OPERATION, REPORT)
            .bind(process.id)
            .bind(process.role.as_str())
            .bind(process.host.as_str())
            .bind(process.version.as_str())
            .bind(to_micros(process.started_at))
            .bind(now)
            .bind(to_json(&process.report)?)
            .execute(&mut transaction)
            .await?;
        query(OPERATION, REMOVE_EXPIRED).bind(now - EXPIRED_MICROS).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }

    async fn list(&self) -> Result<Vec<Process>> {
        const OPERATION: &str = "list processes";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let now = snapshot.read_clock(OPERATION).await?;
        let list =
            "select id, role, host, version, started_at, report from process where seen_at > $1 order by id";
        let rows: Vec<ProcessRow> =
            query(OPERATION, list).bind(now - FRESH_MICROS).fetch_all(&mut snapshot).await?;
        convert_rows(rows)
    }

    async fn remove(&self, id: ProcessId) -> Result<()> {
        const OPERATION: &str = "remove a process";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        query(OPERATION, "delete from process where id = $1").bind(id).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }
}
