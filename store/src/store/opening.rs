//! Opens the parts of a store.

use std::sync::Arc;

use super::{Store, StoreSettings};
use crate::blobs::storage::{Storage, StorageSettings};
use crate::erasure::{Eraser, ReceiptSettings};
use crate::error::StoreError;
use crate::queue::jetstream::{JetStreamQueue, QueueSettings};
use crate::search::faces::FaceCache;
use crate::sql::{Database, DatabaseKind, RulesCache, SharedLedger, SqlGcQueries, SqlQueue, SqlRateWindows};
use crate::traits;

impl Store {
    /// Returns whether the database contains photos: then a storage folder that was never prepared is not the right one.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn has_photos(&self) -> Result<bool, StoreError> {
        SqlGcQueries::new(self.database.clone()).has_photos().await
    }
}

/// Starts the work queue of a store.
pub(super) fn start_queue(
    settings: &StoreSettings,
    database: &Database,
    ledger: Arc<SharedLedger>,
    rules: Arc<RulesCache>,
) -> Arc<SqlQueue> {
    let StoreSettings { master_secret, attempt_limit, max_cells, .. } = settings;
    let master = master_secret.clone();
    Arc::new(SqlQueue::start(database.clone(), ledger, rules, master, *attempt_limit, *max_cells))
}

/// Opens the storage of a store with this database.
pub(super) async fn open_storage(
    settings: &StoreSettings,
    database: &Database,
) -> Result<Storage, StoreError> {
    let opened = Storage::open(StorageSettings {
        url: &settings.storage_url,
        cloud: &settings.cloud,
        public_url: &settings.public_url,
        signing_secret: settings.signing_secret,
        has_photos: SqlGcQueries::new(database.clone()).has_photos().await?,
    });
    opened.await
}

/// Opens the message queue beside the database, if one is configured.
pub(super) async fn open_jetstream(
    settings: Option<QueueSettings>,
    database: Arc<dyn traits::OutboxQueue>,
) -> Result<Option<Arc<JetStreamQueue>>, StoreError> {
    let Some(settings) = settings else { return Ok(None) };
    Ok(Some(Arc::new(JetStreamQueue::open(settings, database).await?)))
}

/// What erases in a store.
pub(super) fn open_eraser(
    settings: &StoreSettings,
    database: &Database,
    storage: &Storage,
    face_cache: &Arc<FaceCache>,
    messages: Option<&Arc<JetStreamQueue>>,
) -> Eraser {
    let receipts =
        ReceiptSettings { master: settings.master_secret.clone(), backup_days: settings.backup_days };
    Eraser::new(database.clone(), storage.clone(), Arc::clone(face_cache), messages.cloned(), receipts)
}

/// The counts of calls that several processes share, in a database that several processes may use.
pub(super) fn shared_rate_windows(database: &Database) -> Option<Arc<dyn traits::RateWindows>> {
    (database.kind() == DatabaseKind::Postgres).then(|| Arc::new(SqlRateWindows::new(database.clone())) as _)
}
