//! Looks everywhere for what an erasure removed: rows, objects, the message queue, the files of the database, and the face
//! indexes of all processes.

use futures_util::TryStreamExt;
use time::OffsetDateTime;

use super::Eraser;
use super::objects::list_objects;
use crate::model::erasure::{ErasureKind, ErasureScan, ScannedStore};
use crate::queue::jetstream::NamedPhotos;
use crate::sql::DatabaseKind;
use crate::sql::erasures::rows::StoredErasure;
use crate::sql::erasures::scan::RowScan;
use crate::traits::{Processes, Result};

impl Eraser {
    /// Looks everywhere. `is_clean` says whether the files of the database were cleaned since the rows went; without it they
    /// are not looked at. `named` is what [`Self::list_named`] returned.
    pub(super) async fn scan_everything(
        &self,
        stored: &StoredErasure,
        is_clean: Option<bool>,
        named: Option<&NamedPhotos>,
    ) -> Result<ErasureScan> {
        let rows = RowScan { database: self.database.clone(), master: self.master.clone() };
        let mut stores = vec![
            rows.run(stored).await?,
            self.scan_objects(stored).await?,
            self.scan_face_indexes(stored).await?,
        ];
        stores.extend(scan_messages(stored, named));
        stores.extend(is_clean.map(|is_clean| self.report_files(is_clean)));
        let left = stores.iter().map(|scanned| scanned.left).sum();
        Ok(ErasureScan { finished_at: OffsetDateTime::now_utc(), stores, left })
    }

    async fn scan_objects(&self, stored: &StoredErasure) -> Result<ScannedStore> {
        let (organization, album) = (stored.erasure.tenant.organization, stored.erasure.album);
        let mut scanned = ScannedStore { store: "objects".to_owned(), looked: 0, left: 0 };
        if stored.erasure.kind == ErasureKind::Album {
            let mut objects = self.storage.list_album(organization, album);
            while objects.try_next().await?.is_some() {
                scanned.left += 1;
            }
            scanned.looked = stored.erasure.removed.objects.max(scanned.left);
            return Ok(scanned);
        }
        for key in list_objects(stored) {
            scanned.looked += 1;
            scanned.left += u64::from(self.blobs.head(&key).await?.is_some());
        }
        Ok(scanned)
    }

    /// Brings the index of this process up to date, and asks which others are.
    pub(super) async fn scan_face_indexes(&self, stored: &StoredErasure) -> Result<ScannedStore> {
        let as_of = self.face_cache.refresh(self.rows().read_clock().await?).await?;
        let left = u64::from(as_of < stored.erased_at);
        let mut scanned = ScannedStore { store: "face indexes".to_owned(), looked: 1, left };
        for process in self.processes.list().await? {
            // A role without an API has no index.
            let Some(faces_as_of) = process.report.faces_as_of else { continue };
            scanned.looked += 1;
            scanned.left += u64::from(faces_as_of < stored.erased_at);
        }
        Ok(scanned)
    }

    /// Looks at all messages of the queue, which name photos, once for these erasures; `None` without a queue, or if it has none
    /// that asks for a photo that one of them deletes.
    pub(super) async fn list_named(&self, erasures: &[StoredErasure]) -> Result<Option<NamedPhotos>> {
        match &self.messages {
            Some(messages) if erasures.iter().any(StoredErasure::deletes_queued_photos) => {
                messages.list_named().await.map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(super) fn report_files(&self, is_clean: bool) -> ScannedStore {
        let store = match self.database.kind() {
            DatabaseKind::Sqlite => "write-ahead log",
            DatabaseKind::Postgres => "dead rows",
        };
        ScannedStore { store: store.to_owned(), looked: 1, left: u64::from(!is_clean) }
    }
}

fn scan_messages(stored: &StoredErasure, named: Option<&NamedPhotos>) -> Option<ScannedStore> {
    let named = named.filter(|_| stored.deletes_queued_photos())?;
    let left = named.photos.iter().filter(|photo| stored.deletes(photo)).count() as u64;
    Some(ScannedStore { store: "message queue".to_owned(), looked: named.looked, left })
}
