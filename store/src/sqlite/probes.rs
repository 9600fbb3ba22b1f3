//! Selfies while they live.

use std::time::Duration;

use async_trait::async_trait;

use super::{Database, fault};
use crate::error::StoreError;
use crate::ids::{AlbumId, ProbeId};
use crate::photo::Embedding;
use crate::rows::{self, ProbeRow, bytes_of, later, now};
use crate::traits::{Probe, Probes, Result};

pub(crate) struct SqliteProbes {
    database: Database,
}

impl SqliteProbes {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl Probes for SqliteProbes {
    async fn create(&self, album: AlbumId, ttl: Duration) -> Result<Probe> {
        const WHAT: &str = "expect a selfie";
        let mut transaction = self.database.write(WHAT).await?;
        let row: ProbeRow = sqlx::query_as(
            "insert into probe (id, album, expires_at) values ($1, $2, $3) returning id, album, expires_at, \
             model, embedding, (select organization from album where album.id = probe.album) as organization",
        )
        .bind(ProbeId::generate())
        .bind(album)
        .bind(later(now(), ttl))
        .fetch_one(&mut *transaction)
        .await
        .map_err(fault(WHAT))?;
        transaction.commit().await.map_err(fault(WHAT))?;
        row.try_into()
    }

    async fn get(&self, album: AlbumId, id: ProbeId) -> Result<Probe> {
        let row: Option<ProbeRow> = sqlx::query_as(
            "select probe.id, probe.album, album.organization, probe.expires_at, probe.model, probe.embedding \
             from probe join album on album.id = probe.album \
             where probe.id = $1 and probe.album = $2 and probe.expires_at > $3",
        )
        .bind(id)
        .bind(album)
        .bind(now())
        .fetch_optional(&self.database.reader)
        .await
        .map_err(fault("get a probe"))?;
        row.ok_or_else(|| not_found(id))?.try_into()
    }

    async fn keep(&self, id: ProbeId, embedding: Embedding) -> Result<()> {
        const WHAT: &str = "keep a probe's vector";
        let mut transaction = self.database.write(WHAT).await?;
        let kept =
            sqlx::query("update probe set model = $2, embedding = $3 where id = $1 and expires_at > $4")
                .bind(id)
                .bind(embedding.model)
                .bind(bytes_of(&embedding.vector))
                .bind(now())
                .execute(&mut *transaction)
                .await
                .map_err(fault(WHAT))?
                .rows_affected();
        if kept == 0 {
            return Err(not_found(id));
        }
        transaction.commit().await.map_err(fault(WHAT))
    }

    async fn expire(&self) -> Result<Vec<Probe>> {
        const WHAT: &str = "expire probes";
        let mut transaction = self.database.write(WHAT).await?;
        let rows: Vec<ProbeRow> = sqlx::query_as(
            "delete from probe where expires_at <= $1 returning id, album, expires_at, model, embedding, \
             (select organization from album where album.id = probe.album) as organization",
        )
        .bind(now())
        .fetch_all(&mut *transaction)
        .await
        .map_err(fault(WHAT))?;
        transaction.commit().await.map_err(fault(WHAT))?;
        rows::all(rows)
    }
}

fn not_found(id: ProbeId) -> StoreError {
    StoreError::not_found(format!("probe {id}"))
}
