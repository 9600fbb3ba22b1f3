//! What the work queue costs a photo: from confirm to ready with workers that do nothing in between.

use std::time::{Duration, Instant};

use futures_util::future::{try_join, try_join_all};
use photofinish_store::Store;
use photofinish_store::ids::PhotoId;
use photofinish_store::photo::{PhotoSize, SeenFace};
use photofinish_store::suite::Event;
use photofinish_store::traits::{Finished, Lease, LeaseRequest};

use super::backends::Backend;
use super::{AT_ONCE, Options, expected};
use crate::goals::Goal;
use crate::process::{machine_cpu, own_cpu};
use crate::report::{Report, Table};

/// Photos of one lease and one transaction: what the pipeline takes at a time.
const BATCH: usize = 64;
const LONG: Duration = Duration::from_secs(3600);

/// Photos a second through JetStream and rows that the queue has to bear.
const TARGET: f64 = 2000.0;

/// What one backend took.
struct Cost {
    seconds: f64,
    own: Duration,
    machine: Duration,
}

/// Adds the table of the work queue.
pub async fn measure(options: &Options, backends: &[Backend], report: &mut Report) -> anyhow::Result<()> {
    let caption = format!(
        "From confirm ({AT_ONCE} a call) to ready, {} workers that do nothing, {BATCH} photos a lease and a transaction",
        options.workers
    );
    let columns =
        ["queue", "photos", "a second", "wall µs a photo", "CPU µs a photo, callers", "CPU µs a photo, all"];
    let mut table = Table::new(&caption, &columns);
    for backend in backends {
        let cost = one(options, backend).await?;
        let each = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1e6 / options.queued as f64);
        let rate = options.queued as f64 / cost.seconds;
        table.row([
            backend.name.to_owned(),
            options.queued.to_string(),
            format!("{rate:.0}"),
            each(Duration::from_secs_f64(cost.seconds)),
            each(cost.own),
            each(cost.machine),
        ]);
        if !backend.is_database_alone() {
            report.goals.push(Goal::at_least(
                &format!("photos a second, {}", backend.name),
                rate.round(),
                TARGET,
            ));
        }
    }
    report.tables.push(table);
    Ok(())
}

async fn one(options: &Options, backend: &Backend) -> anyhow::Result<Cost> {
    let database = backend.database(options)?;
    let api = database.open().await?;
    let event = Event::make(&api).await;
    let photos = expected(&event, options.queued).await;
    let mut workers = Vec::new();
    for _ in 0..options.workers.max(1) {
        workers.push(database.open().await?);
    }
    let (begun, own, machine) = (Instant::now(), own_cpu(), machine_cpu()?);
    let working = workers.iter().map(|worker| work(worker, &event, photos.len()));
    try_join(confirm(&event, &photos), try_join_all(working)).await?;
    let cost = Cost {
        seconds: begun.elapsed().as_secs_f64(),
        own: own_cpu().saturating_sub(own),
        machine: machine_cpu()?.saturating_sub(machine),
    };
    for store in workers.iter().chain([&api]) {
        store.close().await;
    }
    Ok(cost)
}

async fn confirm(event: &Event, photos: &[PhotoId]) -> anyhow::Result<()> {
    for some in photos.chunks(AT_ONCE) {
        event.store.queue.confirm(event.album, some).await?;
    }
    Ok(())
}

/// Leases and finishes until every photo is ready.
async fn work(worker: &Store, event: &Event, photos: usize) -> anyhow::Result<()> {
    let request = LeaseRequest { limit: BATCH, ttl: LONG, suspects: false };
    loop {
        let leases = worker.queue.lease(request).await?;
        if leases.is_empty() {
            if worker.photos.counts(event.album).await?.ready == photos as u64 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        worker.queue.finish(leases.iter().map(nothing_seen).collect()).await?;
    }
}

fn nothing_seen(lease: &Lease) -> Finished {
    with_faces(lease, Vec::new())
}

/// A photo read under this lease, with these faces and no bib.
pub fn with_faces(lease: &Lease, faces: Vec<SeenFace>) -> Finished {
    Finished {
        lease: lease.clone(),
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: None,
        faces,
        texts: Vec::new(),
    }
}
