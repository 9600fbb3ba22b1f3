//! Which photos and selfies there are, for a sweep of the storage.

use std::collections::{HashMap, HashSet};

use super::{Database, Statement, Transaction, query};
use crate::model::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};
use crate::model::photo::PhotoState;
use crate::sql::row_types::parse_photo_state;
use crate::traits::{PhotoRef, Result};

const OPERATION: &str = "look for the owners of objects";

const PHOTO_STATES: Statement = Statement::PerDialect {
    sqlite: "select id, state from photo where album = $1 and id in (select unhex(value) from json_each($2))",
    postgres: "select id, state from photo where album = $1 and id = any($2)",
};

const EXISTING_PROBES: Statement = Statement::PerDialect {
    sqlite: "select id from probe where album = $1 and id in (select unhex(value) from json_each($2))",
    postgres: "select id from probe where album = $1 and id = any($2)",
};

pub(crate) struct SqlGcQueries {
    database: Database,
}

/// Photos that nobody else changes until they are released.
pub(crate) struct LockedPhotos {
    transaction: Transaction,
    /// Where they are; those that do not exist are left out.
    pub(crate) states: HashMap<PhotoId, PhotoState>,
}

impl LockedPhotos {
    pub(crate) async fn release(self) -> Result<()> {
        self.transaction.rollback(OPERATION).await
    }
}

impl SqlGcQueries {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Whether there are photos.
    pub(crate) async fn has_photos(&self) -> Result<bool> {
        let any = query(OPERATION, "select 1 from photo limit 1");
        let any: Option<(i32,)> = any.fetch_optional(&mut self.database.reader(OPERATION).await?).await?;
        Ok(any.is_some())
    }

    pub(crate) async fn list_organizations(&self) -> Result<HashSet<OrganizationId>> {
        let rows: Vec<(OrganizationId,)> = query(OPERATION, "select id from organization")
            .fetch_all(&mut self.database.reader(OPERATION).await?)
            .await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }

    /// Those of these photos that are in the album, closed or not.
    pub(crate) async fn photos(
        &self,
        album: AlbumId,
        ids: &[PhotoId],
    ) -> Result<HashMap<PhotoId, PhotoState>> {
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let rows: Vec<(PhotoId, String)> = query(OPERATION, PHOTO_STATES)
            .bind(album)
            .bind(ids)
            .fetch_all(&mut self.database.reader(OPERATION).await?)
            .await?;
        rows.into_iter().map(|(id, state)| Ok((id, parse_photo_state(&state)?))).collect()
    }

    /// Those of these selfies that are not removed, expired or not.
    pub(crate) async fn probes(&self, album: AlbumId, ids: &[ProbeId]) -> Result<HashSet<ProbeId>> {
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let rows: Vec<(ProbeId,)> = query(OPERATION, EXISTING_PROBES)
            .bind(album)
            .bind(ids)
            .fetch_all(&mut self.database.reader(OPERATION).await?)
            .await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }

    /// Where these photos are, for as long as they are held.
    pub(crate) async fn lock_photos(&self, album: AlbumId, ids: &[PhotoId]) -> Result<LockedPhotos> {
        let keys: Vec<PhotoRef> = ids.iter().map(|photo| PhotoRef { album, photo: *photo }).collect();
        let mut transaction = self.database.write(OPERATION).await?;
        let held = transaction.queue_writes().lock_photos(&keys).await?;
        let states = held.into_iter().map(|(key, standing)| (key.photo, standing.state)).collect();
        Ok(LockedPhotos { transaction, states })
    }
}
