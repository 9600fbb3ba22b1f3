//! A queue in memory that counts how often each photo ends, for tests of the engine with failures of the queue. Tests of
//! whole photos use the real store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::model::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use photofinish_store::model::photo::FailureReason;
use photofinish_store::traits::{
    ConfirmedUploads, FinishOutcome, Lease, LeaseKind, LeaseRequest, PhotoResults, Queue, Reprocessed,
    Result, Upload,
};
use time::OffsetDateTime;

use crate::engine::sync::lock;
use crate::testing::album_config;

/// The limit of attempts per photo, the same as in the service.
const MAX_ATTEMPTS: u32 = 3;

/// The state of a photo in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    Waiting,
    Leased(LeaseId),
    Done,
    Failed(FailureReason),
}

/// A first lease of a photo that no queue knows.
pub(crate) fn new_lease(photo: PhotoId) -> Lease {
    Lease {
        id: LeaseId::generate(),
        photo,
        album: AlbumId::generate(),
        organization: OrganizationId::generate(),
        config: Arc::new(album_config()),
        attempt: 1,
        confirmed_at: OffsetDateTime::now_utc(),
        erased_places: Vec::new(),
        watermark_version: 0,
        spent: Arc::default(),
    }
}

#[derive(Debug)]
struct QueueEntry {
    state: EntryState,
    attempts: u32,
    /// How often the photo was finished or failed.
    end_count: u32,
    lease_expires_at: Instant,
    /// The number of its last lease among all leases of the queue.
    lease_number: usize,
    /// The other photos that were leased then.
    leased_beside: usize,
}

/// The queue. All photos have one owner.
#[derive(Debug)]
pub(crate) struct MemoryQueue {
    organization: OrganizationId,
    entries: Mutex<HashMap<PhotoId, QueueEntry>>,
    changed: Condvar,
    /// The number of calls that still return `Unavailable`.
    pub(crate) failing_calls: AtomicUsize,
    /// The number of calls of [`Queue::release`] that still return `Unavailable`.
    pub(crate) failing_releases: AtomicUsize,
    /// Whether the work stream beside the database is down: the database responds, but nothing can be leased.
    pub(crate) is_stream_down: AtomicBool,
    /// The number of calls of [`Queue::check`].
    pub(crate) check_count: AtomicUsize,
    /// The number of leases so far.
    lease_count: AtomicUsize,
    /// The most other photos that were leased while a crash suspect was, from its last lease to its end.
    max_leased_beside_suspect: AtomicUsize,
    pub(crate) renewal_count: AtomicUsize,
    /// The number of leases that were released.
    pub(crate) release_count: AtomicUsize,
    /// Whether leases expire that are not renewed; otherwise they are valid forever.
    pub(crate) leases_expire: AtomicBool,
    /// Whether [`Queue::check`] never responds.
    pub(crate) is_silent: AtomicBool,
    /// Whether [`Queue::has_waiting_beside`] tells of others, which a lease then does not bring: it is not their turn.
    pub(crate) says_others_wait: AtomicBool,
}

impl Default for MemoryQueue {
    fn default() -> Self {
        Self {
            organization: OrganizationId::generate(),
            entries: Mutex::default(),
            changed: Condvar::new(),
            failing_calls: AtomicUsize::default(),
            failing_releases: AtomicUsize::default(),
            is_stream_down: AtomicBool::default(),
            check_count: AtomicUsize::default(),
            lease_count: AtomicUsize::default(),
            max_leased_beside_suspect: AtomicUsize::default(),
            renewal_count: AtomicUsize::default(),
            release_count: AtomicUsize::default(),
            leases_expire: AtomicBool::default(),
            is_silent: AtomicBool::default(),
            says_others_wait: AtomicBool::default(),
        }
    }
}

impl MemoryQueue {
    /// Creates a queue in which these photos wait.
    pub(crate) fn with_photos(photos: &[PhotoId]) -> Arc<Self> {
        let queue = Self::default();
        for photo in photos {
            queue.add_photo(*photo, 0);
        }
        Arc::new(queue)
    }

    /// Adds a photo that `attempts` workers have crashed with.
    pub(crate) fn add_photo(&self, photo: PhotoId, attempts: u32) {
        let entry = QueueEntry {
            state: EntryState::Waiting,
            attempts,
            end_count: 0,
            lease_expires_at: Instant::now(),
            lease_number: 0,
            leased_beside: 0,
        };
        lock(&self.entries).insert(photo, entry);
    }

    /// Waits until every photo has ended, at most `timeout`. Returns whether they have.
    pub(crate) fn wait_until_ended(&self, timeout: Duration) -> bool {
        let is_open = |entries: &mut HashMap<PhotoId, QueueEntry>| {
            entries.values().any(|entry| matches!(entry.state, EntryState::Waiting | EntryState::Leased(_)))
        };
        let (mut entries, _timeout) =
            self.changed.wait_timeout_while(lock(&self.entries), timeout, is_open).unwrap();
        !is_open(&mut entries)
    }

    /// Returns the state of a photo, and how often it ended.
    pub(crate) fn end_state(&self, photo: PhotoId) -> (EntryState, u32) {
        let entries = lock(&self.entries);
        (entries[&photo].state, entries[&photo].end_count)
    }

    /// Returns the number of attempts that a photo has had.
    pub(crate) fn attempts(&self, photo: PhotoId) -> u32 {
        lock(&self.entries)[&photo].attempts
    }

    /// Returns the number of photos that are leased.
    pub(crate) fn leased_count(&self) -> usize {
        count_leased(&lock(&self.entries))
    }

    /// Returns the most other photos that were leased while a crash suspect was, from its last lease to its end.
    pub(crate) fn max_leased_beside_suspect(&self) -> usize {
        self.max_leased_beside_suspect.load(Ordering::Acquire)
    }

    fn check_available(&self) -> Result<()> {
        Self::count_down(&self.failing_calls)
    }

    /// Fails as long as calls are left that fail.
    fn count_down(failing: &AtomicUsize) -> Result<()> {
        match failing.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)) {
            Ok(_) => Err(StoreError::new(StoreErrorKind::Unavailable, "queue in memory")),
            Err(_) => Ok(()),
        }
    }

    fn check_leasable(&self) -> Result<()> {
        self.check_available()?;
        if !self.is_stream_down.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut error = StoreError::new(StoreErrorKind::Unavailable, "work stream");
        error.is_from_queue = true;
        Err(error)
    }

    /// Makes photos with an expired lease wait again, or fails those that have no attempts left.
    fn expire_leases(&self, entries: &mut HashMap<PhotoId, QueueEntry>) {
        if !self.leases_expire.load(Ordering::Acquire) {
            return;
        }
        let now = Instant::now();
        for entry in entries
            .values_mut()
            .filter(|entry| matches!(entry.state, EntryState::Leased(_)) && entry.lease_expires_at <= now)
        {
            if entry.attempts < MAX_ATTEMPTS {
                entry.state = EntryState::Waiting;
            } else {
                entry.state = EntryState::Failed(FailureReason::ProcessingCrashed);
                entry.end_count += 1;
            }
        }
        self.changed.notify_all();
    }

    fn end_photo(&self, lease: &Lease, state: EntryState) -> FinishOutcome {
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(&lease.photo).unwrap();
        if entry.state != EntryState::Leased(lease.id) {
            return FinishOutcome::Superseded;
        }
        entry.state = state;
        entry.end_count += 1;
        if entry.attempts > 1 {
            let later = self.lease_count.load(Ordering::Acquire) - entry.lease_number;
            self.max_leased_beside_suspect.fetch_max(entry.leased_beside + later, Ordering::AcqRel);
        }
        drop(entries);
        self.changed.notify_all();
        FinishOutcome::Done
    }
}

fn count_leased(entries: &HashMap<PhotoId, QueueEntry>) -> usize {
    entries.values().filter(|entry| matches!(entry.state, EntryState::Leased(_))).count()
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn confirm_uploads(&self, _album: AlbumId, _uploads: &[Upload]) -> Result<ConfirmedUploads> {
        unreachable!("the pipeline confirms no photos")
    }

    async fn retry(&self, _album: AlbumId, _photo: PhotoId) -> Result<()> {
        unreachable!("the pipeline retries no photos")
    }

    async fn reprocess(&self, _album: AlbumId) -> Result<Reprocessed> {
        unreachable!("the pipeline reprocesses no albums")
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        self.check_leasable()?;
        let mut entries = lock(&self.entries);
        self.expire_leases(&mut entries);
        let leased_before = count_leased(&entries);
        let mut leases = Vec::new();
        for (photo, entry) in entries.iter_mut() {
            let is_requested = entry.state == EntryState::Waiting
                && (entry.attempts > 0) == (request.kind == LeaseKind::CrashSuspect);
            if !is_requested || leases.len() == request.limit {
                continue;
            }
            let id = LeaseId::generate();
            entry.state = EntryState::Leased(id);
            entry.attempts += 1;
            entry.lease_expires_at = Instant::now() + request.ttl;
            entry.lease_number = self.lease_count.fetch_add(1, Ordering::AcqRel) + 1;
            entry.leased_beside = leased_before + leases.len();
            leases.push(Lease {
                id,
                organization: self.organization,
                attempt: entry.attempts,
                ..new_lease(*photo)
            });
        }
        Ok(leases)
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        self.check_available()?;
        for entry in lock(&self.entries).values_mut() {
            if let EntryState::Leased(lease) = entry.state
                && leases.contains(&lease)
            {
                entry.lease_expires_at = Instant::now() + ttl;
            }
        }
        self.renewal_count.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
        Ok(leases.to_vec())
    }

    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<FinishOutcome>> {
        self.check_available()?;
        Ok(photos.iter().map(|photo| self.end_photo(&photo.lease, EntryState::Done)).collect())
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, _detail: &str) -> Result<FinishOutcome> {
        self.check_available()?;
        Ok(self.end_photo(lease, EntryState::Failed(reason)))
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        self.check_available()?;
        Self::count_down(&self.failing_releases)?;
        let mut entries = lock(&self.entries);
        for entry in entries.values_mut() {
            if let EntryState::Leased(lease) = entry.state
                && leases.iter().any(|released| released.id == lease)
            {
                entry.state = EntryState::Waiting;
                entry.attempts -= 1;
                self.release_count.fetch_add(1, Ordering::AcqRel);
            }
        }
        drop(entries);
        self.changed.notify_all();
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        self.check_count.fetch_add(1, Ordering::AcqRel);
        if self.is_silent.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
        self.check_leasable()
    }

    async fn depth(&self) -> Result<u64> {
        unreachable!("the pipeline does not read the depth of the queue")
    }

    async fn has_waiting_beside(&self, _organizations: &[OrganizationId]) -> Result<bool> {
        self.check_available()?;
        Ok(self.says_others_wait.load(Ordering::Acquire))
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        unreachable!("the pipeline does not read the age of the queue")
    }
}
