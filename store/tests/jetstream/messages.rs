//! Surplus, lost and unknown messages.

use std::collections::HashSet;

use photofinish_store::QueueSettings;
use photofinish_store::conformance::Event;
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::traits::Finish;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use crate::cluster::{Cluster, LONG_TTL, STREAM, finish_all, finished, wait_until};
use crate::support::{self, Home};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_outboxes_publish_each_photo_once_and_many_workers_read_it_once() {
    let Some(cluster) = Cluster::start_with_postgres() else { return };
    // The stream drops duplicates for longer than this test runs.
    let settings = QueueSettings { republish_interval: LONG_TTL, ..cluster.queue_settings() };
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(cluster.start_process_with(settings.clone()).await);
    }
    let event = Event::make(&processes[0]).await;
    let photos = event.expected(500).await;
    let confirms = photos.chunks(10).zip(processes.iter().cycle()).map(|(photos, process)| {
        let album = event.album;
        async move { process.queue.confirm(album, photos).await.unwrap() }
    });
    futures_util::future::join_all(confirms).await;
    let workers = processes.iter().map(|process| async {
        let event = support::reopen_fixture(process, event.album).await;
        finish_all(&event).await
    });
    let finished: usize = futures_util::future::join_all(workers).await.into_iter().sum();
    assert_eq!(finished, 500);
    assert_eq!(cluster.stream_state().await.last_sequence, 500, "each was published once");
    cluster.wait_until_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_published_twice_is_read_once() {
    let Some(cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let event = Event::make(&store).await;
    let photos = event.queued(5).await;
    wait_until("the photos are published", async || cluster.stream_state().await.messages == 5).await;
    // As if the publisher had died before it marked what it had published.
    clear_published_at(&cluster.home, event.album).await;
    // As if they were published again after the stream has forgotten them.
    publish_directly(&cluster, event.album, &photos).await;
    let mut leased = HashSet::new();
    wait_until("all photos are leased", async || {
        for lease in event.leased(32, LONG_TTL).await {
            assert_eq!(lease.attempt, 1);
            assert!(leased.insert(lease.photo), "leased twice");
            assert_eq!(store.queue.finish(vec![finished(&lease)]).await.unwrap(), [Finish::Done]);
        }
        leased.len() == photos.len()
    })
    .await;
    cluster.wait_until_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_names_no_photo_is_removed_and_blocks_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let context = cluster.context().await;
    for text in ["", "no photo", "a/b/c"] {
        context.publish(format!("{STREAM}.work"), text.into()).await.unwrap().await.unwrap();
    }
    let event = Event::make(&store).await;
    event.queued(1).await;
    assert_eq!(finish_all(&event).await, 1);
    cluster.wait_until_stream_is_empty(&event).await;
}

async fn clear_published_at(home: &Home, album: AlbumId) {
    let options = SqliteConnectOptions::new().filename(home.path().join("photofinish.db"));
    let mut connection = options.connect().await.unwrap();
    sqlx::query("update photo set published_at = null where album = $1")
        .bind(album)
        .execute(&mut connection)
        .await
        .unwrap();
}

async fn publish_directly(cluster: &Cluster, album: AlbumId, photos: &[PhotoId]) {
    let context = cluster.context().await;
    for photo in photos {
        let text = format!("{album}/{photo}/1");
        context.publish(format!("{STREAM}.work"), text.into()).await.unwrap().await.unwrap();
    }
}
