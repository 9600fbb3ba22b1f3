//! What the store does by itself, over SQLite and over a real Postgres that waits for its disk: confirmations, the
//! work queue with workers that do nothing, and the face index of a very large album.

mod backends;
mod confirms;
mod faces;
mod queue;

use std::path::PathBuf;

use anyhow::Context as _;
use photofinish_store::Store;
use photofinish_store::conformance::Event;
use photofinish_store::model::ids::PhotoId;

use self::backends::Backend;
use crate::report::{OutputOptions, Report};

/// What is asked for at once where the number of calls is not what is measured.
const PHOTOS_PER_CALL: usize = 500;

/// What to measure, and how much of it.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreOptions {
    /// Photos confirmed one a call.
    #[arg(long, default_value_t = 16_000)]
    pub confirms: usize,
    /// Callers that confirm at once.
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
    /// Where files go while it runs: a folder on the disk to be measured.
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures.
///
/// # Errors
/// When a server is not set up or the store refuses.
pub fn run(options: &StoreOptions) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _within = runtime.enter();
    let mut report = Report::new("store", "The store by itself");
    let backends = Backend::start_all().context("no Postgres or no NATS: run `cargo xtask setup --all`")?;
    runtime.block_on(async {
        confirms::measure(options, &backends, &mut report).await?;
        queue::measure(options, &backends, &mut report).await?;
        faces::measure(options, &backends, &mut report).await
    })?;
    report.notes.push(
        "Postgres, NATS and what calls them share this machine's cores; Postgres and SQLite synchronise each \
         commit with the disk."
            .to_owned(),
    );
    report.notes.push(
        "CPU of the callers is by the process's clock, of all by the machine's ticks, which see short work less \
         well."
            .to_owned(),
    );
    Ok(report)
}

/// Photos that wait for their upload.
async fn insert_expected_photos(event: &Event, count: usize) -> Vec<PhotoId> {
    let mut photos = Vec::with_capacity(count);
    while photos.len() < count {
        photos.extend(event.expected(PHOTOS_PER_CALL.min(count - photos.len())).await);
    }
    photos
}

/// An open store and the folder that goes with it.
struct OpenStore {
    store: Store,
    folder: tempfile::TempDir,
}
