//! The work queue: the states of photos, in the same rows as the photos.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use super::bulk::Term;
use super::confirm::ConfirmDesk;
use super::finish::{fail_leased, finish_all};
use super::lease::{self, Suspect};
use super::{Database, Statement, outbox, sql};
use crate::error::{StoreError, StoreErrorKind};
use crate::ids::{AlbumId, LeaseId, PhotoId};
use crate::photo::{FailureReason, PhotoState};
use crate::rows::{later, time_of};
use crate::traits::{
    Finish, Finished, Lease, LeaseRequest, Named, PhotoRef, Queue, Result, Unpublished, WorkRows,
};

/// Each half reads one partial index: the fresh, and the suspects without a running lease.
pub(super) const DEPTH: &str = "select (select count(*) from photo where state = 'queued' and attempts = 0) \
     + (select count(*) from photo where state in ('queued', 'processing') and attempts > 0 \
     and lease_until <= $1)";

/// One probe of the index for each album with fresh photos, however many photos wait.
pub(super) const WAITING_SINCE: &str = "with recursive waiting (album) as ( \
     select (select album from photo where state = 'queued' and attempts = 0 order by album limit 1) \
     union all \
     select (select photo.album from photo where state = 'queued' and attempts = 0 \
     and photo.album > waiting.album order by photo.album limit 1) from waiting where waiting.album is not null) \
     select min((select confirmed_at from photo where state = 'queued' and attempts = 0 \
     and photo.album = waiting.album order by confirmed_at limit 1)) from waiting";

/// Photos that wait have no lease that could lapse.
pub(super) const RECLAIM: &str = "update photo set lease_until = 0 \
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

pub(super) const REPROCESS: Statement = Statement::Each {
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
const REPROCESSED_AT_ONCE: i64 = 2000;

pub(crate) struct SqlQueue {
    database: Database,
    desk: Arc<ConfirmDesk>,
    attempt_limit: u32,
    /// Whether running leases have to lapse before the next one.
    reclaims: Mutex<bool>,
    /// The album that was served last; the next lease begins after it.
    served: Mutex<Option<AlbumId>>,
    /// The same for photos to publish.
    published: Mutex<Option<AlbumId>>,
}

impl SqlQueue {
    /// Starts the task that commits confirmations; it ends with the queue.
    pub(crate) fn open(database: Database, attempt_limit: u32) -> Self {
        let desk = ConfirmDesk::open(database.clone());
        let (served, published) = (Mutex::default(), Mutex::default());
        Self { database, desk, attempt_limit, reclaims: Mutex::default(), served, published }
    }

    /// Lets every running lease lapse now; answers how many. Their photos are suspects: the process that held them
    /// ended without a word.
    pub(crate) async fn reclaim(&self) -> Result<u64> {
        const WHAT: &str = "reclaim leases";
        let mut transaction = self.database.write(WHAT).await?;
        let reclaimed = sql(WHAT, RECLAIM).execute(&mut transaction).await?;
        transaction.commit(WHAT).await?;
        Ok(reclaimed)
    }

    /// As [`Self::reclaim`], when next photos are leased; until it has come through none are.
    pub(crate) async fn reclaim_first(&self) {
        *self.reclaims.lock().await = true;
    }

    async fn reclaim_if_asked(&self) -> Result<()> {
        let mut reclaims = self.reclaims.lock().await;
        if *reclaims {
            let reclaimed = self.reclaim().await?;
            *reclaims = false;
            tracing::info!(reclaimed, "photos left in processing can be leased again");
        }
        Ok(())
    }

    async fn lease_fresh(&self, limit: usize, ttl: Duration) -> Result<Vec<Lease>> {
        const WHAT: &str = "lease photos";
        let mut served = self.served.lock().await;
        let mut transaction = self.database.write(WHAT).await?;
        // The clock after the wait for the lock: no lease begins in the past.
        let now = transaction.now(WHAT).await?;
        let term = Term { now, until: later(now, ttl) };
        let leases = lease::fresh(&mut transaction, limit, term, &mut served).await?;
        transaction.commit(WHAT).await?;
        Ok(leases)
    }

    async fn lease_suspect(&self, ttl: Duration) -> Result<Option<Lease>> {
        const WHAT: &str = "lease a suspect";
        loop {
            let mut transaction = self.database.write(WHAT).await?;
            let now = transaction.now(WHAT).await?;
            let term = Term { now, until: later(now, ttl) };
            let suspect = lease::suspect(&mut transaction, self.attempt_limit, term).await?;
            transaction.commit(WHAT).await?;
            match suspect {
                Suspect::None => return Ok(None),
                Suspect::Leased(lease) => return Ok(Some(lease)),
                Suspect::Failed => {}
            }
        }
    }
}

#[async_trait]
impl Queue for SqlQueue {
    async fn confirm(&self, album: AlbumId, photos: &[PhotoId]) -> Result<Vec<PhotoId>> {
        self.desk.confirm(album, photos.to_vec()).await
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        const WHAT: &str = "retry a photo";
        let key = PhotoRef { album, photo };
        let mut transaction = self.database.write(WHAT).await?;
        let held = transaction.bulk().hold(&[key]).await?;
        let state = held.get(&key).map(|standing| standing.state);
        if state != Some(PhotoState::Failed) {
            // Not by the transaction's end of scope, which comes a moment later: leasing passes over a row that is held.
            transaction.rollback(WHAT).await?;
            let state = state.ok_or_else(|| StoreError::not_found(format!("photo {photo}")))?;
            let what = format!("photo {photo} is {}", state.as_str());
            return Err(StoreError::new(StoreErrorKind::Conflict, what));
        }
        let now = transaction.now(WHAT).await?;
        sql(WHAT, RETRY).bind(album).bind(now).bind(photo).execute(&mut transaction).await?;
        transaction.commit(WHAT).await
    }

    /// In steps: a call that broke off half-way is finished by calling it again.
    async fn reprocess(&self, album: AlbumId) -> Result<u64> {
        const WHAT: &str = "reprocess an album";
        let mut queued = 0;
        let mut after = PhotoId(uuid::Uuid::nil());
        loop {
            let mut transaction = self.database.write(WHAT).await?;
            let now = transaction.now(WHAT).await?;
            let ids: Vec<(PhotoId,)> = sql(WHAT, REPROCESS)
                .bind(album)
                .bind(now)
                .bind(after)
                .bind(REPROCESSED_AT_ONCE)
                .fetch_all(&mut transaction)
                .await?;
            transaction.commit(WHAT).await?;
            queued += ids.len() as u64;
            // Onwards by id: a photo that is ready again meanwhile is not queued twice.
            match ids.iter().max() {
                Some((last,)) if ids.len() as i64 == REPROCESSED_AT_ONCE => after = *last,
                _ => return Ok(queued),
            }
        }
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        self.reclaim_if_asked().await?;
        if request.suspects {
            return Ok(self.lease_suspect(request.ttl).await?.into_iter().collect());
        }
        self.lease_fresh(request.limit, request.ttl).await
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        const WHAT: &str = "renew leases";
        let mut transaction = self.database.write(WHAT).await?;
        let until = later(transaction.now(WHAT).await?, ttl);
        let running = transaction.bulk().renew(leases, until).await?;
        transaction.commit(WHAT).await?;
        Ok(leases.iter().copied().filter(|lease| running.contains(lease)).collect())
    }

    async fn finish(&self, photos: Vec<Finished>) -> Result<Vec<Finish>> {
        const WHAT: &str = "finish photos";
        let mut transaction = self.database.write(WHAT).await?;
        let answers = finish_all(&mut transaction, &photos).await?;
        transaction.commit(WHAT).await?;
        Ok(answers)
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<Finish> {
        const WHAT: &str = "fail a photo";
        let mut transaction = self.database.write(WHAT).await?;
        let answer = fail_leased(&mut transaction, lease, reason, detail).await?;
        transaction.commit(WHAT).await?;
        Ok(answer)
    }

    async fn give_back(&self, leases: &[LeaseId]) -> Result<()> {
        const WHAT: &str = "give photos back";
        let mut transaction = self.database.write(WHAT).await?;
        let now = transaction.now(WHAT).await?;
        transaction.bulk().give_back(leases, now).await?;
        transaction.commit(WHAT).await
    }

    async fn check(&self) -> Result<()> {
        self.database.check().await
    }

    async fn depth(&self) -> Result<u64> {
        const WHAT: &str = "count the queue";
        let mut snapshot = self.database.snapshot(WHAT).await?;
        let now = snapshot.now(WHAT).await?;
        let (depth,): (i64,) = sql(WHAT, DEPTH).bind(now).fetch_one(&mut snapshot).await?;
        Ok(depth.unsigned_abs())
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        const WHAT: &str = "look for the photo that waits longest";
        let mut snapshot = self.database.snapshot(WHAT).await?;
        let (since,): (Option<i64>,) = sql(WHAT, WAITING_SINCE).fetch_one(&mut snapshot).await?;
        since.map(time_of).transpose()
    }
}

#[async_trait]
impl WorkRows for SqlQueue {
    async fn unpublished(&self, limit: usize) -> Result<Vec<Unpublished>> {
        let mut cursor = self.published.lock().await;
        let mut snapshot = self.database.snapshot("find unpublished photos").await?;
        outbox::unpublished(&mut snapshot, limit, &mut cursor).await
    }

    async fn published(&self, photos: &[Unpublished]) -> Result<()> {
        const WHAT: &str = "note published photos";
        let mut transaction = self.database.write(WHAT).await?;
        let now = transaction.now(WHAT).await?;
        transaction.bulk().publish(photos, now).await?;
        transaction.commit(WHAT).await
    }

    async fn lease_named(&self, photos: &[PhotoRef], ttl: Duration) -> Result<Vec<Named>> {
        const WHAT: &str = "lease named photos";
        self.reclaim_if_asked().await?;
        let mut transaction = self.database.write(WHAT).await?;
        let now = transaction.now(WHAT).await?;
        let term = Term { now, until: later(now, ttl) };
        let answers = lease::named(&mut transaction, photos, self.attempt_limit, term).await?;
        transaction.commit(WHAT).await?;
        Ok(answers)
    }

    async fn republish(&self, before: i64) -> Result<u64> {
        const WHAT: &str = "republish photos";
        let mut republished = 0;
        loop {
            let mut transaction = self.database.write(WHAT).await?;
            let (count, more) = outbox::republish_some(&mut transaction, before).await?;
            transaction.commit(WHAT).await?;
            republished += count;
            if !more {
                return Ok(republished);
            }
        }
    }
}
