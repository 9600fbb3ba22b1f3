//! Which photos and selfies there are, for a sweep of the storage.

use std::collections::{HashMap, HashSet};

use super::{Database, Statement, Transaction, sql};
use crate::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};
use crate::photo::PhotoState;
use crate::rows::state_of;
use crate::traits::{PhotoRef, Result};

const WHAT: &str = "look for the owners of objects";

const PHOTOS: Statement = Statement::Each {
    sqlite: "select id, state from photo where album = $1 and id in (select unhex(value) from json_each($2))",
    postgres: "select id, state from photo where album = $1 and id = any($2)",
};

const PROBES: Statement = Statement::Each {
    sqlite: "select id from probe where album = $1 and id in (select unhex(value) from json_each($2))",
    postgres: "select id from probe where album = $1 and id = any($2)",
};

pub(crate) struct SqlOwners {
    database: Database,
}

/// Photos that nobody else changes until they are released.
pub(crate) struct HeldPhotos {
    transaction: Transaction,
    /// Where they are; those that do not exist are left out.
    pub(crate) states: HashMap<PhotoId, PhotoState>,
}

impl HeldPhotos {
    pub(crate) async fn release(self) -> Result<()> {
        self.transaction.rollback(WHAT).await
    }
}

impl SqlOwners {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Whether there are photos.
    pub(crate) async fn are_any(&self) -> Result<bool> {
        let any = sql(WHAT, "select 1 from photo limit 1");
        let any: Option<(i32,)> = any.fetch_optional(&mut self.database.reader(WHAT).await?).await?;
        Ok(any.is_some())
    }

    pub(crate) async fn organizations(&self) -> Result<HashSet<OrganizationId>> {
        let rows: Vec<(OrganizationId,)> = sql(WHAT, "select id from organization")
            .fetch_all(&mut self.database.reader(WHAT).await?)
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
        let rows: Vec<(PhotoId, String)> =
            sql(WHAT, PHOTOS).bind(album).bind(ids).fetch_all(&mut self.database.reader(WHAT).await?).await?;
        rows.into_iter().map(|(id, state)| Ok((id, state_of(&state)?))).collect()
    }

    /// Those of these selfies that are not removed, expired or not.
    pub(crate) async fn probes(&self, album: AlbumId, ids: &[ProbeId]) -> Result<HashSet<ProbeId>> {
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let rows: Vec<(ProbeId,)> =
            sql(WHAT, PROBES).bind(album).bind(ids).fetch_all(&mut self.database.reader(WHAT).await?).await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }

    /// Where these photos are, for as long as they are held.
    pub(crate) async fn hold(&self, album: AlbumId, ids: &[PhotoId]) -> Result<HeldPhotos> {
        let keys: Vec<PhotoRef> = ids.iter().map(|photo| PhotoRef { album, photo: *photo }).collect();
        let mut transaction = self.database.write(WHAT).await?;
        let held = transaction.bulk().hold(&keys).await?;
        let states = held.into_iter().map(|(key, standing)| (key.photo, standing.state)).collect();
        Ok(HeldPhotos { transaction, states })
    }
}
