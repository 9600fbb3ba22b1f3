//! Looks everywhere for what an erasure removed: rows, objects, the message queue, the files of the database, and the face
//! indexes of all processes.

use futures_util::TryStreamExt;
use time::OffsetDateTime;

use super::Eraser;
use super::objects::list_objects;
use crate::model::erasure::{ErasureKind, ErasureScan, ScannedStore};
use crate::queue::jetstream::NamedMessages;
use crate::sql::DatabaseKind;
use crate::sql::erasures::rows::StoredErasure;
use crate::sql::erasures::scan::RowScan;
use crate::traits::{Processes, Result};

impl Eraser {
    /// Looks everywhere. `is_clean` says whether the files of the database were cleaned since the rows went; without it they
    /// are not looked at.
    pub(super) async fn scan_everything(
        &self,
        stored: &StoredErasure,
        is_clean: Option<bool>,
    ) -> Result<ErasureScan> {
        let rows = RowScan { database: self.database.clone(), master: self.master.clone() };
        let mut stores = vec![
            rows.run(stored).await?,
            self.scan_objects(stored).await?,
            self.scan_face_indexes(stored).await?,
        ];
        stores.extend(self.scan_messages(stored).await?);
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
        let is_up_to_date = self.face_cache.refresh().await?;
        let mut scanned =
            ScannedStore { store: "face indexes".to_owned(), looked: 1, left: u64::from(!is_up_to_date) };
        for process in self.processes.list().await? {
            // A role without an API has no index.
            let Some(faces_as_of) = process.report.faces_as_of else { continue };
            scanned.looked += 1;
            scanned.left += u64::from(faces_as_of < stored.erased_at);
        }
        Ok(scanned)
    }

    /// Looks at the messages of the queue, which name photos, if there is one.
    async fn scan_messages(&self, stored: &StoredErasure) -> Result<Option<ScannedStore>> {
        let Some(messages) = &self.messages else { return Ok(None) };
        if !stored.deletes_photos() {
            return Ok(None);
        }
        let NamedMessages { looked, named } = messages.find_named(|photo| stored.deletes(photo)).await?;
        Ok(Some(ScannedStore { store: "message queue".to_owned(), looked, left: named }))
    }

    pub(super) fn report_files(&self, is_clean: bool) -> ScannedStore {
        let store = match self.database.kind() {
            DatabaseKind::Sqlite => "write-ahead log",
            DatabaseKind::Postgres => "dead rows",
        };
        ScannedStore { store: store.to_owned(), looked: 1, left: u64::from(!is_clean) }
    }
}
