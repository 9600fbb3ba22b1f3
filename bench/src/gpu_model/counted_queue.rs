//! A work queue that counts how often a photo became ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use photofinish_store::model::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use photofinish_store::model::photo::FailureReason;
use photofinish_store::traits::{
    ConfirmedUploads, FinishOutcome, Lease, LeaseRequest, PhotoResults, Queue, Reprocessed, Result, Upload,
};
use time::OffsetDateTime;

/// Wraps a queue.
pub struct CountedQueue {
    inner: Arc<dyn Queue>,
    finished: AtomicU64,
    leased: AtomicU64,
}

impl CountedQueue {
    /// Counts from now on.
    pub fn new(inner: Arc<dyn Queue>) -> Self {
        Self { inner, finished: AtomicU64::default(), leased: AtomicU64::default() }
    }

    /// How often results of a photo were written, of all photos.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::SeqCst)
    }

    /// How often a photo was leased, of all photos.
    pub fn leased(&self) -> u64 {
        self.leased.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Queue for CountedQueue {
    async fn confirm_uploads(&self, album: AlbumId, uploads: &[Upload]) -> Result<ConfirmedUploads> {
        self.inner.confirm_uploads(album, uploads).await
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        self.inner.retry(album, photo).await
    }

    async fn reprocess(&self, album: AlbumId) -> Result<Reprocessed> {
        self.inner.reprocess(album).await
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        let leases = self.inner.lease(request).await?;
        self.leased.fetch_add(leases.len() as u64, Ordering::SeqCst);
        Ok(leases)
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        self.inner.renew(leases, ttl).await
    }

    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<FinishOutcome>> {
        let outcomes = self.inner.finish(photos).await?;
        let done = outcomes.iter().filter(|outcome| **outcome == FinishOutcome::Done).count();
        self.finished.fetch_add(done as u64, Ordering::SeqCst);
        Ok(outcomes)
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<FinishOutcome> {
        self.inner.fail(lease, reason, detail).await
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        self.inner.release(leases).await
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }

    async fn depth(&self) -> Result<u64> {
        self.inner.depth().await
    }

    async fn has_waiting_beside(&self, organizations: &[OrganizationId]) -> Result<bool> {
        self.inner.has_waiting_beside(organizations).await
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        self.inner.waiting_since().await
    }
}
