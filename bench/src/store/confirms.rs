//! Confirmations, one photo per call, from several concurrent callers, as partners' programs send them.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::ids::PhotoId;

use super::backends::{Backend, BenchDatabase};
use super::setup::{StoreOptions, create_album, insert_expected_photos};
use crate::report::statistics::{percentile, to_milliseconds};
use crate::report::{Report, Table};

/// Adds the table of confirmations to the report.
pub async fn measure(
    options: &StoreOptions,
    backends: &[Backend],
    report: &mut Report,
) -> anyhow::Result<()> {
    let caption = format!("Confirmations, one photo per call, {} concurrent callers", options.clients);
    let mut table = Table::new(&caption, &["database", "photos", "per second", "p50 ms", "p99 ms"]);
    for backend in backends.iter().filter(|backend| backend.is_database_alone()) {
        let (rate, times) =
            measure_database(options, backend.create_database(options.folder.as_deref())?).await?;
        table.add_row([
            backend.name.to_owned(),
            options.confirms.to_string(),
            format!("{rate:.0}"),
            format!("{:.2}", to_milliseconds(percentile(&times, 0.5))),
            format!("{:.2}", to_milliseconds(percentile(&times, 0.99))),
        ]);
    }
    report.tables.push(table);
    Ok(())
}

/// Returns confirmations per second, and the time of each.
pub async fn measure_database(
    options: &StoreOptions,
    database: BenchDatabase,
) -> anyhow::Result<(f64, Vec<Duration>)> {
    let opened = database.into_open_store().await?;
    let fixture = create_album(&opened.store).await?;
    let photos = insert_expected_photos(&fixture, options.confirms).await;
    let start = Instant::now();
    let callers = photos.chunks(photos.len().div_ceil(options.clients.max(1)));
    let times: Vec<Duration> = try_join_all(callers.map(|photos| confirm_each(&fixture, photos)))
        .await?
        .into_iter()
        .flatten()
        .collect();
    let rate = photos.len() as f64 / start.elapsed().as_secs_f64();
    opened.store.close().await;
    drop(opened.folder);
    Ok((rate, times))
}

async fn confirm_each(fixture: &AlbumFixture, photos: &[PhotoId]) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(photos.len());
    for photo in photos {
        let start = Instant::now();
        fixture.store.queue.confirm(fixture.album, &[*photo]).await?;
        times.push(start.elapsed());
    }
    Ok(times)
}
