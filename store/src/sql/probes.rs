//! Selfies in the database.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::model::encoding::{micros_after, now_micros, vector_to_bytes};
use crate::model::ids::{AlbumId, ProbeId};
use crate::model::photo::Embedding;
use crate::sql::database::Database;
use crate::sql::row_types::{ProbeRow, convert_rows};
use crate::sql::statement::query;
use crate::traits::{Probe, Probes, Result};

/// How many expired selfies one call returns.
const EXPIRED_BATCH: i64 = 256;

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
             model, embedding, (select organization from album where album.id = probe.album) as organization",
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
        let row: Option<ProbeRow> = query(
            OPERATION,
            "select probe.id, probe.album, album.organization, probe.expires_at, probe.model, \
             probe.embedding from probe join album on album.id = probe.album \
             where probe.id = $1 and probe.album = $2 and probe.expires_at > $3 and album.closed_at is null",
        )
        .bind(id)
        .bind(album)
        .bind(now_micros())
        .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
        .await?;
        row.ok_or_else(|| probe_not_found(id))?.try_into()
    }

    async fn set_embedding(&self, id: ProbeId, embedding: Embedding) -> Result<()> {
        const OPERATION: &str = "store the embedding of a selfie";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let kept =
            query(OPERATION, "update probe set model = $2, embedding = $3 where id = $1 and expires_at > $4")
                .bind(id)
                .bind(embedding.model)
                .bind(vector_to_bytes(&embedding.vector))
                .bind(now_micros())
                .execute(&mut transaction)
                .await?;
        if kept == 0 {
            return Err(probe_not_found(id));
        }
        transaction.commit(OPERATION).await
    }

    async fn list_expired(&self) -> Result<Vec<Probe>> {
        const OPERATION: &str = "list expired selfies";
        let rows: Vec<ProbeRow> = query(
            OPERATION,
            "select probe.id, probe.album, album.organization, probe.expires_at, probe.model, \
             probe.embedding from probe join album on album.id = probe.album \
             where probe.expires_at <= $1 order by probe.expires_at limit $2",
        )
        .bind(now_micros())
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
        // In the order in which deleting their album locks them, to rule out a deadlock.
        let mut probes = probes.to_vec();
        probes.sort_unstable();
        let mut transaction = self.database.begin_write(OPERATION).await?;
        for id in probes {
            query(OPERATION, "delete from probe where id = $1").bind(id).execute(&mut transaction).await?;
        }
        transaction.commit(OPERATION).await
    }
}

fn probe_not_found(id: ProbeId) -> StoreError {
    StoreError::not_found(format!("probe {id}"))
}
