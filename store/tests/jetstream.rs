//! The work queue on a real nats-server over the rows of both databases: the suite, and what goes wrong around a server.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod embedded;
mod nats;
mod server;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use embedded::{Home, LIMIT};
use futures_util::StreamExt;
use nats::{DEADLINE, NatsServer, STREAM};
use photofinish_store::ids::{AlbumId, PhotoId};
use photofinish_store::photo::{FailureReason, PhotoSize, PhotoState};
use photofinish_store::suite::{self, Event, Patient};
use photofinish_store::traits::{Finish, Finished, Lease};
use photofinish_store::{QueueSettings, ServerLimits, Store, StoreErrorKind, StoreSettings};
use server::Server;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// A worker that is silent for so long has died.
const SHORT: Duration = Duration::from_millis(500);

/// Photos that the outbox may be ahead of idle workers.
const LEAD: usize = 64;

/// An outbox looks so often.
const OUTBOX_TICK: Duration = Duration::from_secs(1);

/// Rows in a folder and a server beside them, both of this test alone.
struct Cluster {
    home: Home,
    server: NatsServer,
}

impl Cluster {
    fn start(test: &str) -> Option<Self> {
        let server = NatsServer::start(test)?;
        Some(Self { home: Home::new(), server })
    }

    /// With the rows on a server too, as in the cluster profile.
    async fn start_with_postgres(test: &str) -> Option<Self> {
        let server = NatsServer::start(test)?;
        Some(Self { home: Home::with_rows(Server::get()?.database().await), server })
    }

    /// One more process: an API replica or a worker.
    async fn process(&self) -> Store {
        self.process_with(self.server.settings()).await
    }

    async fn process_with(&self, queue: QueueSettings) -> Store {
        // Few connections: the tests of this binary share one server.
        let server_limits = ServerLimits { connections: 4, ..ServerLimits::default() };
        let settings = StoreSettings { queue: Some(queue), server_limits, ..self.home.settings() };
        let store = Store::open(settings).await.unwrap();
        until("the server is reached", async || store.check_queue().await.is_ok()).await;
        store
    }

    /// Until no message is left, with somebody pulling, as workers do.
    async fn until_the_stream_is_empty(&self, event: &Event) {
        until("the stream is empty", async || {
            assert_eq!(event.leased(10, LONG).await.len(), 0, "nothing is left to lease");
            self.server.stream().await.messages == 0
        })
        .await;
    }
}

/// Looks until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < DEADLINE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The first photo that comes.
async fn arrival(event: &Event, ttl: Duration) -> Lease {
    let mut lease = None;
    until("a photo arrives", async || {
        lease = event.leased(1, ttl).await.pop();
        lease.is_some()
    })
    .await;
    lease.unwrap()
}

async fn suspect(event: &Event, ttl: Duration) -> Lease {
    let mut lease = None;
    until("a suspect is there", async || {
        lease = event.leased_suspect(ttl).await;
        lease.is_some()
    })
    .await;
    lease.unwrap()
}

fn reading(lease: &Lease) -> Finished {
    let size = PhotoSize { width: 6000, height: 4000 };
    let (faces, texts) = (Vec::new(), Vec::new());
    Finished { lease: lease.clone(), size, taken_at: None, camera: None, faces, texts }
}

/// Finishes photos until none waits; answers how many leases it took.
async fn work_off(event: &Event) -> usize {
    let mut worked = 0;
    until("all is worked off", async || {
        let Ok(mut leases) = lease_any(event).await else { return false };
        leases.extend(event.leased_suspect(LONG).await);
        worked += leases.len();
        event.store.queue.finish(leases.iter().map(reading).collect()).await.unwrap();
        let counts = event.store.photos.counts(event.album).await.unwrap();
        counts.queued + counts.processing == 0
    })
    .await;
    worked
}

async fn lease_any(event: &Event) -> photofinish_store::traits::Result<Vec<Lease>> {
    let request = photofinish_store::traits::LeaseRequest { limit: 32, ttl: LONG, suspects: false };
    event.store.queue.lease(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_queue_suite_passes() {
    let Some(cluster) = Cluster::start("the_queue_suite_passes") else { return };
    run_the_suite(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_queue_suite_passes_over_postgres() {
    let Some(cluster) = Cluster::start_with_postgres("the_queue_suite_passes_over_postgres").await else {
        return;
    };
    run_the_suite(&cluster).await;
}

async fn run_the_suite(cluster: &Cluster) {
    let patient = QueueSettings { ack_wait: LONG, sweep_every: LONG, ..cluster.server.settings() };
    let mut store = cluster.process_with(patient).await;
    store.queue = Arc::new(Patient(store.queue));
    suite::queue_suite_with_lead(&store, LEAD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_photo_of_a_worker_that_died_is_a_suspect_and_the_dead_cannot_write() {
    let Some(cluster) = Cluster::start("the_photo_of_a_worker_that_died") else { return };
    let (dead, alive) = (cluster.process().await, cluster.process().await);
    let event = Event::make(&dead).await;
    let photo = event.queued(1).await[0];
    let lost = arrival(&event, SHORT).await;
    assert_eq!((lost.photo, lost.attempt), (photo, 1));
    let event = embedded::event_of(&alive, event.album).await;
    // Delivered again after the ack wait, the message brings it to nobody as a fresh photo.
    let start = Instant::now();
    let message_came_again = cluster.server.settings().ack_wait * 2;
    while start.elapsed() < message_came_again {
        assert!(event.leased(10, LONG).await.is_empty(), "it is no fresh photo");
    }
    let taken = suspect(&event, LONG).await;
    assert_eq!((taken.photo, taken.attempt), (photo, 2));
    assert_eq!(dead.queue.finish(vec![reading(&lost)]).await.unwrap(), [Finish::Superseded]);
    assert_eq!(dead.queue.renew(&[lost.id], LONG).await.unwrap(), []);
    assert_eq!(alive.queue.finish(vec![reading(&taken)]).await.unwrap(), [Finish::Done]);
    cluster.until_the_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_that_ends_its_workers_fails_and_leaves_no_message() {
    let Some(cluster) = Cluster::start("a_photo_that_ends_its_workers_fails") else { return };
    let store = cluster.process().await;
    let event = Event::make(&store).await;
    let photo = event.queued(1).await[0];
    let album = event.album;
    assert_eq!(arrival(&event, SHORT).await.attempt, 1);
    for attempt in 2..=LIMIT {
        // Each time another worker, whose predecessor is gone with all it held.
        let store = cluster.process().await;
        let event = embedded::event_of(&store, album).await;
        assert_eq!(suspect(&event, SHORT).await.attempt, attempt);
    }
    let failed = async || {
        assert!(event.leased_suspect(LONG).await.is_none());
        store.photos.get(album, photo).await.unwrap()
    };
    until("it has failed", async || failed().await.state == PhotoState::Failed).await;
    assert_eq!(failed().await.failure, Some(FailureReason::ProcessingCrashed));
    cluster.until_the_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarted_with_its_disk_loses_nothing() {
    let Some(mut cluster) = Cluster::start("a_server_restarted_with_its_disk") else { return };
    let store = cluster.process().await;
    let event = Event::make(&store).await;
    event.queued(200).await;
    let held = arrival(&event, LONG).await;
    cluster.server.kill();
    cluster.server.run();
    assert_eq!(store.queue.finish(vec![reading(&held)]).await.unwrap(), [Finish::Done]);
    assert_eq!(work_off(&event).await, 199, "each once");
    assert_eq!(store.photos.counts(event.album).await.unwrap().ready, 200);
    cluster.until_the_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_its_disk_loses_no_photo() {
    let Some(mut cluster) = Cluster::start("a_server_that_lost_its_disk") else { return };
    let store = cluster.process().await;
    let event = Event::make(&store).await;
    event.queued(200).await;
    let held = arrival(&event, LONG).await;
    let published = || async { cluster.server.stream().await.messages };
    until("the outbox is ahead", async || published().await >= LEAD as u64).await;
    cluster.server.kill();
    cluster.server.lose_disk();
    cluster.server.run();
    assert_eq!(store.queue.finish(vec![reading(&held)]).await.unwrap(), [Finish::Done]);
    assert_eq!(work_off(&event).await, 199, "each once");
    assert_eq!(store.photos.counts(event.album).await.unwrap().ready, 200);
    cluster.until_the_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_went_from_a_stream_that_stayed_are_published_again() {
    let Some(cluster) = Cluster::start("messages_that_went") else { return };
    let store = cluster.process().await;
    let event = Event::make(&store).await;
    let photos = event.queued(10).await;
    until("they are published", async || cluster.server.stream().await.messages == 10).await;
    cluster.server.context().await.get_stream(STREAM).await.unwrap().purge().await.unwrap();
    assert_eq!(work_off(&event).await, photos.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn photos_are_confirmed_while_the_server_is_away() {
    let Some(mut cluster) = Cluster::start("photos_are_confirmed") else { return };
    let store = cluster.process().await;
    let event = Event::make(&store).await;
    event.queued(2).await;
    let (finished, returned) = (arrival(&event, LONG).await, arrival(&event, LONG).await);
    cluster.server.kill();
    until("it is missed", async || store.check_queue().await.is_err()).await;
    let photos = event.queued(100).await;
    assert_eq!(store.queue.depth().await.unwrap(), 100);
    // What is in flight ends as ever.
    assert_eq!(store.queue.renew(&[finished.id], LONG).await.unwrap(), [finished.id]);
    assert_eq!(store.queue.finish(vec![reading(&finished)]).await.unwrap(), [Finish::Done]);
    store.queue.give_back(&[returned.id]).await.unwrap();
    let error = lease_any(&event).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    // A process that starts now works as far as it can.
    let queue = Some(cluster.server.settings());
    let late = Store::open(StoreSettings { queue, ..cluster.home.settings() }).await.unwrap();
    assert_eq!(late.queue.confirm(event.album, &photos).await.unwrap(), photos);
    cluster.server.run();
    assert_eq!(work_off(&event).await, 101);
    until("the late one reaches it too", async || late.check_queue().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_outboxes_publish_each_photo_once_and_many_workers_read_it_once() {
    let Some(cluster) = Cluster::start_with_postgres("many_outboxes").await else { return };
    // The stream's memory of what it has had is longer than this test.
    let settings = QueueSettings { sweep_every: LONG, ..cluster.server.settings() };
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(cluster.process_with(settings.clone()).await);
    }
    let event = Event::make(&processes[0]).await;
    let photos = event.expected(500).await;
    let confirms = photos.chunks(10).zip(processes.iter().cycle()).map(|(some, process)| {
        let album = event.album;
        async move { process.queue.confirm(album, some).await.unwrap() }
    });
    futures_util::future::join_all(confirms).await;
    let workers = processes.iter().map(|process| async {
        let event = embedded::event_of(process, event.album).await;
        work_off(&event).await
    });
    let worked: usize = futures_util::future::join_all(workers).await.into_iter().sum();
    assert_eq!(worked, 500);
    assert_eq!(cluster.server.stream().await.last_sequence, 500, "each was published once");
    cluster.until_the_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_twice_is_read_once() {
    let Some(cluster) = Cluster::start("what_is_published_twice") else { return };
    let store = cluster.process().await;
    let event = Event::make(&store).await;
    let photos = event.queued(5).await;
    until("they are published", async || cluster.server.stream().await.messages == 5).await;
    // As when the publisher died before it noted what it had published.
    forget_published(&cluster.home, event.album).await;
    // As when that is found out after the stream has forgotten it.
    publish_past_the_queue(&cluster, event.album, &photos).await;
    let mut seen = HashSet::new();
    until("all are leased", async || {
        for lease in event.leased(32, LONG).await {
            assert_eq!(lease.attempt, 1);
            assert!(seen.insert(lease.photo), "leased twice");
            assert_eq!(store.queue.finish(vec![reading(&lease)]).await.unwrap(), [Finish::Done]);
        }
        seen.len() == photos.len()
    })
    .await;
    cluster.until_the_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_no_photo_goes_and_stops_nobody() {
    let Some(cluster) = Cluster::start("what_names_no_photo") else { return };
    let store = cluster.process().await;
    let context = cluster.server.context().await;
    for text in ["", "no photo", "a/b/c"] {
        context.publish(format!("{STREAM}.work"), text.into()).await.unwrap().await.unwrap();
    }
    let event = Event::make(&store).await;
    event.queued(1).await;
    assert_eq!(work_off(&event).await, 1);
    cluster.until_the_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_says_it_still_works_keeps_its_photo() {
    let Some(cluster) = Cluster::start("a_worker_that_says_it_still_works") else { return };
    let (slow, other) = (cluster.process().await, cluster.process().await);
    let event = Event::make(&slow).await;
    event.queued(1).await;
    let ttl = cluster.server.settings().ack_wait;
    let lease = arrival(&event, ttl).await;
    let theirs = embedded::event_of(&other, event.album).await;
    let start = Instant::now();
    while start.elapsed() < ttl * 3 {
        assert_eq!(slow.queue.renew(&[lease.id], ttl).await.unwrap(), [lease.id]);
        assert!(theirs.leased(1, LONG).await.is_empty());
        assert!(theirs.leased_suspect(LONG).await.is_none());
    }
    let deliveries = cluster.server.consumer().await.cached_info().delivered.consumer_sequence;
    assert_eq!(deliveries, 1, "the message stayed where it was");
    assert_eq!(slow.queue.finish(vec![reading(&lease)]).await.unwrap(), [Finish::Done]);
    // Acknowledged, without anybody who would find out that it is over.
    until("the message is gone", async || cluster.server.stream().await.messages == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_whose_worker_died_before_it_leased_it_is_as_fresh_as_it_was() {
    let Some(cluster) = Cluster::start("a_photo_whose_worker_died_before") else { return };
    let store = cluster.process().await;
    let event = Event::make(&store).await;
    let photo = event.queued(1).await[0];
    until("it is published", async || cluster.server.stream().await.messages == 1).await;
    let consumer = cluster.server.consumer().await;
    let mut taken = consumer.fetch().max_messages(1).messages().await.unwrap();
    taken.next().await.unwrap().unwrap();
    let lease = arrival(&event, LONG).await;
    assert_eq!((lease.photo, lease.attempt), (photo, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tasks_end_with_the_store() {
    let Some(cluster) = Cluster::start("the_tasks_end") else { return };
    let closed = cluster.process().await;
    closed.close().await;
    drop(cluster.process().await);
    // What a process without the queue confirms is published by nobody, until somebody runs an outbox again.
    let rows = cluster.home.open().await;
    let event = Event::make(&rows).await;
    event.queued(3).await;
    tokio::time::sleep(OUTBOX_TICK * 2).await;
    assert_eq!(cluster.server.stream().await.messages, 0);
    drop(closed);
    let store = cluster.process().await;
    let event = embedded::event_of(&store, event.album).await;
    assert_eq!(work_off(&event).await, 3);
}

async fn forget_published(home: &Home, album: AlbumId) {
    let options = SqliteConnectOptions::new().filename(home.path().join("photofinish.db"));
    let mut connection = options.connect().await.unwrap();
    sqlx::query("update photo set published_at = null where album = $1")
        .bind(album)
        .execute(&mut connection)
        .await
        .unwrap();
}

async fn publish_past_the_queue(cluster: &Cluster, album: AlbumId, photos: &[PhotoId]) {
    let context = cluster.server.context().await;
    for photo in photos {
        let text = format!("{album}/{photo}/1");
        context.publish(format!("{STREAM}.work"), text.into()).await.unwrap().await.unwrap();
    }
}
