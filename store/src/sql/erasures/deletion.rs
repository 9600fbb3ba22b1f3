//! Deletes the rows of a photo, and closes an album that is deleted.

use sqlx::FromRow;

use super::ErasurePlan;
use super::pages::{FIRST, LAST, find_page_end};
use super::removal::{Removal, delete_photos, find_last_lease, find_marking_end, is_none_queued, lock_album};
use super::retention::require_unchanged;
use super::rows::{NewErasureRow, insert};
use crate::error::StoreError;
use crate::model::album::Tenant;
use crate::model::erasure::{AgeingAlbum, ErasureKind, RemovedCounts};
use crate::model::ids::{AlbumId, ErasureId, KeyId};
use crate::sql::albums::close;
use crate::sql::changes::{ChangeKind, record_changes};
use crate::sql::statement::query;
use crate::traits::{PhotoRef, Result};

const OPERATION: &str = "delete";

/// Counts what goes with photos: those of a page of an album, or one.
macro_rules! count_rows {
    ($of:literal, $photos:literal) => {
        concat!(
            "select (select count(*) from face where album = $1 ",
            $of,
            ") as faces, \
             (select count(*) from face where album = $1 and embedding is not null ",
            $of,
            ") as vectors, \
             (select count(*) from seen_text where album = $1 ",
            $of,
            ") as texts, \
             (select count(*) from photo where album = $1 ",
            $photos,
            ") as photos"
        )
    };
}

const COUNT_PHOTO: &str = count_rows!("and photo = $2", "and id = $2");
const COUNT_PAGE: &str = count_rows!("and photo > $2 and photo <= $3", "and id > $2 and id <= $3");

#[derive(FromRow)]
struct CountRow {
    faces: i64,
    vectors: i64,
    texts: i64,
    photos: i64,
}

impl From<CountRow> for RemovedCounts {
    fn from(row: CountRow) -> Self {
        Self {
            faces: row.faces.unsigned_abs(),
            vectors: row.vectors.unsigned_abs(),
            texts: row.texts.unsigned_abs(),
            photos: row.photos.unsigned_abs(),
            ..Self::default()
        }
    }
}

/// Why an album is deleted.
#[derive(Clone, Copy)]
pub(crate) enum DeletionCause<'a> {
    /// Somebody asked for it.
    Request,
    /// Its time has come, which was read so.
    Age(&'a AgeingAlbum),
}

impl Removal {
    /// Deletes the rows of a photo.
    pub(crate) async fn begin_photo(
        &self,
        tenant: &Tenant,
        photo: PhotoRef,
        asked_by: KeyId,
    ) -> Result<ErasureId> {
        let PhotoRef { album, photo } = photo;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let locked = transaction.queue_writes().lock_photos(&[PhotoRef { album, photo }]).await?;
        let counts: CountRow =
            query(OPERATION, COUNT_PHOTO).bind(album).bind(photo).fetch_one(&mut transaction).await?;
        if counts.photos == 0 {
            return Err(StoreError::not_found(format!("photo {photo}")));
        }
        let id = ErasureId::generate();
        let marked_until = find_marking_end(&mut transaction, album).await?;
        let leased_until = find_last_lease(album, &[photo], &locked).max(marked_until);
        let none_queued = is_none_queued(album, &[photo], &locked);
        let deleted_photos = vec![photo];
        let plan = ErasurePlan { deleted_photos, leased_until, none_queued, ..ErasurePlan::default() };
        let (kind, removed) = (ErasureKind::Photo, counts.into());
        let row = NewErasureRow { id, tenant, album, kind, asked_by, plan: &plan, removed, now };
        insert(&mut transaction, OPERATION, &row).await?;
        delete_photos(&mut transaction, album, &[photo]).await?;
        record_changes(&mut transaction, album, &[photo], ChangeKind::Content).await?;
        transaction.commit(OPERATION).await?;
        Ok(id)
    }

    /// Closes an album and notes that it is erased, in one transaction: no album goes without a receipt. Returns the erasure that
    /// was noted before, if there is one. `Conflict` where its age is the cause and it has changed since that was read.
    pub(crate) async fn begin_album(
        &self,
        tenant: &Tenant,
        album: AlbumId,
        asked_by: KeyId,
        why: DeletionCause<'_>,
    ) -> Result<ErasureId> {
        // Before the album is locked, for whose row workers wait. Whoever deletes it counts again, but for a process of an earlier
        // version, which takes what the row says.
        let removed = self.count_open_album(tenant, album).await?;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let cause = match why {
            DeletionCause::Request => "request",
            DeletionCause::Age(_) => "retention",
        };
        close(&mut transaction, OPERATION, tenant, album, cause).await?;
        if let DeletionCause::Age(read) = why {
            // Now that the album is locked.
            require_unchanged(&mut transaction, read).await?;
        }
        let now = transaction.read_clock(OPERATION).await?;
        let known =
            "select id from erasure where organization = $1 and mode = $2 and album = $3 and kind = 'album'";
        lock_album(&mut transaction, album).await?;
        let known: Option<(ErasureId,)> = query(OPERATION, known)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(album)
            .fetch_optional(&mut transaction)
            .await?;
        if let Some((id,)) = known {
            return Ok(id);
        }
        let (id, plan) = (ErasureId::generate(), ErasurePlan::default());
        let kind = ErasureKind::Album;
        let row = NewErasureRow { id, tenant, album, kind, asked_by, plan: &plan, removed, now };
        insert(&mut transaction, OPERATION, &row).await?;
        transaction.commit(OPERATION).await?;
        Ok(id)
    }

    /// Counts as [`Self::count_album`] does; nothing where the album is closed already or another tenant's.
    async fn count_open_album(&self, tenant: &Tenant, album: AlbumId) -> Result<RemovedCounts> {
        let open = "select count(*) from album where id = $1 and organization = $2 and mode = $3 and closed_at is null";
        let (open,): (i64,) = query(OPERATION, open)
            .bind(album)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .fetch_one(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        if open == 0 {
            return Ok(RemovedCounts::default());
        }
        self.count_album(album).await
    }

    /// Counts the rows of an album that go with it, beside those who write.
    pub(crate) async fn count_album(&self, album: AlbumId) -> Result<RemovedCounts> {
        const OPERATION: &str = "count what is deleted";
        let mut snapshot = self.database.begin_scan(OPERATION).await?;
        let probes = "select count(*) from probe where album = $1";
        let (probes,): (i64,) = query(OPERATION, probes).bind(album).fetch_one(&mut snapshot).await?;
        let mut counted = RemovedCounts { probes: probes.unsigned_abs(), ..RemovedCounts::default() };
        let mut after = FIRST;
        while after != LAST {
            let end = find_page_end(&mut snapshot, OPERATION, album, after).await?;
            let page: CountRow = query(OPERATION, COUNT_PAGE)
                .bind(album)
                .bind(after)
                .bind(end)
                .fetch_one(&mut snapshot)
                .await?;
            let page = RemovedCounts::from(page);
            counted.faces += page.faces;
            counted.vectors += page.vectors;
            counted.texts += page.texts;
            counted.photos += page.photos;
            after = end;
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::conformance::{AlbumFixture, face, text};
    use crate::sql::database::Database;
    use crate::sql::erasures::rows::ErasureRows;
    use crate::sql::row_types::to_json;
    use crate::sql::tests::{explain_plan, open_store};

    /// That one adds the objects to what the row says, and writes this whatever is there by then.
    #[tokio::test]
    async fn a_receipt_has_its_counts_also_where_a_process_of_an_earlier_version_deletes() {
        const WRITE: &str = "update erasure set plan = $2, removed = $3 where id = $1 and state = 'running'";
        let (_folder, store, file) = open_store().await;
        let rows = ErasureRows::new(Database::Sqlite(file.clone()));
        for is_first in [true, false] {
            let fixture = AlbumFixture::create(&store).await;
            fixture.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], vec![text("1207", 0.97)]).await;
            let begun = store.erasures.begin_album(&fixture.tenant, fixture.album, fixture.key.id).await;
            let id = begun.unwrap();
            let mut read = rows.load(id).await.unwrap();
            read.erasure.removed.objects += 3;
            read.plan.is_measured = true;
            if !is_first {
                store.erasures.remove_objects(id).await.unwrap();
            }
            sqlx::query(WRITE)
                .bind(id.0)
                .bind(to_json(&read.plan).unwrap())
                .bind(to_json(&read.erasure.removed).unwrap())
                .execute(&file.writer)
                .await
                .unwrap();
            store.erasures.remove_objects(id).await.unwrap();
            while store.erasures.finish(&[id]).await.unwrap() == 0 {
                // Somebody still reads the log of the database.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let receipt = store.erasures.get(&fixture.tenant, id).await.unwrap().receipt.unwrap();
            let expected = RemovedCounts {
                faces: 1,
                vectors: 1,
                texts: 1,
                photos: 1,
                objects: 3,
                ..RemovedCounts::default()
            };
            assert_eq!(receipt.removed, expected, "it is first: {is_first}");
        }
    }

    #[tokio::test]
    async fn a_page_of_an_album_is_counted_without_reading_other_pages() {
        let (_folder, _store, database) = open_store().await;
        let plan = explain_plan(&database, COUNT_PAGE).await;
        for range in [
            "face_by_photo (album=? AND photo>? AND photo<?)",
            "seen_text_by_photo (album=? AND photo>? AND photo<?)",
            "(album=? AND id>? AND id<?)",
        ] {
            assert!(plan.contains(range), "{range} is not in the plan:\n{plan}");
        }
    }
}
