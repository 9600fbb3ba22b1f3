//! A queue that waits for what is on its way, so that tests written for rows hold where photos arrive a moment after
//! they were queued. It hides nothing else: what does not come at all is missed by the test that asked for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::FailureReason;
use crate::traits::{Finish, Lease, LeaseRequest, PhotoResults, Queue, Result};

/// How long a lease that is not filled waits while the rows say that photos wait. Those may be suspects, which never
/// come with fresh photos, so the wait has an end.
const FILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for a suspect. It is there at once, but the outbox may hold its row for a moment, and leasing passes over
/// rows that are held.
const SUSPECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Between two looks; a queue that waits by itself makes them rarer.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The queue inside, asked again until a lease is filled or nothing waits.
pub struct WaitingQueue(pub Arc<dyn Queue>);

#[async_trait]
impl Queue for WaitingQueue {
    async fn confirm(&self, album: AlbumId, photos: &[PhotoId]) -> Result<Vec<PhotoId>> {
        self.0.confirm(album, photos).await
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        self.0.retry(album, photo).await
    }

    async fn reprocess(&self, album: AlbumId) -> Result<u64> {
        self.0.reprocess(album).await
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        let start = Instant::now();
        // Suspects are leased alone.
        let (wanted, patience) =
            if request.suspects { (1, SUSPECT_TIMEOUT) } else { (request.limit, FILL_TIMEOUT) };
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

    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<Finish>> {
        self.0.finish(photos).await
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<Finish> {
        self.0.fail(lease, reason, detail).await
    }

    async fn release(&self, leases: &[LeaseId]) -> Result<()> {
        self.0.release(leases).await
    }

    async fn check(&self) -> Result<()> {
        self.0.check().await
    }

    async fn depth(&self) -> Result<u64> {
        self.0.depth().await
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        self.0.waiting_since().await
    }
}
