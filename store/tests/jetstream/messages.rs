//! Surplus, lost and unknown messages.

use std::collections::HashSet;

use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::traits::FinishOutcome;
use photofinish_store::{QueueSettings, StoreErrorKind};
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use crate::cluster::{Cluster, LONG_TTL, STREAM, finish_all, finished, wait_until};
use crate::support::{self, TestStore};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_outboxes_publish_each_photo_once_and_many_workers_read_it_once() {
    let Some(cluster) = Cluster::start_with_postgres() else { return };
    // The stream drops duplicates for longer than this test runs.
    let settings = QueueSettings { republish_interval: LONG_TTL, ..cluster.queue_settings() };
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(cluster.start_process_with(settings.clone()).await);
    }
    let fixture = AlbumFixture::create(&processes[0]).await;
    let photos = fixture.create_photos(500).await;
    let confirms = photos.chunks(10).zip(processes.iter().cycle()).map(|(photos, process)| {
        let album = fixture.album;
        async move { process.queue.confirm(album, photos).await.unwrap() }
    });
    futures_util::future::join_all(confirms).await;
    let workers = processes.iter().map(|process| async {
        let fixture = support::reopen_fixture(process, fixture.album).await;
        finish_all(&fixture).await
    });
    let finished: usize = futures_util::future::join_all(workers).await.into_iter().sum();
    assert_eq!(finished, 500);
    assert_eq!(cluster.stream_state().await.last_sequence, 500, "each was published once");
    cluster.wait_until_stream_is_empty(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_published_twice_is_read_once() {
    let Some(cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let fixture = AlbumFixture::create(&store).await;
    let photos = fixture.queue_photos(5).await;
    wait_until("the photos are published", async || cluster.stream_state().await.messages == 5).await;
    // As if the publisher had died before it marked what it had published.
    clear_published_at(&cluster.test_store, fixture.album).await;
    // As if they were published again after the stream has forgotten them.
    publish_directly(&cluster, fixture.album, &photos).await;
    let mut leased = HashSet::new();
    wait_until("all photos are leased", async || {
        for lease in fixture.lease_fresh(32, LONG_TTL).await {
            assert_eq!(lease.attempt, 1);
            assert!(leased.insert(lease.photo), "leased twice");
            assert_eq!(store.queue.finish(vec![finished(&lease)]).await.unwrap(), [FinishOutcome::Done]);
        }
        leased.len() == photos.len()
    })
    .await;
    cluster.wait_until_stream_is_empty(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_names_no_photo_is_removed_and_blocks_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let context = cluster.context().await;
    for text in ["", "no photo", "a/b/c"] {
        context.publish(format!("{STREAM}.work"), text.into()).await.unwrap().await.unwrap();
    }
    let fixture = AlbumFixture::create(&store).await;
    fixture.queue_photos(1).await;
    assert_eq!(finish_all(&fixture).await, 1);
    cluster.wait_until_stream_is_empty(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_names_a_photo_that_was_erased() {
    let Some(cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let fixture = AlbumFixture::create(&store).await;
    let photos = fixture.queue_photos(5).await;
    wait_until("the photos are published", async || cluster.stream_state().await.messages == 5).await;
    let (tenant, album, key) = (fixture.tenant, fixture.album, fixture.key.id);
    let id = store.erasures.begin_photo(&tenant, album, photos[2], key).await.unwrap();
    assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 0, "its message is there");
    store.erasures.remove_objects(id).await.unwrap();
    assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 1);
    assert_eq!(cluster.stream_state().await.messages, 4, "those of others stay");
    let scan = store.erasures.verify(&tenant, id).await.unwrap();
    let messages = scan.stores.iter().find(|scanned| scanned.store == "message queue").unwrap();
    assert_eq!((messages.looked, messages.left), (4, 0));

    let id = store.erasures.begin_album(&tenant, album, key).await.unwrap();
    store.erasures.remove_objects(id).await.unwrap();
    assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 1);
    assert_eq!(cluster.stream_state().await.messages, 0);
}

/// Reading the stream takes seconds while many workers are busy.
#[tokio::test(flavor = "multi_thread")]
async fn a_ready_photo_is_erased_without_a_request_to_the_stream() {
    let Some(mut cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let fixture = AlbumFixture::create(&store).await;
    let ready = fixture.queue_photos(1).await[0];
    assert_eq!(finish_all(&fixture).await, 1);
    let queued = fixture.queue_photos(1).await[0];
    // Every request fails from now on.
    cluster.server.kill();
    let (tenant, album, key) = (fixture.tenant, fixture.album, fixture.key.id);
    let id = store.erasures.begin_photo(&tenant, album, ready, key).await.unwrap();
    store.erasures.remove_objects(id).await.unwrap();
    assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 1);
    let id = store.erasures.begin_photo(&tenant, album, queued, key).await.unwrap();
    let removed = store.erasures.remove_objects(id).await;
    assert_eq!(removed.unwrap_err().kind, StoreErrorKind::Unavailable, "its message is looked for");
}

async fn clear_published_at(test_store: &TestStore, album: AlbumId) {
    let options = SqliteConnectOptions::new().filename(test_store.path().join("photofinish.db"));
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
