//! The work queue: the states of photos, in the same rows as the photos.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use super::confirm::ConfirmDesk;
use super::finish::{fail_leased, finish_all};
use super::lease::{self, Term};
use super::{Database, fault};
use crate::error::{StoreError, StoreErrorKind};
use crate::ids::{AlbumId, LeaseId, PhotoId};
use crate::photo::{FailureReason, PhotoState};
use crate::rows::{later, now, state_of, time_of};
use crate::traits::{Finish, Finished, Lease, LeaseRequest, Queue, Result};

/// Each half reads one partial index: the fresh, and the suspects without a running lease.
pub(super) const DEPTH: &str = "select (select count(*) from photo where state = 'queued' and attempts = 0) \
     + (select count(*) from photo where state in ('queued', 'processing') and attempts > 0 \
     and lease_until <= $1)";

/// One probe of the index for each album with fresh photos, however many photos wait.
pub(super) const WAITING_SINCE: &str = "with recursive waiting (album) as ( \
     select (select album from photo where state = 'queued' and attempts = 0 order by album limit 1) \
     union all \
     select (select album from photo where state = 'queued' and attempts = 0 and album > waiting.album \
     order by album limit 1) from waiting where waiting.album is not null) \
     select min((select confirmed_at from photo where state = 'queued' and attempts = 0 \
     and album = waiting.album order by confirmed_at limit 1)) from waiting";

pub(super) const RENEW: &str = "update photo set lease_until = $2 where lease = $1 and state = 'processing'";

/// Photos that wait have no lease that could lapse.
pub(super) const RECLAIM: &str = "update photo set lease_until = 0 \
     where state in ('queued', 'processing') and attempts > 0 and lease_until > 0";

pub(crate) struct SqliteQueue {
    database: Database,
    desk: Arc<ConfirmDesk>,
    attempt_limit: u32,
    /// The album that was served last; the next lease begins after it.
    cursor: Mutex<Option<AlbumId>>,
}

impl SqliteQueue {
    /// Starts the task that commits confirmations; it ends with the queue.
    pub(crate) fn open(database: Database, attempt_limit: u32) -> Self {
        let desk = ConfirmDesk::open(database.clone());
        Self { database, desk, attempt_limit, cursor: Mutex::default() }
    }

    /// Lets every running lease lapse now; answers how many. Their photos are suspects: the process that held them
    /// ended without a word.
    pub(crate) async fn reclaim(&self) -> Result<u64> {
        const WHAT: &str = "reclaim leases";
        let mut transaction = self.database.write(WHAT).await?;
        let reclaimed =
            sqlx::query(RECLAIM).execute(&mut *transaction).await.map_err(fault(WHAT))?.rows_affected();
        transaction.commit().await.map_err(fault(WHAT))?;
        Ok(reclaimed)
    }
}

#[async_trait]
impl Queue for SqliteQueue {
    async fn confirm(&self, album: AlbumId, photos: &[PhotoId]) -> Result<Vec<PhotoId>> {
        self.desk.confirm(album, photos.to_vec()).await
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        const WHAT: &str = "retry a photo";
        let mut transaction = self.database.write(WHAT).await?;
        let state: Option<String> =
            sqlx::query_scalar("select state from photo where album = $1 and id = $2")
                .bind(album)
                .bind(photo)
                .fetch_optional(&mut *transaction)
                .await
                .map_err(fault(WHAT))?;
        let state = state.ok_or_else(|| StoreError::not_found(format!("photo {photo}")))?;
        if state_of(&state)? != PhotoState::Failed {
            return Err(StoreError::new(StoreErrorKind::Conflict, format!("photo {photo} is {state}")));
        }
        sqlx::query(
            "update photo set state = 'queued', failure = null, failure_detail = null, settled_at = null, \
             confirmed_at = $3, updated_at = $3 where album = $1 and id = $2",
        )
        .bind(album)
        .bind(photo)
        .bind(now())
        .execute(&mut *transaction)
        .await
        .map_err(fault(WHAT))?;
        transaction.commit().await.map_err(fault(WHAT))
    }

    async fn reprocess(&self, album: AlbumId) -> Result<u64> {
        const WHAT: &str = "reprocess an album";
        let mut transaction = self.database.write(WHAT).await?;
        // What was seen stays searchable until the new reading replaces it.
        let queued = sqlx::query(
            "update photo set state = 'queued', failure = null, failure_detail = null, settled_at = null, \
             confirmed_at = $2, updated_at = $2 where album = $1 and state in ('ready', 'failed')",
        )
        .bind(album)
        .bind(now())
        .execute(&mut *transaction)
        .await
        .map_err(fault(WHAT))?
        .rows_affected();
        transaction.commit().await.map_err(fault(WHAT))?;
        Ok(queued)
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        const WHAT: &str = "lease photos";
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        let mut cursor = self.cursor.lock().await;
        let mut transaction = self.database.write(WHAT).await?;
        // The clock after the wait for the lock: no lease begins in the past.
        let now = now();
        let term = Term { now, until: later(now, request.ttl) };
        let leases = if request.suspects {
            lease::suspect(&mut transaction, self.attempt_limit, term).await?.into_iter().collect()
        } else {
            lease::fresh(&mut transaction, request.limit, term, &mut cursor).await?
        };
        transaction.commit().await.map_err(fault(WHAT))?;
        Ok(leases)
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        const WHAT: &str = "renew leases";
        let mut transaction = self.database.write(WHAT).await?;
        let until = later(now(), ttl);
        let mut held = Vec::with_capacity(leases.len());
        for lease in leases {
            let renewed = sqlx::query(RENEW)
                .bind(lease)
                .bind(until)
                .execute(&mut *transaction)
                .await
                .map_err(fault(WHAT))?
                .rows_affected();
            if renewed > 0 {
                held.push(*lease);
            }
        }
        transaction.commit().await.map_err(fault(WHAT))?;
        Ok(held)
    }

    async fn finish(&self, photos: Vec<Finished>) -> Result<Vec<Finish>> {
        const WHAT: &str = "finish photos";
        let mut transaction = self.database.write(WHAT).await?;
        let answers = finish_all(&mut transaction, &photos).await?;
        transaction.commit().await.map_err(fault(WHAT))?;
        Ok(answers)
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<Finish> {
        const WHAT: &str = "fail a photo";
        let mut transaction = self.database.write(WHAT).await?;
        let answer = fail_leased(&mut transaction, lease, reason, detail).await?;
        transaction.commit().await.map_err(fault(WHAT))?;
        Ok(answer)
    }

    async fn give_back(&self, leases: &[LeaseId]) -> Result<()> {
        const WHAT: &str = "give photos back";
        let mut transaction = self.database.write(WHAT).await?;
        let now = now();
        for lease in leases {
            sqlx::query(
                "update photo set state = 'queued', attempts = attempts - 1, lease = null, lease_until = 0, \
                 updated_at = $2 where lease = $1 and state = 'processing'",
            )
            .bind(lease)
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(fault(WHAT))?;
        }
        transaction.commit().await.map_err(fault(WHAT))
    }

    async fn depth(&self) -> Result<u64> {
        let depth: i64 = sqlx::query_scalar(DEPTH)
            .bind(now())
            .fetch_one(&self.database.reader)
            .await
            .map_err(fault("count the queue"))?;
        Ok(depth.unsigned_abs())
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        let since: Option<i64> = sqlx::query_scalar(WAITING_SINCE)
            .fetch_one(&self.database.reader)
            .await
            .map_err(fault("look for the photo that waits longest"))?;
        since.map(time_of).transpose()
    }
}
