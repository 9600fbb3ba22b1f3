//! A queue in memory that counts how each photo ends: for tests of the mechanics, which must hold whatever the store
//! answers. Tests of whole photos use the real store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::model::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use photofinish_store::model::photo::FailureReason;
use photofinish_store::traits::{Finish, Lease, LeaseRequest, PhotoResults, Queue, Result};
use time::OffsetDateTime;

use crate::engine::sync::lock;
use crate::testing::album_config;

/// As many as the service gives a photo.
const MAX_ATTEMPTS: u32 = 3;

/// Where a photo is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    Waiting,
    Leased(LeaseId),
    Done,
    Failed(FailureReason),
}

#[derive(Debug)]
struct QueueEntry {
    state: EntryState,
    attempts: u32,
    end_count: u32,
    /// When its lease lapses.
    lease_expires_at: Instant,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct MemoryQueue {
    entries: Mutex<HashMap<PhotoId, QueueEntry>>,
    changed: Condvar,
    /// So many calls are answered `Unavailable`.
    pub(crate) failing_calls: AtomicUsize,
    /// What stands beside the rows and offers their photos is away: the rows answer as ever, nothing can be leased.
    pub(crate) is_stream_down: AtomicBool,
    /// How often it was asked whether photos can be leased.
    pub(crate) check_count: AtomicUsize,
    /// The most photos that were leased at once while a suspect was.
    max_leased_beside_suspect: AtomicUsize,
    pub(crate) renewal_count: AtomicUsize,
    /// Leases that nobody renews lapse; otherwise they hold for ever.
    pub(crate) leases_expire: AtomicBool,
}

impl MemoryQueue {
    /// A queue in which these photos wait.
    pub(crate) fn with_photos(photos: &[PhotoId]) -> Arc<Self> {
        let queue = Self::default();
        for photo in photos {
            queue.add_photo(*photo, 0);
        }
        Arc::new(queue)
    }

    /// Puts a photo in the queue, of which `attempts` leases ended without a word.
    pub(crate) fn add_photo(&self, photo: PhotoId, attempts: u32) {
        let row = QueueEntry {
            state: EntryState::Waiting,
            attempts,
            end_count: 0,
            lease_expires_at: Instant::now(),
        };
        lock(&self.entries).insert(photo, row);
    }

    /// Waits until every photo has ended; whether that came in time.
    pub(crate) fn wait_until_ended(&self, at_most: Duration) -> bool {
        let is_open = |rows: &mut HashMap<PhotoId, QueueEntry>| {
            rows.values().any(|row| matches!(row.state, EntryState::Waiting | EntryState::Leased(_)))
        };
        let (mut rows, _timeout) =
            self.changed.wait_timeout_while(lock(&self.entries), at_most, is_open).unwrap();
        !is_open(&mut rows)
    }

    /// Where a photo is, and how often it ended.
    pub(crate) fn end_state(&self, photo: PhotoId) -> (EntryState, u32) {
        let rows = lock(&self.entries);
        (rows[&photo].state, rows[&photo].end_count)
    }

    /// Photos that are leased.
    pub(crate) fn leased_count(&self) -> usize {
        lock(&self.entries).values().filter(|row| matches!(row.state, EntryState::Leased(_))).count()
    }

    /// The most photos that were ever leased beside a suspect.
    pub(crate) fn max_leased_beside_suspect(&self) -> usize {
        self.max_leased_beside_suspect.load(Ordering::Acquire)
    }

    fn check_available(&self) -> Result<()> {
        let broken =
            self.failing_calls.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        match broken {
            Ok(_) => Err(StoreError::new(StoreErrorKind::Unavailable, "queue in memory")),
            Err(_) => Ok(()),
        }
    }

    fn check_leasable(&self) -> Result<()> {
        self.check_available()?;
        if !self.is_stream_down.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut away = StoreError::new(StoreErrorKind::Unavailable, "queue beside the rows");
        away.is_from_queue = true;
        Err(away)
    }

    /// Puts photos back whose lease has lapsed, the attempt counted; the third is the last.
    fn expire_leases(&self, rows: &mut HashMap<PhotoId, QueueEntry>) {
        if !self.leases_expire.load(Ordering::Acquire) {
            return;
        }
        let now = Instant::now();
        for row in rows
            .values_mut()
            .filter(|row| matches!(row.state, EntryState::Leased(_)) && row.lease_expires_at <= now)
        {
            if row.attempts < MAX_ATTEMPTS {
                row.state = EntryState::Waiting;
            } else {
                row.state = EntryState::Failed(FailureReason::ProcessingCrashed);
                row.end_count += 1;
            }
        }
        self.changed.notify_all();
    }

    fn end_photo(&self, lease: &Lease, place: EntryState) -> Finish {
        let mut rows = lock(&self.entries);
        let row = rows.get_mut(&lease.photo).unwrap();
        if row.state != EntryState::Leased(lease.id) {
            return Finish::Superseded;
        }
        row.state = place;
        row.end_count += 1;
        drop(rows);
        self.changed.notify_all();
        Finish::Done
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn confirm(&self, _album: AlbumId, _photos: &[PhotoId]) -> Result<Vec<PhotoId>> {
        unreachable!("the pipeline confirms nothing")
    }

    async fn retry(&self, _album: AlbumId, _photo: PhotoId) -> Result<()> {
        unreachable!("the pipeline retries nothing")
    }

    async fn reprocess(&self, _album: AlbumId) -> Result<u64> {
        unreachable!("the pipeline reprocesses nothing")
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        self.check_leasable()?;
        let mut rows = lock(&self.entries);
        self.expire_leases(&mut rows);
        let leased = rows.values().filter(|row| matches!(row.state, EntryState::Leased(_))).count();
        let mut leases = Vec::new();
        for (photo, row) in rows.iter_mut() {
            let wanted = row.state == EntryState::Waiting && (row.attempts > 0) == request.suspects;
            if !wanted || leases.len() == request.limit {
                continue;
            }
            let id = LeaseId::generate();
            row.state = EntryState::Leased(id);
            row.attempts += 1;
            row.lease_expires_at = Instant::now() + request.ttl;
            leases.push(Lease {
                id,
                photo: *photo,
                album: AlbumId::generate(),
                organization: OrganizationId::generate(),
                config: Arc::new(album_config()),
                attempt: row.attempts,
                confirmed_at: OffsetDateTime::now_utc(),
            });
        }
        if request.suspects && !leases.is_empty() {
            self.max_leased_beside_suspect.fetch_max(leased, Ordering::AcqRel);
        }
        Ok(leases)
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        self.check_available()?;
        for row in lock(&self.entries).values_mut() {
            if let EntryState::Leased(lease) = row.state
                && leases.contains(&lease)
            {
                row.lease_expires_at = Instant::now() + ttl;
            }
        }
        self.renewal_count.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
        Ok(leases.to_vec())
    }

    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<Finish>> {
        self.check_available()?;
        Ok(photos.iter().map(|photo| self.end_photo(&photo.lease, EntryState::Done)).collect())
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, _detail: &str) -> Result<Finish> {
        self.check_available()?;
        Ok(self.end_photo(lease, EntryState::Failed(reason)))
    }

    async fn release(&self, leases: &[LeaseId]) -> Result<()> {
        self.check_available()?;
        let mut rows = lock(&self.entries);
        for row in rows.values_mut() {
            if let EntryState::Leased(lease) = row.state
                && leases.contains(&lease)
            {
                row.state = EntryState::Waiting;
                row.attempts -= 1;
            }
        }
        drop(rows);
        self.changed.notify_all();
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        self.check_count.fetch_add(1, Ordering::AcqRel);
        self.check_leasable()
    }

    async fn depth(&self) -> Result<u64> {
        unreachable!("the pipeline does not count photos that wait")
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        unreachable!("the pipeline does not ask how long photos wait")
    }
}
