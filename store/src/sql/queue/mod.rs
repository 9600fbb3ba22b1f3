//! The work queue: the states of photos, stored in the rows of the photos.

mod cost;
mod fair_share;
pub(crate) mod finish;
pub(crate) mod group_commit;
pub(crate) mod lease;
pub(crate) mod outbox;
pub(crate) mod requeue;
pub(crate) mod selection;
mod unanswered;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use crate::model::encoding::{from_micros, micros_after};
use crate::model::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use crate::model::photo::FailureReason;
use crate::sealing::MasterSecret;
use crate::sql::credits::SharedLedger;
use crate::sql::database::Database;
use crate::sql::dialect::LeaseWindow;
use crate::sql::queue::finish::{PhotoFailure, fail_leased_photo, finish_photos};
use crate::sql::queue::group_commit::GroupCommit;
use crate::sql::queue::lease::SuspectLease;
use crate::sql::queue::selection::Turns;
use crate::sql::queue::unanswered::UnansweredLeases;
use crate::sql::start_lists::rules::RulesCache;
use crate::sql::statement::query;
use crate::traits::{
    ConfirmedUploads, FinishOutcome, Lease, LeaseKind, LeaseRequest, NamedLease, OutboxQueue, PhotoRef,
    PhotoResults, Queue, Reprocessed, Result, UnpublishedPhoto, UnpublishedPhotos, Upload,
};

/// Albums with fresh photos, then a null: one index probe for each, however many photos wait.
macro_rules! with_waiting_albums {
    ($rest:literal) => {
        concat!(
            "with recursive waiting (album) as ( \
             select (select album from photo where state = 'queued' and attempts = 0 order by album limit 1) \
             union all \
             select (select photo.album from photo where state = 'queued' and attempts = 0 \
             and photo.album > waiting.album order by photo.album limit 1) from waiting \
             where waiting.album is not null) ",
            $rest
        )
    };
}

/// Counts the waiting photos: fresh photos, and crash suspects without a running lease. Those of albums that are being deleted
/// are left out, because nobody leases them: they would start workers that find nothing to do. Of albums with fresh photos the
/// kept counts are read, which count their suspects that are queued too; the others are few, and have an index.
pub(crate) const DEPTH: &str = with_waiting_albums!(
    "select cast((select coalesce(sum((select sum(photo_count.count) from photo_count \
     where photo_count.album = waiting.album and photo_count.state = 'queued')), 0) from waiting \
     where (select closed_at from album where album.id = waiting.album) is null) as bigint) \
     + (select count(*) from photo where state in ('queued', 'processing') and attempts > 0 \
     and lease_until <= $1 and (select closed_at from album where album.id = photo.album) is null \
     and (state = 'processing' or (select fresh.confirmed_at from photo as fresh where fresh.state = 'queued' \
     and fresh.attempts = 0 and fresh.album = photo.album order by fresh.confirmed_at limit 1) is null))"
);

/// When the oldest fresh photo was queued, of albums that are not being deleted.
pub(crate) const WAITING_SINCE: &str = with_waiting_albums!(
    "select min((select confirmed_at from photo where state = 'queued' and attempts = 0 \
     and photo.album = waiting.album order by confirmed_at limit 1)) from waiting \
     where (select closed_at from album where album.id = waiting.album) is null"
);

/// Expires every running lease. Waiting photos have none.
pub(crate) const RECLAIM_LEASES: &str = "update photo set lease_until = 0 \
     where state in ('queued', 'processing') and attempts > 0 and lease_until > 0";

/// The work queue and its outbox, in the database.
pub(crate) struct SqlQueue {
    database: Database,
    shared: Arc<SharedLedger>,
    group_commit: Arc<GroupCommit>,
    attempt_limit: u32,
    max_cells: u32,
    /// Whether the next call that leases must first expire all running leases.
    reclaim_scheduled: Mutex<bool>,
    /// What the next call that leases gives back first.
    unanswered: UnansweredLeases,
    /// By which it judges texts.
    rules: Arc<RulesCache>,
    /// By which it recognises bibs that were erased.
    master: Option<MasterSecret>,
    /// Whose photos this process leases next.
    lease_turns: Mutex<Turns>,
    /// Whose photos it publishes next.
    publish_turns: Mutex<Turns>,
}

impl SqlQueue {
    /// Starts the task that commits confirmations; it ends with the queue. `max_cells` bounds the estimated cost of a
    /// photo as the operator bounds its cells.
    pub(crate) fn start(
        database: Database,
        shared: Arc<SharedLedger>,
        rules: Arc<RulesCache>,
        master: Option<MasterSecret>,
        attempt_limit: u32,
        max_cells: u32,
    ) -> Self {
        let group_commit = GroupCommit::start(database.clone(), Arc::clone(&shared));
        Self {
            database,
            shared,
            group_commit,
            rules,
            master,
            attempt_limit,
            max_cells,
            reclaim_scheduled: Mutex::default(),
            unanswered: UnansweredLeases::default(),
            lease_turns: Mutex::default(),
            publish_turns: Mutex::default(),
        }
    }

    /// What this process remembers of credits, for tests in which days pass.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn ledger(&self) -> &SharedLedger {
        &self.shared
    }

    /// Expires every running lease; returns how many. Their photos become crash suspects.
    pub(crate) async fn reclaim_leases(&self) -> Result<u64> {
        const OPERATION: &str = "reclaim leases";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let reclaimed = query(OPERATION, RECLAIM_LEASES).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await?;
        Ok(reclaimed)
    }

    /// Makes the next call that leases photos reclaim first; nothing is leased until that has succeeded.
    pub(crate) async fn schedule_reclaim(&self) {
        *self.reclaim_scheduled.lock().await = true;
    }

    async fn run_scheduled_reclaim(&self) -> Result<()> {
        let mut scheduled = self.reclaim_scheduled.lock().await;
        if *scheduled {
            let reclaimed = self.reclaim_leases().await?;
            *scheduled = false;
            tracing::info!(reclaimed, "reclaimed the leases of a previous process");
        }
        Ok(())
    }

    /// Gives photos back whose leases nobody knows of, before the process ends; where that fails, their leases expire.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.release_unanswered().await {
            tracing::warn!(%error, "failed to give photos back whose leases may have been committed without an answer");
        }
    }

    /// Gives photos back that were leased by calls which do not know of it.
    async fn release_unanswered(&self) -> Result<()> {
        const OPERATION: &str = "release photos";
        let unanswered = self.unanswered.take();
        if unanswered.leases().is_empty() {
            return Ok(());
        }
        let mut transaction = self.database.begin_write(OPERATION).await?;
        finish::release_photos(&mut transaction, unanswered.leases(), &self.shared.ledger).await?;
        transaction.commit(OPERATION).await?;
        let leases = unanswered.end().len();
        tracing::info!(leases, "gave photos back whose leases may have been committed without an answer");
        Ok(())
    }

    async fn lease_fresh(&self, limit: usize, ttl: Duration) -> Result<Vec<Lease>> {
        const OPERATION: &str = "lease photos";
        let mut turns = self.lease_turns.lock().await;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        // Read after waiting for the lock, so that no lease begins in the past.
        let now = transaction.read_clock(OPERATION).await?;
        let window = LeaseWindow { now, until: micros_after(now, ttl) };
        let leases = lease::lease_fresh(&mut transaction, limit, window, self.max_cells, &mut turns).await?;
        let leases = self.unanswered.watch(leases);
        transaction.commit(OPERATION).await?;
        Ok(leases.end())
    }

    async fn lease_suspect(&self, ttl: Duration) -> Result<Option<Lease>> {
        const OPERATION: &str = "lease a crash suspect";
        loop {
            let mut transaction = self.database.begin_write(OPERATION).await?;
            let now = transaction.read_clock(OPERATION).await?;
            let window = LeaseWindow { now, until: micros_after(now, ttl) };
            let ledger = &self.shared.ledger;
            let suspect = lease::lease_suspect(&mut transaction, self.attempt_limit, window, ledger).await?;
            let leased = match &suspect {
                SuspectLease::Leased(lease) => vec![lease.clone()],
                SuspectLease::None | SuspectLease::Failed => Vec::new(),
            };
            let leased = self.unanswered.watch(leased);
            transaction.commit(OPERATION).await?;
            leased.end();
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
    async fn confirm_uploads(&self, album: AlbumId, uploads: &[Upload]) -> Result<ConfirmedUploads> {
        self.group_commit.confirm(album, uploads.to_vec()).await
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        requeue::retry(&self.database, &self.shared, PhotoRef { album, photo }).await
    }

    async fn reprocess(&self, album: AlbumId) -> Result<Reprocessed> {
        requeue::reprocess(&self.database, &self.shared, album).await
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        self.run_scheduled_reclaim().await?;
        self.release_unanswered().await?;
        if request.kind == LeaseKind::CrashSuspect {
            return Ok(self.lease_suspect(request.ttl).await?.into_iter().collect());
        }
        self.lease_fresh(request.limit, request.ttl).await
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        const OPERATION: &str = "renew leases";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let until = micros_after(transaction.read_clock(OPERATION).await?, ttl);
        let running = transaction.queue_writes().renew_leases(leases, until).await?;
        transaction.commit(OPERATION).await?;
        Ok(leases.iter().copied().filter(|lease| running.contains(lease)).collect())
    }

    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<FinishOutcome>> {
        const OPERATION: &str = "finish photos";
        let (mut photos, judged_by) = self.rules.judge(&self.database, photos).await?;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let (ledger, master) = (&self.shared.ledger, self.master.as_ref());
        let finished = finish_photos(&mut transaction, &mut photos, &judged_by, ledger, master).await?;
        transaction.commit(OPERATION).await?;
        for album in finished.outdated {
            self.rules.forget(album);
        }
        Ok(finished.outcomes)
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<FinishOutcome> {
        const OPERATION: &str = "fail a photo";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let failure = PhotoFailure { reason, detail };
        let outcome = fail_leased_photo(&mut transaction, lease, failure, &self.shared.ledger).await?;
        transaction.commit(OPERATION).await?;
        Ok(outcome)
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        const OPERATION: &str = "release photos";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        finish::release_photos(&mut transaction, leases, &self.shared.ledger).await?;
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

    async fn has_waiting_beside(&self, organizations: &[OrganizationId]) -> Result<bool> {
        lease::has_waiting_beside(&self.database, organizations).await
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        const OPERATION: &str = "find the oldest waiting photo";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let (since,): (Option<i64>,) = query(OPERATION, WAITING_SINCE).fetch_one(&mut snapshot).await?;
        since.map(from_micros).transpose()
    }
}

#[async_trait]
impl OutboxQueue for SqlQueue {
    async fn list_unpublished(&self, max_cost: u64) -> Result<UnpublishedPhotos> {
        let mut turns = self.publish_turns.lock().await;
        let mut snapshot = self.database.begin_snapshot("find unpublished photos").await?;
        outbox::list_unpublished(&mut snapshot, max_cost, self.max_cells, &mut turns).await
    }

    async fn mark_published(&self, photos: &[UnpublishedPhoto]) -> Result<()> {
        const OPERATION: &str = "mark photos as published";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        transaction.queue_writes().mark_published(photos, now).await?;
        transaction.commit(OPERATION).await
    }

    async fn lease_named(&self, photos: &[PhotoRef], ttl: Duration) -> Result<Vec<NamedLease>> {
        const OPERATION: &str = "lease named photos";
        self.run_scheduled_reclaim().await?;
        self.release_unanswered().await?;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let window = LeaseWindow { now, until: micros_after(now, ttl) };
        let ledger = &self.shared.ledger;
        let outcomes =
            lease::lease_named(&mut transaction, photos, self.attempt_limit, window, ledger).await?;
        let leased = outcomes.iter().filter_map(|outcome| match outcome {
            NamedLease::Leased(lease) => Some(lease.clone()),
            _ => None,
        });
        let leased = self.unanswered.watch(leased.collect());
        transaction.commit(OPERATION).await?;
        leased.end();
        Ok(outcomes)
    }

    async fn republish(&self, before: i64) -> Result<u64> {
        const OPERATION: &str = "republish photos";
        let mut republished = 0;
        loop {
            let mut transaction = self.database.begin_write(OPERATION).await?;
            let (count, more) = outbox::republish_batch(&mut transaction, before).await?;
            transaction.commit(OPERATION).await?;
            republished += count;
            if !more {
                return Ok(republished);
            }
        }
    }
}
