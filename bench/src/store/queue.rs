//! Cost of the work queue per photo, from confirm to ready, with workers that do no work in between.

use std::time::{Duration, Instant};

use futures_util::future::{try_join, try_join_all};
use photofinish_store::Store;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::{DetectedFace, PhotoSize};
use photofinish_store::traits::{Lease, LeaseKind, LeaseRequest, PhotoResults, PictureSizes};

use super::backends::{Backend, BenchDatabase};
use super::setup::{PHOTOS_PER_CALL, StoreOptions, create_album, insert_expected_photos};
use crate::process::{machine_cpu, own_cpu};
use crate::report::goals::Goal;
use crate::report::{Report, Table};

/// Photos per lease and per transaction, as in the pipeline.
const LEASE_BATCH: usize = 64;
/// No lease expires during the measurement.
const LEASE_TTL: Duration = Duration::from_secs(3600);

/// Least photos per second through JetStream and the database.
const TARGET_RATE: f64 = 2000.0;

/// Time that one backend took.
pub struct QueueCost {
    pub seconds: f64,
    caller_cpu: Duration,
    total_cpu: Duration,
}

/// Adds the table of the work queue to the report.
pub async fn measure(
    options: &StoreOptions,
    backends: &[Backend],
    report: &mut Report,
) -> anyhow::Result<()> {
    let caption = format!(
        "From confirm ({PHOTOS_PER_CALL} per call) to ready, {} workers without work of their own, {LEASE_BATCH} photos per lease and transaction",
        options.workers
    );
    let columns = [
        "queue",
        "photos",
        "per second",
        "wall µs per photo",
        "CPU µs per photo, callers",
        "CPU µs per photo, all",
    ];
    let mut table = Table::new(&caption, &columns);
    for backend in backends {
        let cost = measure_database(options, &backend.create_database(options.folder.as_deref())?).await?;
        let per_photo = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1e6 / options.queued as f64);
        let rate = options.queued as f64 / cost.seconds;
        table.add_row([
            backend.name.to_owned(),
            options.queued.to_string(),
            format!("{rate:.0}"),
            per_photo(Duration::from_secs_f64(cost.seconds)),
            per_photo(cost.caller_cpu),
            per_photo(cost.total_cpu),
        ]);
        if !backend.is_database_alone() {
            report.goals.push(Goal::at_least(
                &format!("photos per second, {}", backend.name),
                rate.round(),
                TARGET_RATE,
            ));
        }
    }
    report.tables.push(table);
    Ok(())
}

/// Measures photos from confirm to ready.
pub async fn measure_database(options: &StoreOptions, database: &BenchDatabase) -> anyhow::Result<QueueCost> {
    let api = database.open_store().await?;
    let fixture = create_album(&api).await?;
    let photos = insert_expected_photos(&fixture, options.queued).await;
    let workers = database.open_workers(&api, options.workers.max(1)).await?;
    let (start, caller_cpu, total_cpu) = (Instant::now(), own_cpu(), machine_cpu()?);
    let working = workers.iter().map(|worker| work_until_ready(worker, &fixture, photos.len()));
    try_join(confirm_all(&fixture, &photos), try_join_all(working)).await?;
    let cost = QueueCost {
        seconds: start.elapsed().as_secs_f64(),
        caller_cpu: own_cpu().saturating_sub(caller_cpu),
        total_cpu: machine_cpu()?.saturating_sub(total_cpu),
    };
    for store in workers.iter().chain([&api]) {
        store.close().await;
    }
    Ok(cost)
}

async fn confirm_all(fixture: &AlbumFixture, photos: &[PhotoId]) -> anyhow::Result<()> {
    for batch in photos.chunks(PHOTOS_PER_CALL) {
        fixture.store.queue.confirm(fixture.album, batch).await?;
    }
    Ok(())
}

/// Leases and finishes photos until all are ready.
async fn work_until_ready(worker: &Store, fixture: &AlbumFixture, photos: usize) -> anyhow::Result<()> {
    let request = LeaseRequest { limit: LEASE_BATCH, ttl: LEASE_TTL, kind: LeaseKind::Fresh };
    loop {
        let leases = worker.queue.lease(request).await?;
        if leases.is_empty() {
            if worker.photos.count_by_state(fixture.album).await?.ready == photos as u64 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        worker.queue.finish(leases.iter().map(finish_without_detections).collect()).await?;
    }
}

fn finish_without_detections(lease: &Lease) -> PhotoResults {
    finish_with_faces(lease, Vec::new())
}

/// Returns the results of a photo with these faces and no text.
pub fn finish_with_faces(lease: &Lease, faces: Vec<DetectedFace>) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: None,
        watermark_version: 0,
        pictures: PictureSizes::default(),
        skipped_runners: 0,
        faces,
        texts: Vec::new(),
    }
}
