//! A queue in memory that counts how each photo ends: for tests of the mechanics, which must hold whatever the store
//! answers. Tests of whole photos use the real store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use photofinish_store::photo::FailureReason;
use photofinish_store::traits::{Finish, Finished, Lease, LeaseRequest, Queue, Result};
use time::OffsetDateTime;

use crate::sync::lock;
use crate::testing::config;

/// As many as the service gives a photo.
const ATTEMPTS: u32 = 3;

/// Where a photo is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Waiting,
    Leased(LeaseId),
    Done,
    Failed(FailureReason),
}

#[derive(Debug)]
struct Row {
    place: Place,
    attempts: u32,
    ends: u32,
    /// When its lease lapses.
    until: Instant,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct MemoryQueue {
    rows: Mutex<HashMap<PhotoId, Row>>,
    changed: Condvar,
    /// So many calls are answered `Unavailable`.
    pub(crate) outage_calls: AtomicUsize,
    /// What stands beside the rows and offers their photos is away: the rows answer as ever, nothing can be leased.
    pub(crate) is_away: AtomicBool,
    /// How often it was asked whether photos can be leased.
    pub(crate) checks: AtomicUsize,
    /// The most photos that were leased at once while a suspect was.
    beside_a_suspect: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    /// Leases that nobody renews lapse; otherwise they hold for ever.
    pub(crate) lapses: AtomicBool,
}

impl MemoryQueue {
    /// A queue in which these photos wait.
    pub(crate) fn with(photos: &[PhotoId]) -> Arc<Self> {
        let queue = Self::default();
        for photo in photos {
            queue.put(*photo, 0);
        }
        Arc::new(queue)
    }

    /// Puts a photo in the queue, of which `attempts` leases ended without a word.
    pub(crate) fn put(&self, photo: PhotoId, attempts: u32) {
        let row = Row { place: Place::Waiting, attempts, ends: 0, until: Instant::now() };
        lock(&self.rows).insert(photo, row);
    }

    /// Waits until every photo has ended; whether that came in time.
    pub(crate) fn wait_until_ended(&self, at_most: Duration) -> bool {
        let is_open = |rows: &mut HashMap<PhotoId, Row>| {
            rows.values().any(|row| matches!(row.place, Place::Waiting | Place::Leased(_)))
        };
        let (mut rows, _timeout) =
            self.changed.wait_timeout_while(lock(&self.rows), at_most, is_open).unwrap();
        !is_open(&mut rows)
    }

    /// Where a photo is, and how often it ended.
    pub(crate) fn end_of(&self, photo: PhotoId) -> (Place, u32) {
        let rows = lock(&self.rows);
        (rows[&photo].place, rows[&photo].ends)
    }

    /// Photos that are leased.
    pub(crate) fn leased(&self) -> usize {
        lock(&self.rows).values().filter(|row| matches!(row.place, Place::Leased(_))).count()
    }

    /// The most photos that were ever leased beside a suspect.
    pub(crate) fn most_beside_a_suspect(&self) -> usize {
        self.beside_a_suspect.load(Ordering::Acquire)
    }

    fn serve(&self) -> Result<()> {
        let broken =
            self.outage_calls.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        match broken {
            Ok(_) => Err(StoreError::new(StoreErrorKind::Unavailable, "queue in memory")),
            Err(_) => Ok(()),
        }
    }

    fn offer(&self) -> Result<()> {
        self.serve()?;
        if !self.is_away.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut away = StoreError::new(StoreErrorKind::Unavailable, "queue beside the rows");
        away.of_queue = true;
        Err(away)
    }

    /// Puts photos back whose lease has lapsed, the attempt counted; the third is the last.
    fn lapse(&self, rows: &mut HashMap<PhotoId, Row>) {
        if !self.lapses.load(Ordering::Acquire) {
            return;
        }
        let now = Instant::now();
        for row in rows.values_mut().filter(|row| matches!(row.place, Place::Leased(_)) && row.until <= now) {
            if row.attempts < ATTEMPTS {
                row.place = Place::Waiting;
            } else {
                row.place = Place::Failed(FailureReason::ProcessingCrashed);
                row.ends += 1;
            }
        }
        self.changed.notify_all();
    }

    fn end(&self, lease: &Lease, place: Place) -> Finish {
        let mut rows = lock(&self.rows);
        let row = rows.get_mut(&lease.photo).unwrap();
        if row.place != Place::Leased(lease.id) {
            return Finish::Superseded;
        }
        row.place = place;
        row.ends += 1;
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
        self.offer()?;
        let mut rows = lock(&self.rows);
        self.lapse(&mut rows);
        let leased = rows.values().filter(|row| matches!(row.place, Place::Leased(_))).count();
        let mut leases = Vec::new();
        for (photo, row) in rows.iter_mut() {
            let wanted = row.place == Place::Waiting && (row.attempts > 0) == request.suspects;
            if !wanted || leases.len() == request.limit {
                continue;
            }
            let id = LeaseId::generate();
            row.place = Place::Leased(id);
            row.attempts += 1;
            row.until = Instant::now() + request.ttl;
            leases.push(Lease {
                id,
                photo: *photo,
                album: AlbumId::generate(),
                organization: OrganizationId::generate(),
                config: Arc::new(config()),
                attempt: row.attempts,
                confirmed_at: OffsetDateTime::now_utc(),
            });
        }
        if request.suspects && !leases.is_empty() {
            self.beside_a_suspect.fetch_max(leased, Ordering::AcqRel);
        }
        Ok(leases)
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        self.serve()?;
        for row in lock(&self.rows).values_mut() {
            if let Place::Leased(lease) = row.place
                && leases.contains(&lease)
            {
                row.until = Instant::now() + ttl;
            }
        }
        self.renewals.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
        Ok(leases.to_vec())
    }

    async fn finish(&self, photos: Vec<Finished>) -> Result<Vec<Finish>> {
        self.serve()?;
        Ok(photos.iter().map(|photo| self.end(&photo.lease, Place::Done)).collect())
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, _detail: &str) -> Result<Finish> {
        self.serve()?;
        Ok(self.end(lease, Place::Failed(reason)))
    }

    async fn give_back(&self, leases: &[LeaseId]) -> Result<()> {
        self.serve()?;
        let mut rows = lock(&self.rows);
        for row in rows.values_mut() {
            if let Place::Leased(lease) = row.place
                && leases.contains(&lease)
            {
                row.place = Place::Waiting;
                row.attempts -= 1;
            }
        }
        drop(rows);
        self.changed.notify_all();
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        self.checks.fetch_add(1, Ordering::AcqRel);
        self.offer()
    }

    async fn depth(&self) -> Result<u64> {
        unreachable!("the pipeline does not count photos that wait")
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        unreachable!("the pipeline does not ask how long photos wait")
    }
}
