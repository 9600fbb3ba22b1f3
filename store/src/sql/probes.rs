//! Selfies in the database.

use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::StoreError;
use crate::model::encoding::{micros_after, now_micros, to_micros, vector_to_bytes};
use crate::model::ids::{AlbumId, ProbeId};
use crate::sql::database::Database;
use crate::sql::row_types::{ProbeRow, convert_rows};
use crate::sql::statement::{Statement, query};
use crate::traits::{ExpiredPosition, Probe, ProbeOutcome, Probes, Result};

/// How many expired selfies one call returns: few enough for one transaction to delete.
const EXPIRED_BATCH: i64 = 256;

macro_rules! select_probe {
    ($rest:literal) => {
        concat!(
            "select probe.id, probe.album, album.organization, probe.expires_at, probe.model, \
             probe.embedding, probe.refusal, probe.charged_at from probe join album on album.id = probe.album ",
            $rest
        )
    };
}

/// The comparison with the time alone is the one that the index on it serves: few selfies expire in one microsecond.
const EXPIRED_PROBES: &str = select_probe!(
    "where probe.expires_at <= $1 and probe.expires_at >= $2 \
     and (probe.expires_at, probe.id) > ($2, $3) order by probe.expires_at, probe.id limit $4"
);

/// Locks the rows in the order in which deleting their album locks them, to rule out a deadlock.
const REMOVE_PROBES: Statement = Statement::PerDialect {
    sqlite: "delete from probe where id in (select unhex(value) from json_each($1))",
    postgres: "with gone as materialized \
               (select id from probe where id = any($1) order by id for update) \
               delete from probe using gone where probe.id = gone.id",
};

pub(crate) struct SqlProbes {
    database: Database,
}

impl SqlProbes {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl Probes for SqlProbes {
    async fn create(&self, album: AlbumId, ttl: Duration) -> Result<Probe> {
        const OPERATION: &str = "create a selfie";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let row: ProbeRow = query(
            OPERATION,
            "insert into probe (id, album, expires_at) values ($1, $2, $3) returning id, album, expires_at, \
             model, embedding, refusal, charged_at, \
             (select organization from album where album.id = probe.album) as organization",
        )
        .bind(ProbeId::generate())
        .bind(album)
        .bind(micros_after(now_micros(), ttl))
        .fetch_one(&mut transaction)
        .await?;
        transaction.commit(OPERATION).await?;
        row.try_into()
    }

    async fn get(&self, album: AlbumId, id: ProbeId) -> Result<Probe> {
        const OPERATION: &str = "get a selfie";
        let get = select_probe!(
            "where probe.id = $1 and probe.album = $2 and probe.expires_at > $3 and album.closed_at is null"
        );
        let row: Option<ProbeRow> = query(OPERATION, get)
            .bind(id)
            .bind(album)
            .bind(now_micros())
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        row.ok_or_else(|| probe_not_found(id))?.try_into()
    }

    /// One statement for each outcome: the columns of the other stay as they are. When an embedding and a refusal were
    /// stored at once, the embedding counts.
    async fn set_outcome(&self, id: ProbeId, outcome: ProbeOutcome) -> Result<()> {
        const OPERATION: &str = "store the outcome of a selfie";
        let now = now_micros();
        let update = match outcome {
            ProbeOutcome::Embedded(embedding) => query(
                OPERATION,
                "update probe set model = $3, embedding = $4 where id = $1 and expires_at > $2",
            )
            .bind(id)
            .bind(now)
            .bind(embedding.model)
            .bind(vector_to_bytes(&embedding.vector)),
            ProbeOutcome::Refused(refusal) => {
                query(OPERATION, "update probe set refusal = $3 where id = $1 and expires_at > $2")
                    .bind(id)
                    .bind(now)
                    .bind(refusal.as_str())
            }
        };
        let mut transaction = self.database.begin_write(OPERATION).await?;
        if update.execute(&mut transaction).await? == 0 {
            return Err(probe_not_found(id));
        }
        transaction.commit(OPERATION).await
    }

    async fn list_expired(&self, after: Option<ExpiredPosition>) -> Result<Vec<Probe>> {
        const OPERATION: &str = "list expired selfies";
        let start = ExpiredPosition { expires_at: OffsetDateTime::UNIX_EPOCH, id: ProbeId(Uuid::nil()) };
        let after = after.unwrap_or(start);
        let rows: Vec<ProbeRow> = query(OPERATION, EXPIRED_PROBES)
            .bind(now_micros())
            .bind(to_micros(after.expires_at))
            .bind(after.id)
            .bind(EXPIRED_BATCH)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        convert_rows(rows)
    }

    async fn remove(&self, probes: &[ProbeId]) -> Result<()> {
        const OPERATION: &str = "remove selfies";
        if probes.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = probes.iter().map(|probe| probe.0).collect();
        let mut transaction = self.database.begin_write(OPERATION).await?;
        query(OPERATION, REMOVE_PROBES).bind(ids).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }
}

fn probe_not_found(id: ProbeId) -> StoreError {
    StoreError::not_found(format!("probe {id}"))
}
