//! What all measurements of the store share: the options, an open store, and photos that wait for their upload.

use std::path::PathBuf;

use photofinish_store::Store;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::credit::{Credits, NewGrant};
use photofinish_store::model::ids::PhotoId;

use crate::report::OutputOptions;

/// Photos per call where the number of calls is not measured.
pub const PHOTOS_PER_CALL: usize = 500;

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
    /// Pairs of measurements with credits enforced and not.
    #[arg(long, default_value_t = 5)]
    pub credit_pairs: usize,
    /// Faces of the large album.
    #[arg(long, default_value_t = 1_500_000)]
    pub faces: usize,
    /// Photos of the album in which is erased.
    #[arg(long, default_value_t = 100_000)]
    pub erased_photos: usize,
    /// Folder for files while it runs; choose the disk to measure.
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Inserts photos that wait for their upload.
pub async fn insert_expected_photos(fixture: &AlbumFixture, count: usize) -> Vec<PhotoId> {
    let mut photos = Vec::with_capacity(count);
    while photos.len() < count {
        photos.extend(fixture.create_photos(PHOTOS_PER_CALL.min(count - photos.len())).await);
    }
    photos
}

/// Creates an album whose owner has credits for everything that is measured.
pub async fn create_album(store: &Store) -> anyhow::Result<AlbumFixture> {
    let fixture = AlbumFixture::create(store).await;
    let grant = NewGrant {
        tenant: fixture.tenant,
        amount: Credits::MAX,
        note: String::new(),
        granted_by: "bench".to_owned(),
    };
    store.credits.grant(grant).await?;
    Ok(fixture)
}

/// An open store and the folder of its files.
pub struct OpenStore {
    pub store: Store,
    pub folder: tempfile::TempDir,
}
