//! Measures the store alone, on SQLite and on a real Postgres that syncs to disk: confirmations, the work queue with
//! workers that do no work, and the face index of a very large album.

mod backends;
mod confirms;
mod faces;
mod queue;

use std::path::PathBuf;

use anyhow::Context as _;
use photofinish_store::Store;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::ids::PhotoId;

use self::backends::Backend;
use crate::report::{OutputOptions, Report};

/// Photos per call where the number of calls is not measured.
const PHOTOS_PER_CALL: usize = 500;

/// How much to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreOptions {
    /// Photos confirmed one per call.
    #[arg(long, default_value_t = 16_000)]
    pub confirms: usize,
    /// Concurrent callers that confirm.
    #[arg(long, default_value_t = 8)]
    pub clients: usize,
    /// Photos through the work queue.
    #[arg(long, default_value_t = 40_000)]
    pub queued: usize,
    /// Workers that lease and finish.
    #[arg(long, default_value_t = 2)]
    pub workers: usize,
    /// Faces of the large album.
    #[arg(long, default_value_t = 1_500_000)]
    pub faces: usize,
    /// Folder for files while it runs; choose the disk to measure.
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Runs the measurements.
///
/// # Errors
/// When a server is not installed or the store returns an error.
pub fn run(options: &StoreOptions) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _runtime_context = runtime.enter();
    let mut report = Report::new("store", "The store by itself");
    let backends = Backend::start_all().context("no Postgres or no NATS: run `cargo xtask setup --all`")?;
    runtime.block_on(async {
        confirms::measure(options, &backends, &mut report).await?;
        queue::measure(options, &backends, &mut report).await?;
        faces::measure(options, &backends, &mut report).await
    })?;
    report.notes.push(
        "Postgres, NATS and their callers share this machine's cores; Postgres and SQLite sync each commit to disk. \
         The workers on SQLite share one open store, as in one process; those on Postgres have one each."
            .to_owned(),
    );
    report.notes.push(
        "CPU of the callers is measured by the process's clock, CPU of all by the machine's ticks, which miss short \
         work."
            .to_owned(),
    );
    Ok(report)
}

/// Inserts photos that wait for their upload.
async fn insert_expected_photos(fixture: &AlbumFixture, count: usize) -> Vec<PhotoId> {
    let mut photos = Vec::with_capacity(count);
    while photos.len() < count {
        photos.extend(fixture.create_photos(PHOTOS_PER_CALL.min(count - photos.len())).await);
    }
    photos
}

/// An open store and the folder of its files.
struct OpenStore {
    store: Store,
    folder: tempfile::TempDir,
}
