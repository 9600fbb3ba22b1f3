//! Photos that become ready at a fixed rate.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use photofinish_store::conformance::AlbumFixture;
use photofinish_store::traits::{LeaseKind, LeaseRequest};
use tokio::time::Instant;

use crate::store::queue::finish_with_faces;
use crate::store::setup::insert_expected_photos;

/// Photos of each call, as in the pipeline.
const BATCH: usize = 64;
/// No lease expires during the measurement.
const LEASE_TTL: Duration = Duration::from_secs(3600);

/// The photos of a measurement.
pub struct Flow {
    /// When each was ready, by its id.
    pub ready_at: HashMap<String, SystemTime>,
    /// Photos a second.
    pub rate: f64,
}

/// Confirms photos and makes them ready, so many a second.
pub async fn run(fixture: &AlbumFixture, photos: usize, rate: usize) -> anyhow::Result<Flow> {
    let expected = insert_expected_photos(fixture, photos).await;
    let queue = &fixture.store.queue;
    let request = LeaseRequest { limit: BATCH, ttl: LEASE_TTL, kind: LeaseKind::Fresh };
    let mut ready_at = HashMap::with_capacity(photos);
    let begun = Instant::now();
    for (number, batch) in expected.chunks(BATCH).enumerate() {
        let due = Duration::from_secs_f64((number * BATCH) as f64 / rate.max(1) as f64);
        tokio::time::sleep_until(begun + due).await;
        queue.confirm(fixture.album, batch).await?;
        let leases = queue.lease(request).await?;
        anyhow::ensure!(leases.len() == batch.len(), "{} of {} photos wait", leases.len(), batch.len());
        queue.finish(leases.iter().map(|lease| finish_with_faces(lease, Vec::new())).collect()).await?;
        let now = SystemTime::now();
        ready_at.extend(leases.iter().map(|lease| (lease.photo.0.to_string(), now)));
    }
    let rate = photos as f64 / begun.elapsed().as_secs_f64();
    Ok(Flow { ready_at, rate })
}
