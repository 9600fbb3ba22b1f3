//! Erases all faces of an album: switches its face recognition off at once, then takes the vectors in steps. Says whether there
//! are any.

use uuid::Uuid;

use super::ErasurePlan;
use super::pages::{FIRST, LAST, find_page_end};
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

/// In the order of an index of the album, so that faces of others are not read.
const ANY_VECTOR: &str =
    "select id from face where album = $1 and embedding is not null order by photo limit 1";

/// Of one page of the album: what is erased of it already is not read once more.
const PHOTOS_WITH_VECTORS: &str = "select distinct photo from face where album = $1 and photo > $2 and photo <= $3 \
     and embedding is not null order by photo";

const FORGET_FACES_OF_PHOTOS: Statement = Statement::PerDialect {
    sqlite: "update face set unindexed = 'ERASED', model = null, embedding = null \
             where album = $1 and embedding is not null and photo in (select unhex(value) from json_each($2))",
    postgres: "update face set unindexed = 'ERASED', model = null, embedding = null \
               where album = $1 and embedding is not null and photo = any($2)",
};

/// Returns whether any face of an album has a vector that is not being erased with all others of the album.
pub(crate) async fn has_vectors(database: &Database, album: AlbumId) -> Result<bool> {
    const OPERATION: &str = "look for faces with a vector";
    let mut reader = database.acquire_reader(OPERATION).await?;
    // Without a vector the statement below would read all faces of the album to find none.
    let erased: Option<(Option<i64>,)> = query(OPERATION, "select faces_erased_at from album where id = $1")
        .bind(album)
        .fetch_optional(&mut reader)
        .await?;
    if erased.is_some_and(|(erased_at,)| erased_at.is_some()) {
        return Ok(false);
    }
    let found: Option<(FaceId,)> =
        query(OPERATION, ANY_VECTOR).bind(album).fetch_optional(&mut reader).await?;
    Ok(found.is_some())
}

/// A page of an album whose vectors were taken.
pub(crate) struct ForgottenPage {
    /// Whether it had any.
    pub(crate) has_changed: bool,
    /// After which photo the next page begins; `None` at the end.
    pub(crate) next: Option<PhotoId>,
}

impl Removal {
    /// Switches the face recognition of an album off, deletes its selfies, and notes that its vectors go. `Conflict` where it has
    /// changed since its age was read.
    pub(crate) async fn begin_album_faces(&self, read: &AgeingAlbum, asked_by: KeyId) -> Result<ErasureId> {
        let (album, tenant) = (read.id, &read.tenant);
        // Workers wait for the album's row once it is locked.
        let vectors = self.count_album(album).await?.vectors;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        // Before its selfies: an erasure of one person locks them in this order.
        lock_album(&mut transaction, album).await?;
        require_unchanged(&mut transaction, read).await?;
        let probes = "select id from probe where album = $1 order by id";
        let probes: Vec<(ProbeId,)> =
            query(OPERATION, probes).bind(album).fetch_all(&mut transaction).await?;
        let probes: Vec<ProbeId> = probes.into_iter().map(|(probe,)| probe).collect();
        let ids: Vec<Uuid> = probes.iter().map(|probe| probe.0).collect();
        query(OPERATION, DELETE_PROBES).bind(ids).execute(&mut transaction).await?;
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
            faces: vectors,
            vectors,
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

    /// Takes the vectors of the page of an album that begins after this photo, of the first page for `None`. None come to pages
    /// before it: what was read earlier and is finished now gets none.
    pub(crate) async fn forget_page_of_faces(
        &self,
        album: AlbumId,
        after: Option<PhotoId>,
    ) -> Result<ForgottenPage> {
        let after = after.unwrap_or(FIRST);
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let end = find_page_end(&mut snapshot, OPERATION, album, after).await?;
        let photos: Vec<(PhotoId,)> = query(OPERATION, PHOTOS_WITH_VECTORS)
            .bind(album)
            .bind(after)
            .bind(end)
            .fetch_all(&mut snapshot)
            .await?;
        drop(snapshot);
        let photos: Vec<PhotoId> = photos.into_iter().map(|(photo,)| photo).collect();
        if !photos.is_empty() {
            self.forget_faces_of_photos(album, &photos).await?;
        }
        Ok(ForgottenPage { has_changed: !photos.is_empty(), next: (end != LAST).then_some(end) })
    }

    async fn forget_faces_of_photos(&self, album: AlbumId, photos: &[PhotoId]) -> Result<()> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let keys: Vec<PhotoRef> = photos.iter().map(|photo| PhotoRef { album, photo: *photo }).collect();
        transaction.queue_writes().lock_photos(&keys).await?;
        let ids: Vec<Uuid> = photos.iter().map(|photo| photo.0).collect();
        query(OPERATION, FORGET_FACES_OF_PHOTOS).bind(album).bind(ids).execute(&mut transaction).await?;
        record_changes(&mut transaction, album, photos, ChangeKind::Content).await?;
        transaction.commit(OPERATION).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::tests::{explain_plan, open_store};

    /// What is erased already was read again for each page, so that a large album took the square of its photos.
    #[tokio::test]
    async fn a_page_of_faces_is_found_without_reading_other_pages() {
        let (_folder, _store, database) = open_store().await;
        let plan = explain_plan(&database, PHOTOS_WITH_VECTORS).await;
        assert!(plan.contains("face_by_photo (album=? AND photo>? AND photo<?)"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}
