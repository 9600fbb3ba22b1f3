//! A database and a nats-server, and processes that share them.

use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::consumer::PullConsumer;
use photofinish_servers::{NatsServer, Postgres};
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::photo::PhotoSize;
use photofinish_store::traits::{Lease, PhotoResults, PictureSizes};
use photofinish_store::{QueueSettings, ServerLimits, Store, StoreSettings};

use crate::support::TestStore;

/// Longer than anything here takes unless it never ends.
const DEADLINE: Duration = Duration::from_secs(120);

/// Name of the stream.
pub const STREAM: &str = "test";

/// Longer than any test.
pub const LONG_TTL: Duration = Duration::from_secs(3600);

/// A lease of a worker that dies.
pub const SHORT_TTL: Duration = Duration::from_millis(500);

/// How many photos the outbox is ahead of idle workers.
pub const OUTBOX_LEAD: usize = 64;

/// A database and a nats-server of this test alone.
pub struct Cluster {
    pub test_store: TestStore,
    pub server: NatsServer,
}

impl Cluster {
    pub fn start() -> Option<Self> {
        Some(Self { test_store: TestStore::new(), server: NatsServer::start()? })
    }

    /// Uses a Postgres database, as in the cluster profile.
    pub fn start_with_postgres() -> Option<Self> {
        let test_store = TestStore::with_database(Postgres::shared()?.create_database());
        Some(Self { test_store, server: NatsServer::start()? })
    }

    /// Starts another process: an API replica or a worker.
    pub async fn start_process(&self) -> Store {
        self.start_process_with(self.queue_settings()).await
    }

    pub async fn start_process_with(&self, queue: QueueSettings) -> Store {
        // Few connections: the tests of this binary share one server.
        let server_limits = ServerLimits { connections: 4, ..ServerLimits::default() };
        let settings = StoreSettings { queue: Some(queue), server_limits, ..self.test_store.settings() };
        let store = Store::open(settings).await.unwrap();
        wait_until("connected to the server", async || store.check_queue().await.is_ok()).await;
        store
    }

    pub fn queue_settings(&self) -> QueueSettings {
        QueueSettings {
            url: self.server.url(),
            credentials: None,
            stream: STREAM.into(),
            replicas: 1,
            ack_wait: Duration::from_secs(2),
            republish_interval: Duration::from_secs(2),
        }
    }

    /// Returns the state of the stream on the server.
    pub async fn stream_state(&self) -> jetstream::stream::State {
        let stream = self.context().await.get_stream(STREAM).await.unwrap();
        stream.cached_info().state.clone()
    }

    /// Returns the workers' consumer on the server.
    pub async fn consumer(&self) -> PullConsumer {
        let stream = self.context().await.get_stream(STREAM).await.unwrap();
        stream.get_consumer("workers").await.unwrap()
    }

    /// Connects to the server directly.
    pub async fn context(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(self.server.url()).await.unwrap())
    }

    /// Pulls, as workers do, until no message is left.
    pub async fn wait_until_stream_is_empty(&self, fixture: &AlbumFixture) {
        wait_until("the stream is empty", async || {
            assert_eq!(fixture.lease_fresh(10, LONG_TTL).await.len(), 0, "nothing is left to lease");
            self.stream_state().await.messages == 0
        })
        .await;
    }
}

/// Polls until a condition is true.
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < DEADLINE, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Leases the next photo that arrives.
pub async fn lease_next(fixture: &AlbumFixture, ttl: Duration) -> Lease {
    let mut lease = None;
    wait_until("a photo arrives", async || {
        lease = fixture.lease_fresh(1, ttl).await.pop();
        lease.is_some()
    })
    .await;
    lease.unwrap()
}

/// Leases the next crash suspect.
pub async fn lease_suspect(fixture: &AlbumFixture, ttl: Duration) -> Lease {
    let mut lease = None;
    wait_until("a crash suspect exists", async || {
        lease = fixture.lease_suspect(ttl).await;
        lease.is_some()
    })
    .await;
    lease.unwrap()
}

/// Returns results without faces and texts.
pub fn finished(lease: &Lease) -> PhotoResults {
    let size = PhotoSize { width: 6000, height: 4000 };
    let (faces, texts) = (Vec::new(), Vec::new());
    PhotoResults {
        lease: lease.clone(),
        size,
        taken_at: None,
        camera: None,
        watermark_version: 0,
        pictures: PictureSizes::default(),
        skipped_runners: 0,
        faces,
        texts,
    }
}

/// Finishes photos until none waits; returns how many leases that took.
pub async fn finish_all(fixture: &AlbumFixture) -> usize {
    let mut leased = 0;
    wait_until("all photos are finished", async || {
        let Ok(mut leases) = lease_any(fixture).await else { return false };
        leases.extend(fixture.lease_suspect(LONG_TTL).await);
        leased += leases.len();
        fixture.store.queue.finish(leases.iter().map(finished).collect()).await.unwrap();
        let counts = fixture.store.photos.count_by_state(fixture.album).await.unwrap();
        counts.queued + counts.processing == 0
    })
    .await;
    leased
}

pub async fn lease_any(fixture: &AlbumFixture) -> photofinish_store::traits::Result<Vec<Lease>> {
    let request = photofinish_store::traits::LeaseRequest {
        limit: 32,
        ttl: LONG_TTL,
        kind: photofinish_store::traits::LeaseKind::Fresh,
    };
    fixture.store.queue.lease(request).await
}
