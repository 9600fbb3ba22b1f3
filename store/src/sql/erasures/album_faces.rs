//! Erases all faces of an album: switches its face recognition off at once, then takes the vectors in steps. Says whether there
//! are any.

use uuid::Uuid;

use super::ErasurePlan;
use super::removal::{DELETE_PROBES, Removal, lock_album};
use super::retention::require_unchanged;
use super::rows::{NewErasureRow, insert};
use crate::error::StoreError;
use crate::model::album::AlbumConfig;
use crate::model::erasure::{AgeingAlbum, ErasureKind, RemovedCounts};
use crate::model::ids::{AlbumId, ErasureId, FaceId, KeyId, PhotoId, ProbeId};
use crate::sql::changes::{ChangeKind, record_changes};
use crate::sql::database::Database;
use crate::sql::row_types::{from_json, to_json};
use crate::sql::statement::{Statement, query};
use crate::traits::{PhotoRef, Result};

const OPERATION: &str = "erase the faces of an album";

/// Photos of one transaction.
const BATCH: i64 = 500;

/// In the order of an index of the album, so that faces of others are not read.
const ANY_VECTOR: &str =
    "select id from face where album = $1 and embedding is not null order by photo limit 1";

const PHOTOS_WITH_VECTORS: &str = "select distinct photo from face where album = $1 and embedding is not null \
     order by photo limit $2";

const FORGET_FACES_OF_PHOTOS: Statement = Statement::PerDialect {
    sqlite: "update face set unindexed = 'ERASED', model = null, embedding = null \
             where album = $1 and embedding is not null and photo in (select unhex(value) from json_each($2))",
    postgres: "update face set unindexed = 'ERASED', model = null, embedding = null \
               where album = $1 and embedding is not null and photo = any($2)",
};

/// Returns whether any face of an album has a vector.
pub(crate) async fn has_vectors(database: &Database, album: AlbumId) -> Result<bool> {
    const OPERATION: &str = "look for faces with a vector";
    let found: Option<(FaceId,)> = query(OPERATION, ANY_VECTOR)
        .bind(album)
        .fetch_optional(&mut database.acquire_reader(OPERATION).await?)
        .await?;
    Ok(found.is_some())
}

impl Removal {
    /// Switches the face recognition of an album off, deletes its selfies, and notes that its vectors go. `Conflict` where it has
    /// changed since its age was read.
    pub(crate) async fn begin_album_faces(&self, read: &AgeingAlbum, asked_by: KeyId) -> Result<ErasureId> {
        let (album, tenant) = (read.id, &read.tenant);
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let count = "select count(*) from face where album = $1 and embedding is not null";
        let (vectors,): (i64,) = query(OPERATION, count).bind(album).fetch_one(&mut transaction).await?;
        let probes = "select id from probe where album = $1 order by id";
        let probes: Vec<(ProbeId,)> =
            query(OPERATION, probes).bind(album).fetch_all(&mut transaction).await?;
        let probes: Vec<ProbeId> = probes.into_iter().map(|(probe,)| probe).collect();
        let ids: Vec<Uuid> = probes.iter().map(|probe| probe.0).collect();
        query(OPERATION, DELETE_PROBES).bind(ids).execute(&mut transaction).await?;
        lock_album(&mut transaction, album).await?;
        require_unchanged(&mut transaction, read).await?;
        let config = "select config from album where id = $1 and organization = $2 and mode = $3";
        let config: Option<(String,)> = query(OPERATION, config)
            .bind(album)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .fetch_optional(&mut transaction)
            .await?;
        let (config,) = config.ok_or_else(|| StoreError::not_found(format!("album {album}")))?;
        let mut config: AlbumConfig = from_json(&config)?;
        config.face.enabled = false;
        let switch_off = "update album set config = $2, faces_erased_at = $3, updated_at = $3 where id = $1";
        query(OPERATION, switch_off)
            .bind(album)
            .bind(to_json(&config)?)
            .bind(now)
            .execute(&mut transaction)
            .await?;
        let id = ErasureId::generate();
        let removed = RemovedCounts {
            faces: vectors.unsigned_abs(),
            vectors: vectors.unsigned_abs(),
            probes: probes.len() as u64,
            ..RemovedCounts::default()
        };
        let plan = ErasurePlan { probes, all_faces: true, ..ErasurePlan::default() };
        let kind = ErasureKind::Face;
        let row = NewErasureRow { id, tenant, album, kind, asked_by, plan: &plan, removed, now };
        insert(&mut transaction, OPERATION, &row).await?;
        transaction.commit(OPERATION).await?;
        Ok(id)
    }

    /// Takes the vectors of some photos of an album; returns the photos, none at the end.
    pub(crate) async fn forget_some_faces(&self, album: AlbumId) -> Result<Vec<PhotoId>> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let photos: Vec<(PhotoId,)> =
            query(OPERATION, PHOTOS_WITH_VECTORS).bind(album).bind(BATCH).fetch_all(&mut transaction).await?;
        let photos: Vec<PhotoId> = photos.into_iter().map(|(photo,)| photo).collect();
        if photos.is_empty() {
            return Ok(photos);
        }
        let keys: Vec<PhotoRef> = photos.iter().map(|photo| PhotoRef { album, photo: *photo }).collect();
        transaction.queue_writes().lock_photos(&keys).await?;
        let ids: Vec<Uuid> = photos.iter().map(|photo| photo.0).collect();
        query(OPERATION, FORGET_FACES_OF_PHOTOS).bind(album).bind(ids).execute(&mut transaction).await?;
        record_changes(&mut transaction, album, &photos, ChangeKind::Content).await?;
        transaction.commit(OPERATION).await?;
        Ok(photos)
    }
}
