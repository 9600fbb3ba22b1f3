//! Erasures. The traits are part of [`crate::traits`].

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::error::StoreError;
use crate::model::album::Tenant;
use crate::model::erasure::{
    AgeingAlbum, Erasure, ErasurePage, ErasurePreview, ErasureQuery, ErasureScan, ExpiringPart, LedgerFate,
    NewErasure, OrganizationReceipt, ReceiptKey,
};
use crate::model::ids::{AlbumId, ErasureId, KeyId, OrganizationId, PhotoId};

type Result<T> = std::result::Result<T, StoreError>;

/// Removes what somebody asks to be removed, for good, and signs that it is gone.
///
/// Each `begin` removes in one transaction what searches find: when it returns, it is not found any more.
/// [`Self::remove_objects`] and [`Self::finish`] do the rest, and are called again for what an interrupted process has left.
#[async_trait]
pub trait Erasures: Send + Sync {
    /// Returns whether receipts can be signed: whether there is a master secret.
    fn can_sign(&self) -> bool;
    /// Returns whether a process is running that would bring back what is erased, because its version knows no erasures.
    async fn has_old_processes(&self) -> Result<bool>;
    /// Returns the time by the database's clock, microseconds: what a search sees that begins now is no older.
    async fn read_clock(&self) -> Result<i64>;
    /// Returns whether any face of an album has a vector that stays: one whose faces were switched off keeps those that it has, and
    /// one whose faces are all erased loses them, whether or not they are gone yet.
    async fn has_vectors(&self, album: AlbumId) -> Result<bool>;
    /// Returns what an erasure would remove now.
    async fn preview(&self, erasure: &NewErasure) -> Result<ErasurePreview>;
    /// Erases faces or a bib, and begins the rest.
    async fn begin(&self, erasure: NewErasure) -> Result<ErasureId>;
    /// Deletes the rows of a photo, and begins the rest. `NotFound` when there is none.
    async fn begin_photo(
        &self,
        tenant: &Tenant,
        album: AlbumId,
        photo: PhotoId,
        asked_by: KeyId,
    ) -> Result<ErasureId>;
    /// Counts what goes with an album, closes it, and begins the rest; [`Self::remove_objects`] counts again. The same erasure when
    /// that was asked before.
    async fn begin_album(&self, tenant: &Tenant, album: AlbumId, asked_by: KeyId) -> Result<ErasureId>;
    /// Deletes what is left of an organization whose albums were erased: keys, accounts, webhooks, events, credits. Receipts
    /// stay. Signs a receipt of its own, which is kept nowhere: until [`Self::forget_organization`] the organization is still found,
    /// by its id in place of its name, and can be asked for again. `Conflict` while it has albums, or when something was found
    /// afterwards.
    async fn erase_organization(
        &self,
        organization: OrganizationId,
        ledger: LedgerFate,
    ) -> Result<OrganizationReceipt>;
    /// Deletes the id of an organization whose receipt was handed out.
    async fn forget_organization(&self, organization: OrganizationId) -> Result<()>;
    /// Erases what has been kept for as long as its album says, and begins the rest. `Conflict` while
    /// [`Self::has_old_processes`], and when the album has changed since it was read: a photo was confirmed, or its rule changed.
    async fn begin_expired(&self, album: &AgeingAlbum, part: ExpiringPart) -> Result<ErasureId>;
    /// Returns albums with their ages after this one, in the order of their ids; none at the end.
    async fn list_ageing(&self, after: Option<AlbumId>) -> Result<Vec<AgeingAlbum>>;
    /// Returns an open album of this tenant with its age.
    async fn get_ageing(&self, tenant: &Tenant, album: AlbumId) -> Result<AgeingAlbum>;
    /// Tells the owner of an album by an event what is going to be erased then; once for each time.
    async fn tell_expiring(&self, album: &AgeingAlbum, part: ExpiringPart, at: OffsetDateTime) -> Result<()>;
    /// Deletes the objects of what was erased, and the rows of an album. Returns the erasure, which is still running.
    async fn remove_objects(&self, id: ErasureId) -> Result<Erasure>;
    /// Does the rest for erasures whose objects are deleted: cleans the files of the database once, looks for each whether
    /// anything is left, and signs its receipt if nothing is. Returns how many are done now; to be called again for those
    /// that are not.
    async fn finish(&self, ids: &[ErasureId]) -> Result<u64>;
    /// Returns erasures that are not done, oldest first, after this one; without a master secret, with which none is ever done,
    /// those of which something is left to be removed.
    async fn list_running(&self, after: Option<ErasureId>) -> Result<Vec<ErasureId>>;
    /// Returns an erasure.
    async fn get(&self, tenant: &Tenant, id: ErasureId) -> Result<Erasure>;
    /// Returns a page of erasures, newest first.
    async fn list(&self, tenant: &Tenant, query: ErasureQuery) -> Result<ErasurePage>;
    /// Looks again whether anything of an erasure is there; of one that is done not in the files of the database, which were
    /// cleaned before.
    async fn verify(&self, tenant: &Tenant, id: ErasureId) -> Result<ErasureScan>;
    /// Returns the keys with which receipts were ever signed.
    async fn keys(&self) -> Result<Vec<ReceiptKey>>;
    /// Signs what a caller has been shown, for a time; `None` without a master secret.
    fn sign_confirmation(&self, shown: &[u8]) -> Option<String>;
    /// Returns whether this is the signature of [`Self::sign_confirmation`].
    fn check_confirmation(&self, shown: &[u8], signature: &str) -> bool;
}
