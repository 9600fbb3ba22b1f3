//! The work queue: the states of photos, in the same rows as the photos.

pub(crate) mod fair_share;
pub(crate) mod finish;
pub(crate) mod group_commit;
pub(crate) mod lease;
pub(crate) mod outbox;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use super::{Database, Statement, query};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::sql::dialect::LeaseWindow;
use crate::sql::queue::finish::{fail_leased_photo, finish_photos};
use crate::sql::queue::group_commit::GroupCommit;
use crate::sql::queue::lease::SuspectLease;
use crate::sql::row_types::{from_micros, micros_after};
use crate::traits::{
    Finish, Lease, LeaseRequest, Named, OutboxQueue, PhotoRef, PhotoResults, Queue, Result, UnpublishedPhoto,
};

/// Each half reads one partial index: the fresh, and the suspects without a running lease.
pub(crate) const DEPTH: &str = "select (select count(*) from photo where state = 'queued' and attempts = 0) \
     + (select count(*) from photo where state in ('queued', 'processing') and attempts > 0 \
     and lease_until <= $1)";

/// One probe of the index for each album with fresh photos, however many photos wait.
pub(crate) const WAITING_SINCE: &str = "with recursive waiting (album) as ( \
     select (select album from photo where state = 'queued' and attempts = 0 order by album limit 1) \
     union all \
     select (select photo.album from photo where state = 'queued' and attempts = 0 \
     and photo.album > waiting.album order by photo.album limit 1) from waiting where waiting.album is not null) \
     select min((select confirmed_at from photo where state = 'queued' and attempts = 0 \
     and photo.album = waiting.album order by confirmed_at limit 1)) from waiting";

/// Photos that wait have no lease that could lapse.
pub(crate) const RECLAIM_LEASES: &str = "update photo set lease_until = 0 \
     where state in ('queued', 'processing') and attempts > 0 and lease_until > 0";

/// Ready and failed photos go back to the queue; what was seen stays searchable until the new reading replaces it.
macro_rules! queue_again {
    () => {
        "update photo set state = 'queued', failure = null, failure_detail = null, settled_at = null, \
         confirmed_at = $2, updated_at = $2, published_at = null where album = $1 "
    };
}

const RETRY: &str = concat!(queue_again!(), "and id = $3");

macro_rules! settled {
    () => {
        "select id from photo where album = $1 and state in ('ready', 'failed') and id > $3 \
         order by id limit $4"
    };
}

pub(crate) const REPROCESS: Statement = Statement::PerDialect {
    sqlite: concat!(queue_again!(), "and id in (", settled!(), ") returning id"),
    postgres: concat!(
        "with settled as materialized (",
        settled!(),
        " for no key update) ",
        queue_again!(),
        "and id in (select id from settled) returning id"
    ),
};

/// How many photos are queued again in one transaction. A hundred thousand at once would keep every confirmation waiting
/// for seconds.
const REPROCESS_BATCH: i64 = 2000;

pub(crate) struct SqlQueue {
    database: Database,
    group_commit: Arc<GroupCommit>,
    attempt_limit: u32,
    /// Whether running leases have to lapse before the next one.
    reclaim_scheduled: Mutex<bool>,
    /// The album that was served last; the next lease begins after it.
    lease_cursor: Mutex<Option<AlbumId>>,
    /// The same for photos to publish.
    publish_cursor: Mutex<Option<AlbumId>>,
}

impl SqlQueue {
    /// Starts the task that commits confirmations; it ends with the queue.
    pub(crate) fn start(database: Database, attempt_limit: u32) -> Self {
        let group_commit = GroupCommit::start(database.clone());
        let (lease_cursor, publish_cursor) = (Mutex::default(), Mutex::default());
        Self {
            database,
            group_commit,
            attempt_limit,
            reclaim_scheduled: Mutex::default(),
            lease_cursor,
            publish_cursor,
        }
    }

    /// Lets every running lease lapse now; answers how many. Their photos are suspects: the process that held them
    /// ended without a word.
    pub(crate) async fn reclaim_leases(&self) -> Result<u64> {
        const OPERATION: &str = "reclaim leases";
        let mut transaction = self.database.write(OPERATION).await?;
        let reclaimed = query(OPERATION, RECLAIM_LEASES).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await?;
        Ok(reclaimed)
    }

    /// As [`Self::reclaim`], when next photos are leased; until it has come through none are.
    pub(crate) async fn schedule_reclaim(&self) {
        *self.reclaim_scheduled.lock().await = true;
    }

    async fn run_scheduled_reclaim(&self) -> Result<()> {
        let mut reclaims = self.reclaim_scheduled.lock().await;
        if *reclaims {
            let reclaimed = self.reclaim_leases().await?;
            *reclaims = false;
            tracing::info!(reclaimed, "photos left in processing can be leased again");
        }
        Ok(())
    }

    async fn lease_fresh(&self, limit: usize, ttl: Duration) -> Result<Vec<Lease>> {
        const OPERATION: &str = "lease photos";
        let mut served = self.lease_cursor.lock().await;
        let mut transaction = self.database.write(OPERATION).await?;
        // The clock after the wait for the lock: no lease begins in the past.
        let now = transaction.read_clock(OPERATION).await?;
        let term = LeaseWindow { now, until: micros_after(now, ttl) };
        let leases = lease::lease_fresh(&mut transaction, limit, term, &mut served).await?;
        transaction.commit(OPERATION).await?;
        Ok(leases)
    }

    async fn lease_suspect(&self, ttl: Duration) -> Result<Option<Lease>> {
        const OPERATION: &str = "lease a suspect";
        loop {
            let mut transaction = self.database.write(OPERATION).await?;
            let now = transaction.read_clock(OPERATION).await?;
            let term = LeaseWindow { now, until: micros_after(now, ttl) };
            let suspect = lease::lease_suspect(&mut transaction, self.attempt_limit, term).await?;
            transaction.commit(OPERATION).await?;
            match suspect {
                SuspectLease::None => return Ok(None),
                SuspectLease::Leased(lease) => return Ok(Some(lease)),
                SuspectLease::Failed => {}
            }
        }
    }
}

#[async_trait]
impl Queue for SqlQueue {
    async fn confirm(&self, album: AlbumId, photos: &[PhotoId]) -> Result<Vec<PhotoId>> {
        self.group_commit.confirm(album, photos.to_vec()).await
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        const OPERATION: &str = "retry a photo";
        let key = PhotoRef { album, photo };
        let mut transaction = self.database.write(OPERATION).await?;
        let held = transaction.queue_writes().lock_photos(&[key]).await?;
        let state = held.get(&key).map(|standing| standing.state);
        if state != Some(PhotoState::Failed) {
            // Not by the transaction's end of scope, which comes a moment later: leasing passes over a row that is held.
            transaction.rollback(OPERATION).await?;
            let state = state.ok_or_else(|| StoreError::not_found(format!("photo {photo}")))?;
            let what = format!("photo {photo} is {}", state.as_str());
            return Err(StoreError::new(StoreErrorKind::Conflict, what));
        }
        let now = transaction.read_clock(OPERATION).await?;
        query(OPERATION, RETRY).bind(album).bind(now).bind(photo).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }

    /// In steps: a call that broke off half-way is finished by calling it again.
    async fn reprocess(&self, album: AlbumId) -> Result<u64> {
        const OPERATION: &str = "reprocess an album";
        let mut queued = 0;
        let mut after = PhotoId(uuid::Uuid::nil());
        loop {
            let mut transaction = self.database.write(OPERATION).await?;
            let now = transaction.read_clock(OPERATION).await?;
            let ids: Vec<(PhotoId,)> = query(OPERATION, REPROCESS)
                .bind(album)
                .bind(now)
                .bind(after)
                .bind(REPROCESS_BATCH)
                .fetch_all(&mut transaction)
                .await?;
            transaction.commit(OPERATION).await?;
            queued += ids.len() as u64;
            // Onwards by id: a photo that is ready again meanwhile is not queued twice.
            match ids.iter().max() {
                Some((last,)) if ids.len() as i64 == REPROCESS_BATCH => after = *last,
                _ => return Ok(queued),
            }
        }
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        self.run_scheduled_reclaim().await?;
        if request.suspects {
            return Ok(self.lease_suspect(request.ttl).await?.into_iter().collect());
        }
        self.lease_fresh(request.limit, request.ttl).await
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        const OPERATION: &str = "renew leases";
        let mut transaction = self.database.write(OPERATION).await?;
        let until = micros_after(transaction.read_clock(OPERATION).await?, ttl);
        let running = transaction.queue_writes().renew_leases(leases, until).await?;
        transaction.commit(OPERATION).await?;
        Ok(leases.iter().copied().filter(|lease| running.contains(lease)).collect())
    }

    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<Finish>> {
        const OPERATION: &str = "finish photos";
        let mut transaction = self.database.write(OPERATION).await?;
        let answers = finish_photos(&mut transaction, &photos).await?;
        transaction.commit(OPERATION).await?;
        Ok(answers)
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<Finish> {
        const OPERATION: &str = "fail a photo";
        let mut transaction = self.database.write(OPERATION).await?;
        let answer = fail_leased_photo(&mut transaction, lease, reason, detail).await?;
        transaction.commit(OPERATION).await?;
        Ok(answer)
    }

    async fn release(&self, leases: &[LeaseId]) -> Result<()> {
        const OPERATION: &str = "give photos back";
        let mut transaction = self.database.write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        transaction.queue_writes().release_leases(leases, now).await?;
        transaction.commit(OPERATION).await
    }

    async fn check(&self) -> Result<()> {
        self.database.check().await
    }

    async fn depth(&self) -> Result<u64> {
        const OPERATION: &str = "count the queue";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let now = snapshot.read_clock(OPERATION).await?;
        let (depth,): (i64,) = query(OPERATION, DEPTH).bind(now).fetch_one(&mut snapshot).await?;
        Ok(depth.unsigned_abs())
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        const OPERATION: &str = "look for the photo that waits longest";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let (since,): (Option<i64>,) = query(OPERATION, WAITING_SINCE).fetch_one(&mut snapshot).await?;
        since.map(from_micros).transpose()
    }
}

#[async_trait]
impl OutboxQueue for SqlQueue {
    async fn unpublished(&self, limit: usize) -> Result<Vec<UnpublishedPhoto>> {
        let mut cursor = self.publish_cursor.lock().await;
        let mut snapshot = self.database.begin_snapshot("find unpublished photos").await?;
        outbox::list_unpublished(&mut snapshot, limit, &mut cursor).await
    }

    async fn mark_published(&self, photos: &[UnpublishedPhoto]) -> Result<()> {
        const OPERATION: &str = "note published photos";
        let mut transaction = self.database.write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        transaction.queue_writes().mark_published(photos, now).await?;
        transaction.commit(OPERATION).await
    }

    async fn lease_named(&self, photos: &[PhotoRef], ttl: Duration) -> Result<Vec<Named>> {
        const OPERATION: &str = "lease named photos";
        self.run_scheduled_reclaim().await?;
        let mut transaction = self.database.write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let term = LeaseWindow { now, until: micros_after(now, ttl) };
        let answers = lease::lease_named(&mut transaction, photos, self.attempt_limit, term).await?;
        transaction.commit(OPERATION).await?;
        Ok(answers)
    }

    async fn republish(&self, before: i64) -> Result<u64> {
        const OPERATION: &str = "republish photos";
        let mut republished = 0;
        loop {
            let mut transaction = self.database.write(OPERATION).await?;
            let (count, more) = outbox::republish_batch(&mut transaction, before).await?;
            transaction.commit(OPERATION).await?;
            republished += count;
            if !more {
                return Ok(republished);
            }
        }
    }
}
