//! Parts of a store whose calls tests of tasks see and hold up.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use photofinish_store::model::album::Tenant;
use photofinish_store::model::cost::{
    CostQuery, CostRow, CostWeights, PhotoCost, SearchCosts, StoredObjects,
};
use photofinish_store::model::erasure::{
    AgeingAlbum, Erasure, ErasurePage, ErasurePreview, ErasureQuery, ErasureScan, ExpiringPart, LedgerFate,
    NewErasure, OrganizationReceipt, ReceiptKey,
};
use photofinish_store::model::ids::{AlbumId, ErasureId, KeyId, OrganizationId, PhotoId, ProcessId};
use photofinish_store::model::process::Process;
use photofinish_store::model::watermark::{AlbumToMark, MarkedPhoto, Watermark, WatermarkChange};
use photofinish_store::traits::{Costs, Erasures, Processes, Result, Watermarks};
use photofinish_store::{Store, StoreError, StoreErrorKind};
use time::OffsetDateTime;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// How long a test waits for a call.
pub const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// What a process has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    pub reports: u32,
    pub is_removed: bool,
}

/// Counts reports in place of storing them.
pub struct CountedReports(watch::Sender<Reported>);

impl CountedReports {
    /// Replaces those of a store.
    pub fn install(store: &mut Store) -> Arc<Self> {
        let counted = Arc::new(Self(watch::Sender::new(Reported { reports: 0, is_removed: false })));
        store.processes = counted.clone();
        counted
    }

    pub fn now(&self) -> Reported {
        *self.0.borrow()
    }

    /// Waits for another report than those that came before.
    pub async fn wait_for_another(&self) {
        let before = self.now().reports;
        let mut reported = self.0.subscribe();
        let another = reported.wait_for(|reported| reported.reports > before);
        let another = timeout(WAIT_LIMIT, another).await.expect("the process reports");
        assert!(another.is_ok());
    }
}

#[async_trait]
impl Processes for CountedReports {
    async fn report(&self, _process: &Process) -> Result<()> {
        self.0.send_modify(|reported| reported.reports += 1);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<Process>> {
        Ok(Vec::new())
    }

    async fn remove(&self, _id: ProcessId) -> Result<()> {
        self.0.send_modify(|reported| reported.is_removed = true);
        Ok(())
    }
}

/// Costs of searches that are written when a test lets them: as a database that responds late.
pub struct HeldCosts {
    costs: Arc<dyn Costs>,
    begun: Semaphore,
    may_end: Semaphore,
    written: AtomicU32,
}

impl HeldCosts {
    /// Replaces those of a store.
    pub fn install(store: &mut Store) -> Arc<Self> {
        let held = Arc::new(Self {
            costs: Arc::clone(&store.costs),
            begun: Semaphore::new(0),
            may_end: Semaphore::new(0),
            written: AtomicU32::new(0),
        });
        store.costs = held.clone();
        held
    }

    /// Waits until they are being written.
    pub async fn wait_until_begun(&self) {
        let begun = timeout(WAIT_LIMIT, self.begun.acquire()).await.expect("costs are written");
        begun.expect("nobody closes it").forget();
    }

    /// Lets one write end, now or later.
    pub fn let_one_end(&self) {
        self.may_end.add_permits(1);
    }

    /// How many writes have ended.
    pub fn written(&self) -> u32 {
        self.written.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Costs for HeldCosts {
    async fn costs(&self, tenant: &Tenant, query: CostQuery) -> Result<Vec<CostRow>> {
        self.costs.costs(tenant, query).await
    }

    async fn stored(&self, tenant: &Tenant, album: Option<AlbumId>) -> Result<StoredObjects> {
        self.costs.stored(tenant, album).await
    }

    async fn dearest(
        &self,
        album: AlbumId,
        newest: u32,
        weights: CostWeights,
        limit: u32,
    ) -> Result<Vec<PhotoCost>> {
        self.costs.dearest(album, newest, weights, limit).await
    }

    async fn owner_of(&self, album: AlbumId) -> Result<Option<Tenant>> {
        self.costs.owner_of(album).await
    }

    fn searches(&self) -> &SearchCosts {
        self.costs.searches()
    }

    async fn flush_searches(&self) -> Result<()> {
        self.begun.add_permits(1);
        self.may_end.acquire().await.expect("nobody closes it").forget();
        self.written.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Watermarks that tell whether somebody looks for those to be drawn.
pub struct WatchedMarking {
    watermarks: Arc<dyn Watermarks>,
    asked: Semaphore,
    /// The albums whose photos were looked for, batch by batch.
    marked: Mutex<Vec<AlbumId>>,
    /// The album whose next batch fails.
    pub failing: Mutex<Option<AlbumId>>,
    /// The listing of albums that fails, counted from 1.
    pub failing_listing: AtomicUsize,
}

impl WatchedMarking {
    /// Replaces those of a store.
    pub fn install(store: &mut Store) -> Arc<Self> {
        let (watermarks, asked) = (Arc::clone(&store.watermarks), Semaphore::new(0));
        let (marked, failing, failing_listing) = Default::default();
        let watched = Arc::new(Self { watermarks, asked, marked, failing, failing_listing });
        store.watermarks = watched.clone();
        watched
    }

    /// Waits until somebody looks.
    pub async fn wait_until_asked(&self) {
        let asked = timeout(WAIT_LIMIT, self.asked.acquire()).await.expect("somebody looks");
        asked.expect("nobody closes it").forget();
    }

    /// Returns the albums of all batches, in their order.
    pub fn marked_albums(&self) -> Vec<AlbumId> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Watermarks for WatchedMarking {
    async fn get(&self, album: AlbumId) -> Result<Option<Watermark>> {
        self.watermarks.get(album).await
    }

    async fn version(&self, album: AlbumId) -> Result<i64> {
        self.watermarks.version(album).await
    }

    async fn set(&self, album: AlbumId, change: WatermarkChange) -> Result<Watermark> {
        self.watermarks.set(album, change).await
    }

    async fn remove(&self, album: AlbumId) -> Result<()> {
        self.watermarks.remove(album).await
    }

    async fn count_unmarked(&self, album: AlbumId, version: i64) -> Result<u64> {
        self.watermarks.count_unmarked(album, version).await
    }

    async fn find_marked(&self, album: AlbumId) -> Result<Option<PhotoId>> {
        self.watermarks.find_marked(album).await
    }

    async fn list_albums_to_mark(&self) -> Result<Vec<AlbumToMark>> {
        self.asked.add_permits(1);
        if self.asked.available_permits() == self.failing_listing.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "list albums"));
        }
        self.watermarks.list_albums_to_mark().await
    }

    async fn list_unmarked(
        &self,
        album: AlbumId,
        version: i64,
        after: Option<PhotoId>,
        limit: u32,
    ) -> Result<Vec<PhotoId>> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).push(album);
        self.watermarks.list_unmarked(album, version, after, limit).await
    }

    async fn note_marked(&self, album: AlbumId, photos: &[MarkedPhoto], version: i64) -> Result<()> {
        if self.failing.lock().expect("nobody has panicked").take_if(|failing| *failing == album).is_some() {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "note marked photos"));
        }
        self.watermarks.note_marked(album, photos, version).await
    }

    async fn note_all_marked(&self, done: AlbumToMark) -> Result<()> {
        self.watermarks.note_all_marked(done).await
    }
}

/// Erasures whose objects are deleted when a test lets them: as of an album with many.
pub struct HeldErasures {
    erasures: Arc<dyn Erasures>,
    begun: Semaphore,
    may_end: Semaphore,
    removals: AtomicU32,
    finished: Mutex<Vec<ErasureId>>,
}

impl HeldErasures {
    /// Replaces those of a store.
    pub fn install(store: &mut Store) -> Arc<Self> {
        let held = Arc::new(Self {
            erasures: Arc::clone(&store.erasures),
            begun: Semaphore::new(0),
            may_end: Semaphore::new(0),
            removals: AtomicU32::new(0),
            finished: Mutex::default(),
        });
        store.erasures = held.clone();
        held
    }

    /// Waits until objects are being deleted.
    pub async fn wait_until_removing(&self) {
        let begun = timeout(WAIT_LIMIT, self.begun.acquire()).await.expect("objects are deleted");
        begun.expect("nobody closes it").forget();
    }

    /// Lets one deletion end, now or later.
    pub fn let_one_end(&self) {
        self.may_end.add_permits(1);
    }

    /// How many deletions have begun.
    pub fn removals(&self) -> u32 {
        self.removals.load(Ordering::SeqCst)
    }

    /// What was to be finished, in order.
    pub fn finished(&self) -> Vec<ErasureId> {
        self.finished.lock().expect("nobody has panicked").clone()
    }
}

#[async_trait]
impl Erasures for HeldErasures {
    fn can_sign(&self) -> bool {
        self.erasures.can_sign()
    }

    async fn has_old_processes(&self) -> Result<bool> {
        self.erasures.has_old_processes().await
    }

    async fn read_clock(&self) -> Result<i64> {
        self.erasures.read_clock().await
    }

    async fn has_vectors(&self, album: AlbumId) -> Result<bool> {
        self.erasures.has_vectors(album).await
    }

    async fn preview(&self, erasure: &NewErasure) -> Result<ErasurePreview> {
        self.erasures.preview(erasure).await
    }

    async fn begin(&self, erasure: NewErasure) -> Result<ErasureId> {
        self.erasures.begin(erasure).await
    }

    async fn begin_photo(
        &self,
        tenant: &Tenant,
        album: AlbumId,
        photo: PhotoId,
        asked_by: KeyId,
    ) -> Result<ErasureId> {
        self.erasures.begin_photo(tenant, album, photo, asked_by).await
    }

    async fn begin_album(&self, tenant: &Tenant, album: AlbumId, asked_by: KeyId) -> Result<ErasureId> {
        self.erasures.begin_album(tenant, album, asked_by).await
    }

    async fn erase_organization(
        &self,
        organization: OrganizationId,
        ledger: LedgerFate,
    ) -> Result<OrganizationReceipt> {
        self.erasures.erase_organization(organization, ledger).await
    }

    async fn forget_organization(&self, organization: OrganizationId) -> Result<()> {
        self.erasures.forget_organization(organization).await
    }

    async fn begin_expired(&self, album: &AgeingAlbum, part: ExpiringPart) -> Result<ErasureId> {
        self.erasures.begin_expired(album, part).await
    }

    async fn list_ageing(&self, after: Option<AlbumId>) -> Result<Vec<AgeingAlbum>> {
        self.erasures.list_ageing(after).await
    }

    async fn get_ageing(&self, tenant: &Tenant, album: AlbumId) -> Result<AgeingAlbum> {
        self.erasures.get_ageing(tenant, album).await
    }

    async fn tell_expiring(&self, album: &AgeingAlbum, part: ExpiringPart, at: OffsetDateTime) -> Result<()> {
        self.erasures.tell_expiring(album, part, at).await
    }

    async fn remove_objects(&self, id: ErasureId) -> Result<Erasure> {
        self.removals.fetch_add(1, Ordering::SeqCst);
        self.begun.add_permits(1);
        self.may_end.acquire().await.expect("nobody closes it").forget();
        self.erasures.remove_objects(id).await
    }

    async fn finish(&self, ids: &[ErasureId]) -> Result<u64> {
        self.finished.lock().expect("nobody has panicked").extend(ids);
        self.erasures.finish(ids).await
    }

    async fn list_running(&self, after: Option<ErasureId>) -> Result<Vec<ErasureId>> {
        self.erasures.list_running(after).await
    }

    async fn get(&self, tenant: &Tenant, id: ErasureId) -> Result<Erasure> {
        self.erasures.get(tenant, id).await
    }

    async fn list(&self, tenant: &Tenant, query: ErasureQuery) -> Result<ErasurePage> {
        self.erasures.list(tenant, query).await
    }

    async fn verify(&self, tenant: &Tenant, id: ErasureId) -> Result<ErasureScan> {
        self.erasures.verify(tenant, id).await
    }

    async fn keys(&self) -> Result<Vec<ReceiptKey>> {
        self.erasures.keys().await
    }

    fn sign_confirmation(&self, shown: &[u8]) -> Option<String> {
        self.erasures.sign_confirmation(shown)
    }

    fn check_confirmation(&self, shown: &[u8], signature: &str) -> bool {
        self.erasures.check_confirmation(shown, signature)
    }
}
