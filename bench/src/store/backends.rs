//! The databases and queues that are measured. Each measurement gets empty ones.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_servers::{NatsServer, Postgres};
use photofinish_store::conformance::test_settings;
use photofinish_store::model::credit::CreditSettings;
use photofinish_store::{DatabaseKind, QueueSettings, Store, StoreSettings};
use tempfile::TempDir;

use super::setup::OpenStore;

/// Time to connect to the queue.
const QUEUE_DEADLINE: Duration = Duration::from_secs(30);

/// A database, with or without JetStream beside it.
pub struct Backend {
    /// Name in the tables.
    pub name: &'static str,
    postgres: Option<Postgres>,
    nats: Option<NatsServer>,
}

/// The database, the queue and the files of one measurement.
pub struct BenchDatabase {
    folder: TempDir,
    settings: StoreSettings,
}

impl Backend {
    /// Starts the server of the databases that are queues themselves; `None` when it is not installed.
    pub fn start_databases() -> Option<[Self; 2]> {
        Some([
            Self { name: "SQLite", postgres: None, nats: None },
            Self { name: "Postgres", postgres: Some(Postgres::start_durable()?), nats: None },
        ])
    }

    /// Starts the servers of all four backends; `None` when one is not installed.
    pub fn start_all() -> Option<[Self; 4]> {
        let [sqlite, postgres] = Self::start_databases()?;
        Some([
            sqlite,
            postgres,
            Self { name: "SQLite and JetStream", postgres: None, nats: Some(NatsServer::start()?) },
            Self {
                name: "Postgres and JetStream",
                postgres: Some(Postgres::start_durable()?),
                nats: Some(NatsServer::start()?),
            },
        ])
    }

    /// Whether the database itself is the work queue.
    pub fn is_database_alone(&self) -> bool {
        self.nats.is_none()
    }

    /// Creates an empty database and queue, with files below `folder`, or where temporary files are.
    pub fn create_database(&self, folder: Option<&Path>) -> anyhow::Result<BenchDatabase> {
        let folder = folder.map_or_else(tempfile::tempdir, tempfile::tempdir_in)?;
        let mut settings = StoreSettings { face_index_bytes: 8 << 30, ..test_settings(folder.path()) };
        if let Some(postgres) = &self.postgres {
            settings.database_url = postgres.create_database();
        }
        settings.queue = self.nats.as_ref().map(|nats| queue_settings(nats, folder.path()));
        Ok(BenchDatabase { folder, settings })
    }
}

/// Names a stream that no other measurement uses.
fn queue_settings(nats: &NatsServer, folder: &Path) -> QueueSettings {
    let stream = folder.file_name().map(|name| name.to_string_lossy().replace('.', ""));
    QueueSettings {
        url: nats.url(),
        credentials: None,
        stream: stream.unwrap_or_default(),
        replicas: 1,
        ack_wait: Duration::from_secs(60),
        republish_interval: Duration::from_secs(60),
    }
}

impl BenchDatabase {
    /// Declines what balances do not cover, or not.
    #[must_use]
    pub fn with_credits(mut self, is_enforced: bool) -> Self {
        self.settings.credits = CreditSettings { is_enforced, ..CreditSettings::default() };
        self
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        &self.settings.database_url
    }

    /// Opens a store of its own, as another process would.
    pub async fn open_store(&self) -> anyhow::Result<Store> {
        let store = Store::open(self.settings.clone()).await?;
        let start = Instant::now();
        while let Err(error) = store.check_queue().await {
            anyhow::ensure!(start.elapsed() < QUEUE_DEADLINE, "cannot reach the queue: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(store)
    }

    /// Opens the stores of `count` workers beside the API's. On Postgres each worker has connections of its own, like a
    /// worker process. A SQLite file belongs to one process, so its workers share the API's store: separate stores would
    /// compete for the file's write lock, which is not granted in order, until one gives up after 10 s.
    pub async fn open_workers(&self, api: &Store, count: usize) -> anyhow::Result<Vec<Store>> {
        let mut workers = Vec::with_capacity(count);
        for _ in 0..count {
            workers.push(if self.is_single_process() { api.clone() } else { self.open_store().await? });
        }
        Ok(workers)
    }

    fn is_single_process(&self) -> bool {
        DatabaseKind::from_url(&self.settings.database_url) == Some(DatabaseKind::Sqlite)
    }

    /// Opens the only store.
    pub async fn into_open_store(self) -> anyhow::Result<OpenStore> {
        let store = self.open_store().await.context("opening the store")?;
        Ok(OpenStore { store, folder: self.folder })
    }
}
