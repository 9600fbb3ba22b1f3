//! Erasures from their request to their receipt.
//!
//! The first transaction removes what searches find. Then, in any process and again after a
//! crash: objects are deleted, the files of the database are cleaned, and everything is searched for what should be gone. A
//! receipt is signed when nothing is found, and at no other time.

mod cleaning;
mod kept;
mod objects;
mod organization;
mod scan;
pub mod signing;

use std::sync::Arc;

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use self::cleaning::Cleaner;
use self::signing::{ReceiptSigner, check_confirmation, sign_confirmation};
use crate::blobs::storage::Storage;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::Tenant;
use crate::model::erasure::{
    AgeingAlbum, BackupNotice, Erasure, ErasurePage, ErasurePreview, ErasureQuery, ErasureScan, ErasureState,
    ExpiringPart, LedgerFate, NewErasure, OrganizationReceipt, Receipt, ReceiptKey, ReceiptSubject,
};
use crate::model::ids::{AlbumId, ErasureId, KeyId, OrganizationId, PhotoId};
use crate::queue::jetstream::JetStreamQueue;
use crate::sealing::MasterSecret;
use crate::search::faces::FaceCache;
use crate::sql::erasures::deletion::DeletionCause;
use crate::sql::erasures::removal::Removal;
use crate::sql::erasures::rows::{ErasureRows, StoredErasure};
use crate::sql::erasures::{album_faces, organization as organization_rows, retention};
use crate::sql::{Database, SqlAlbums, SqlProcesses};
use crate::traits::{Blobs, Erasures, PhotoRef, Processes, Result};

/// Who asks for what retention erases: nobody.
const RETENTION: KeyId = KeyId(uuid::Uuid::nil());

/// What receipts say and are signed with.
pub(crate) struct ReceiptSettings {
    /// Without one nothing is signed.
    pub(crate) master: Option<MasterSecret>,
    /// How long backups are kept; `None` where that is not known.
    pub(crate) backup_days: Option<u32>,
}

/// Erases, and signs receipts.
pub(crate) struct Eraser {
    database: Database,
    storage: Storage,
    blobs: Arc<dyn Blobs>,
    albums: SqlAlbums,
    processes: SqlProcesses,
    face_cache: Arc<FaceCache>,
    cleaner: Cleaner,
    messages: Option<Arc<JetStreamQueue>>,
    master: Option<MasterSecret>,
    backup_days: Option<u32>,
}

impl Eraser {
    /// Erases in this database, this storage and the message queue, if there is one.
    pub(crate) fn new(
        database: Database,
        storage: Storage,
        face_cache: Arc<FaceCache>,
        messages: Option<Arc<JetStreamQueue>>,
        receipts: ReceiptSettings,
    ) -> Self {
        let ReceiptSettings { master, backup_days } = receipts;
        Self {
            blobs: storage.blobs(),
            albums: SqlAlbums::new(database.clone(), Arc::clone(&face_cache)),
            processes: SqlProcesses::new(database.clone()),
            database,
            storage,
            face_cache,
            cleaner: Cleaner::default(),
            messages,
            master,
            backup_days,
        }
    }

    fn rows(&self) -> ErasureRows {
        ErasureRows::new(self.database.clone())
    }

    fn removal(&self) -> Removal {
        Removal { database: self.database.clone(), master: self.master.clone() }
    }

    async fn close_album(
        &self,
        tenant: &Tenant,
        album: AlbumId,
        asked_by: KeyId,
        why: DeletionCause<'_>,
    ) -> Result<ErasureId> {
        let id = self.removal().begin_album(tenant, album, asked_by, why).await?;
        self.face_cache.forget_album(album);
        Ok(id)
    }

    /// Erases nothing while a process runs that would bring it back.
    async fn refuse_old_processes(&self) -> Result<()> {
        if self.has_old_processes().await? {
            let what = "a process of a version that knows no erasures is running";
            return Err(StoreError::new(StoreErrorKind::Conflict, what));
        }
        Ok(())
    }

    fn signer(&self) -> Result<ReceiptSigner> {
        let missing = || StoreError::new(StoreErrorKind::Invalid, "there is no master secret");
        ReceiptSigner::new(self.master.as_ref().ok_or_else(missing)?)
    }

    /// Signs the receipt.
    async fn sign(&self, stored: &StoredErasure, scan: ErasureScan) -> Result<()> {
        let signer = self.signer()?;
        let Erasure { id, tenant, album, kind, removed, .. } = stored.erasure;
        let issued_at = OffsetDateTime::now_utc();
        let until = self.backup_days.map(|days| issued_at + Duration::days(i64::from(days)));
        let receipt = Receipt {
            receipt_id: id,
            issued_at,
            organization_id: tenant.organization,
            album_id: album,
            subject: ReceiptSubject { kind },
            removed,
            kept: self.list_kept(stored),
            scan,
            backups: BackupNotice { until },
            jws: String::new(),
        };
        self.rows().end(id, &signer.sign(receipt)?, &signer.public_key()).await
    }
}

/// How long after the end of a lease a picture may be written under it: workers begin none later than they know of its end, which
/// a slow response of the database may delay by 30 seconds, and give each up after 30 seconds.
const LAST_PICTURES: Duration = Duration::seconds(60);

/// Whether a worker may still write pictures of photos that an erasure deleted, `now` by the database's clock, microseconds.
/// It removes them itself, unless it dies before: what there is after this time nobody else would remove.
fn may_get_pictures(stored: &StoredErasure, now: i64) -> bool {
    let until = stored.plan.leased_until;
    let last_pictures = i64::try_from(LAST_PICTURES.whole_microseconds()).unwrap_or(i64::MAX);
    until > 0 && now < until.saturating_add(last_pictures)
}

#[async_trait]
impl Erasures for Eraser {
    fn can_sign(&self) -> bool {
        self.master.is_some()
    }

    async fn has_old_processes(&self) -> Result<bool> {
        Ok(self.processes.list().await?.iter().any(|process| !process.report.knows_erasures))
    }

    async fn read_clock(&self) -> Result<i64> {
        self.rows().read_clock().await
    }

    async fn has_vectors(&self, album: AlbumId) -> Result<bool> {
        album_faces::has_vectors(&self.database, album).await
    }

    async fn preview(&self, erasure: &NewErasure) -> Result<ErasurePreview> {
        self.removal().preview(erasure).await
    }

    async fn begin(&self, erasure: NewErasure) -> Result<ErasureId> {
        let id = self.removal().begin(&erasure).await?;
        self.face_cache.update_album(erasure.album).await;
        Ok(id)
    }

    async fn erase_organization(
        &self,
        organization: OrganizationId,
        ledger: LedgerFate,
    ) -> Result<OrganizationReceipt> {
        self.erase_all_of(organization, ledger).await
    }

    async fn forget_organization(&self, organization: OrganizationId) -> Result<()> {
        organization_rows::forget(&self.database, organization).await
    }

    async fn begin_photo(
        &self,
        tenant: &Tenant,
        album: AlbumId,
        photo: PhotoId,
        asked_by: KeyId,
    ) -> Result<ErasureId> {
        let id = self.removal().begin_photo(tenant, PhotoRef { album, photo }, asked_by).await?;
        self.face_cache.update_album(album).await;
        Ok(id)
    }

    async fn begin_album(&self, tenant: &Tenant, album: AlbumId, asked_by: KeyId) -> Result<ErasureId> {
        self.close_album(tenant, album, asked_by, DeletionCause::Request).await
    }

    async fn begin_expired(&self, album: &AgeingAlbum, part: ExpiringPart) -> Result<ErasureId> {
        self.refuse_old_processes().await?;
        match part {
            ExpiringPart::Faces => self.removal().begin_album_faces(album, RETENTION).await,
            ExpiringPart::Photos => {
                let why = DeletionCause::Age(album);
                self.close_album(&album.tenant, album.id, RETENTION, why).await
            }
        }
    }

    async fn list_ageing(&self, after: Option<AlbumId>) -> Result<Vec<AgeingAlbum>> {
        retention::list_ageing(&self.database, after).await
    }

    async fn get_ageing(&self, tenant: &Tenant, album: AlbumId) -> Result<AgeingAlbum> {
        retention::get_ageing(&self.database, tenant, album).await
    }

    async fn tell_expiring(&self, album: &AgeingAlbum, part: ExpiringPart, at: OffsetDateTime) -> Result<()> {
        retention::tell(&self.database, album, part, at).await
    }

    async fn remove_objects(&self, id: ErasureId) -> Result<Erasure> {
        let mut stored = self.rows().load(id).await?;
        if stored.erasure.state == ErasureState::Running {
            self.remove(&mut stored).await?;
            // With a master secret the receipt says it, after a last look.
            if !self.can_sign() && !may_get_pictures(&stored, self.rows().read_clock().await?) {
                stored.plan.is_removed = true;
                self.rows().note_measured(&mut stored).await?;
            }
        }
        Ok(stored.erasure)
    }

    async fn finish(&self, ids: &[ErasureId]) -> Result<u64> {
        let (mut running, mut done) = (Vec::new(), 0);
        let now = self.rows().read_clock().await?;
        for id in ids {
            let stored = self.rows().load(*id).await?;
            if stored.erasure.state == ErasureState::Done {
                done += 1;
            } else if may_get_pictures(&stored, now) {
                tracing::debug!(erasure.id = %id, "workers may write pictures of an erasure's photos yet");
            } else if self.scan_face_indexes(&stored).await?.left == 0 {
                running.push(stored);
            }
        }
        if running.is_empty() || self.has_old_processes().await? {
            // Cleaning the files of a large database takes long, and would not help those that wait for other processes.
            return Ok(done);
        }
        let is_clean = self.cleaner.clean(&self.database).await?;
        let named = self.list_named(&running).await?;
        for stored in running {
            let scan = self.scan_everything(&stored, Some(is_clean), named.as_ref()).await?;
            if scan.left > 0 {
                tracing::debug!(erasure.id = %stored.erasure.id, ?scan, "something of an erasure is left");
                continue;
            }
            self.sign(&stored, scan).await?;
            done += 1;
        }
        Ok(done)
    }

    async fn list_running(&self, after: Option<ErasureId>) -> Result<Vec<ErasureId>> {
        self.rows().list_running(after, self.can_sign()).await
    }

    async fn get(&self, tenant: &Tenant, id: ErasureId) -> Result<Erasure> {
        Ok(self.rows().get(tenant, id).await?.erasure)
    }

    async fn list(&self, tenant: &Tenant, query: ErasureQuery) -> Result<ErasurePage> {
        self.rows().list(tenant, query).await
    }

    async fn verify(&self, tenant: &Tenant, id: ErasureId) -> Result<ErasureScan> {
        let stored = self.rows().get(tenant, id).await?;
        // The files were cleaned before the receipt was signed, and nothing that was deleted since can be told from it.
        let is_clean = (stored.erasure.state == ErasureState::Running).then_some(false);
        let named = self.list_named(std::slice::from_ref(&stored)).await?;
        self.scan_everything(&stored, is_clean, named.as_ref()).await
    }

    async fn keys(&self) -> Result<Vec<ReceiptKey>> {
        let mut keys = self.rows().list_keys().await?;
        // Before the first receipt too: whoever fetches the keys once has the one that signs next.
        if let Some(master) = &self.master {
            let current = ReceiptSigner::new(master)?.public_key();
            if !keys.contains(&current) {
                keys.push(current);
            }
        }
        Ok(keys)
    }

    fn sign_confirmation(&self, shown: &[u8]) -> Option<String> {
        self.master.as_ref().map(|master| sign_confirmation(master, shown))
    }

    fn check_confirmation(&self, shown: &[u8], signature: &str) -> bool {
        self.master.as_ref().is_some_and(|master| check_confirmation(master, shown, signature))
    }
}
