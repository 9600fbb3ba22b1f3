//! What the work queue costs a photo: from confirm to ready with workers that do nothing in between.

use std::time::{Duration, Instant};

use futures_util::future::{try_join, try_join_all};
use photofinish_store::Store;
use photofinish_store::conformance::Event;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::{DetectedFace, PhotoSize};
use photofinish_store::traits::{Lease, LeaseRequest, PhotoResults};

use super::backends::Backend;
use super::{PHOTOS_PER_CALL, StoreOptions, insert_expected_photos};
use crate::process::{machine_cpu, own_cpu};
use crate::report::goals::Goal;
use crate::report::{Report, Table};

/// Photos of one lease and one transaction: what the pipeline takes at a time.
const LEASE_BATCH: usize = 64;
const LEASE_TTL: Duration = Duration::from_secs(3600);

/// Photos a second through JetStream and rows that the queue has to bear.
const TARGET_RATE: f64 = 2000.0;

/// What one backend took.
struct QueueCost {
    seconds: f64,
    caller_cpu: Duration,
    total_cpu: Duration,
}

/// Adds the table of the work queue.
pub async fn measure(
    options: &StoreOptions,
    backends: &[Backend],
    report: &mut Report,
) -> anyhow::Result<()> {
    let caption = format!(
        "From confirm ({PHOTOS_PER_CALL} a call) to ready, {} workers that do nothing, {LEASE_BATCH} photos a lease and a transaction",
        options.workers
    );
    let columns =
        ["queue", "photos", "a second", "wall µs a photo", "CPU µs a photo, callers", "CPU µs a photo, all"];
    let mut table = Table::new(&caption, &columns);
    for backend in backends {
        let cost = measure_backend(options, backend).await?;
        let each = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1e6 / options.queued as f64);
        let rate = options.queued as f64 / cost.seconds;
        table.add_row([
            backend.name.to_owned(),
            options.queued.to_string(),
            format!("{rate:.0}"),
            each(Duration::from_secs_f64(cost.seconds)),
            each(cost.caller_cpu),
            each(cost.total_cpu),
        ]);
        if !backend.is_database_alone() {
            report.goals.push(Goal::at_least(
                &format!("photos a second, {}", backend.name),
                rate.round(),
                TARGET_RATE,
            ));
        }
    }
    report.tables.push(table);
    Ok(())
}

async fn measure_backend(options: &StoreOptions, backend: &Backend) -> anyhow::Result<QueueCost> {
    let database = backend.create_database(options)?;
    let api = database.open_store().await?;
    let event = Event::make(&api).await;
    let photos = insert_expected_photos(&event, options.queued).await;
    let mut workers = Vec::new();
    for _ in 0..options.workers.max(1) {
        workers.push(database.open_store().await?);
    }
    let (begun, own, machine) = (Instant::now(), own_cpu(), machine_cpu()?);
    let working = workers.iter().map(|worker| work_until_ready(worker, &event, photos.len()));
    try_join(confirm_all(&event, &photos), try_join_all(working)).await?;
    let cost = QueueCost {
        seconds: begun.elapsed().as_secs_f64(),
        caller_cpu: own_cpu().saturating_sub(own),
        total_cpu: machine_cpu()?.saturating_sub(machine),
    };
    for store in workers.iter().chain([&api]) {
        store.close().await;
    }
    Ok(cost)
}

async fn confirm_all(event: &Event, photos: &[PhotoId]) -> anyhow::Result<()> {
    for some in photos.chunks(PHOTOS_PER_CALL) {
        event.store.queue.confirm(event.album, some).await?;
    }
    Ok(())
}

/// Leases and finishes until every photo is ready.
async fn work_until_ready(worker: &Store, event: &Event, photos: usize) -> anyhow::Result<()> {
    let request = LeaseRequest { limit: LEASE_BATCH, ttl: LEASE_TTL, suspects: false };
    loop {
        let leases = worker.queue.lease(request).await?;
        if leases.is_empty() {
            if worker.photos.counts(event.album).await?.ready == photos as u64 {
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

/// A photo read under this lease, with these faces and no bib.
pub fn finish_with_faces(lease: &Lease, faces: Vec<DetectedFace>) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: None,
        faces,
        texts: Vec::new(),
    }
}
