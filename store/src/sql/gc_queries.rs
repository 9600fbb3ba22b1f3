//! Which photos and selfies exist, for the garbage collection of the storage.

use std::collections::{HashMap, HashSet};

use crate::model::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};
use crate::model::photo::PhotoState;
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::parse_photo_state;
use crate::sql::statement::{Statement, query};
use crate::traits::{PhotoRef, Result};

const OPERATION: &str = "find the owners of objects";

const PHOTO_STATES: Statement = Statement::PerDialect {
    sqlite: "select id, state from photo where album = $1 and id in (select unhex(value) from json_each($2))",
    postgres: "select id, state from photo where album = $1 and id = any($2)",
};

const EXISTING_PROBES: Statement = Statement::PerDialect {
    sqlite: "select id from probe where album = $1 and id in (select unhex(value) from json_each($2))",
    postgres: "select id from probe where album = $1 and id = any($2)",
};

/// Those that are there, and those of which a receipt of an erasure is: a URL signed before an organization was erased may
/// still upload afterwards. Receipts stay, and no album goes without one.
const ORGANIZATIONS: &str = "select id from organization union select distinct organization from erasure";

pub(crate) struct SqlGcQueries {
    database: Database,
}

/// Photos that no other transaction can change until they are released.
pub(crate) struct LockedPhotos {
    transaction: Transaction,
    /// The states of those that exist.
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

    /// Whether there is any photo.
    pub(crate) async fn has_photos(&self) -> Result<bool> {
        let any = query(OPERATION, "select 1 from photo limit 1");
        let any: Option<(i32,)> =
            any.fetch_optional(&mut self.database.acquire_reader(OPERATION).await?).await?;
        Ok(any.is_some())
    }

    /// Returns the organizations whose objects are this database's, erased ones too.
    pub(crate) async fn list_organizations(&self) -> Result<HashSet<OrganizationId>> {
        let rows: Vec<(OrganizationId,)> = query(OPERATION, ORGANIZATIONS)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }

    /// Returns the states of those photos that are in the album, closed or not.
    pub(crate) async fn load_photo_states(
        &self,
        album: AlbumId,
        ids: &[PhotoId],
    ) -> Result<HashMap<PhotoId, PhotoState>> {
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let rows: Vec<(PhotoId, String)> = query(OPERATION, PHOTO_STATES)
            .bind(album)
            .bind(ids)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        rows.into_iter().map(|(id, state)| Ok((id, parse_photo_state(&state)?))).collect()
    }

    /// Returns those selfies that are not removed, expired or not.
    pub(crate) async fn filter_existing_probes(
        &self,
        album: AlbumId,
        ids: &[ProbeId],
    ) -> Result<HashSet<ProbeId>> {
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let rows: Vec<(ProbeId,)> = query(OPERATION, EXISTING_PROBES)
            .bind(album)
            .bind(ids)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }

    /// Locks photos and returns their states.
    pub(crate) async fn lock_photos(&self, album: AlbumId, ids: &[PhotoId]) -> Result<LockedPhotos> {
        let keys: Vec<PhotoRef> = ids.iter().map(|photo| PhotoRef { album, photo: *photo }).collect();
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let locked = transaction.queue_writes().lock_photos(&keys).await?;
        let states = locked.into_iter().map(|(key, row)| (key.photo, row.state)).collect();
        Ok(LockedPhotos { transaction, states })
    }
}
