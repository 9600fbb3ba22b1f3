//! The databases and queues that are measured, each with nothing in it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_servers::{NatsServer, Postgres};
use photofinish_store::conformance::test_settings;
use photofinish_store::{QueueSettings, Store, StoreSettings};
use tempfile::TempDir;

use super::{OpenStore, StoreOptions};

/// How long the queue may take to be reached.
const QUEUE_DEADLINE: Duration = Duration::from_secs(30);

/// A database, with or without JetStream beside it.
pub struct Backend {
    /// As the tables say it.
    pub name: &'static str,
    postgres: Option<Postgres>,
    nats: Option<NatsServer>,
}

/// Databases and queues of one measurement.
pub struct BenchDatabase {
    folder: TempDir,
    settings: StoreSettings,
}

impl Backend {
    /// All four; `None` where a server was not set up.
    pub fn start_all() -> Option<[Self; 4]> {
        Some([
            Self { name: "SQLite", postgres: None, nats: None },
            Self { name: "Postgres", postgres: Some(Postgres::start_durable()?), nats: None },
            Self { name: "SQLite and JetStream", postgres: None, nats: Some(NatsServer::start()?) },
            Self {
                name: "Postgres and JetStream",
                postgres: Some(Postgres::start_durable()?),
                nats: Some(NatsServer::start()?),
            },
        ])
    }

    /// Whether the database is the queue.
    pub fn is_database_alone(&self) -> bool {
        self.nats.is_none()
    }

    /// Empty ones, in a folder below the one that the options name.
    pub fn create_database(&self, options: &StoreOptions) -> anyhow::Result<BenchDatabase> {
        let folder = options.folder.as_deref().map_or_else(tempfile::tempdir, tempfile::tempdir_in)?;
        let mut settings = StoreSettings { face_index_bytes: 8 << 30, ..test_settings(folder.path()) };
        if let Some(postgres) = &self.postgres {
            settings.database_url = postgres.create_database();
        }
        settings.queue = self.nats.as_ref().map(|nats| queue_settings(nats, folder.path()));
        Ok(BenchDatabase { folder, settings })
    }
}

/// A stream that no other measurement has.
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
    /// One more process's view of it.
    pub async fn open_store(&self) -> anyhow::Result<Store> {
        let store = Store::open(self.settings.clone()).await?;
        let begun = Instant::now();
        while let Err(error) = store.check_queue().await {
            anyhow::ensure!(begun.elapsed() < QUEUE_DEADLINE, "the queue is not reached: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(store)
    }

    /// The only view of it.
    pub async fn into_open_store(self) -> anyhow::Result<OpenStore> {
        let store = self.open_store().await.context("opening the store")?;
        Ok(OpenStore { store, folder: self.folder })
    }
}
