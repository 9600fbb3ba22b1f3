//! A queue that retries leases, so that the conformance suite also passes where photos arrive a moment after they were
//! queued. It hides nothing else: a photo that never arrives still fails the test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::model::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use crate::model::photo::FailureReason;
use crate::traits::{
    ConfirmedUploads, FinishOutcome, Lease, LeaseKind, LeaseRequest, PhotoResults, Queue, Reprocessed,
    Result, Upload,
};

/// How long to retry a lease that is not full while the database has waiting photos. Bounded, because these may be crash
/// suspects, which a lease of fresh photos never returns.
const FILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for a crash suspect. It can be leased at once, but the outbox may lock its row for a moment, and leasing skips
/// locked rows.
const SUSPECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Wraps a queue: retries until a lease is full or no photo waits.
pub struct WaitingQueue(pub Arc<dyn Queue>);

#[async_trait]
impl Queue for WaitingQueue {
    async fn confirm_uploads(&self, album: AlbumId, uploads: &[Upload]) -> Result<ConfirmedUploads> {
        self.0.confirm_uploads(album, uploads).await
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        self.0.retry(album, photo).await
    }

    async fn reprocess(&self, album: AlbumId) -> Result<Reprocessed> {
        self.0.reprocess(album).await
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        let start = Instant::now();
        // Crash suspects are leased alone.
        let (wanted, patience) = if request.kind == LeaseKind::CrashSuspect {
            (1, SUSPECT_TIMEOUT)
        } else {
            (request.limit, FILL_TIMEOUT)
        };
        let mut leases = self.0.lease(request).await?;
        while leases.len() < wanted && start.elapsed() < patience {
            if self.0.depth().await? == 0 {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            let more = LeaseRequest { limit: wanted - leases.len(), ..request };
            leases.extend(self.0.lease(more).await?);
        }
        Ok(leases)
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        self.0.renew(leases, ttl).await
    }

    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<FinishOutcome>> {
        self.0.finish(photos).await
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<FinishOutcome> {
        self.0.fail(lease, reason, detail).await
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        self.0.release(leases).await
    }

    async fn check(&self) -> Result<()> {
        self.0.check().await
    }

    async fn depth(&self) -> Result<u64> {
        self.0.depth().await
    }

    async fn has_waiting_beside(&self, organizations: &[OrganizationId]) -> Result<bool> {
        self.0.has_waiting_beside(organizations).await
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        self.0.waiting_since().await
    }
}
