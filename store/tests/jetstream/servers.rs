//! A server that stops, restarts, and restarts without its data.

use std::time::Duration;

use photofinish_servers::{Proxy, ProxyFault};
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::traits::FinishOutcome;
use photofinish_store::{QueueSettings, Store, StoreErrorKind, StoreSettings, StreamState, check_stream};

use crate::cluster::{
    Cluster, LONG_TTL, OUTBOX_LEAD, STREAM, finish_all, finished, lease_any, lease_next, wait_until,
};
use crate::support;

/// How often an outbox runs.
const OUTBOX_POLL_INTERVAL: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarted_with_its_disk_loses_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    assert_nothing_lost(cluster, async |cluster| {
        cluster.server.kill();
        cluster.server.run();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_its_disk_loses_no_photo() {
    let Some(cluster) = Cluster::start() else { return };
    assert_nothing_lost(cluster, async |cluster| {
        let published = async || cluster.stream_state().await.messages;
        wait_until("the outbox has published its lead", async || published().await >= OUTBOX_LEAD as u64)
            .await;
        cluster.server.kill();
        cluster.server.lose_disk();
        cluster.server.run();
    })
    .await;
}

/// Restarts the server while one photo is leased and 199 wait.
async fn assert_nothing_lost(mut cluster: Cluster, restart: impl AsyncFnOnce(&mut Cluster)) {
    let store = cluster.start_process().await;
    let fixture = AlbumFixture::create(&store).await;
    fixture.queue_photos(200).await;
    let leased = lease_next(&fixture, LONG_TTL).await;
    restart(&mut cluster).await;
    assert_eq!(store.queue.finish(vec![finished(&leased)]).await.unwrap(), [FinishOutcome::Done]);
    assert_eq!(finish_all(&fixture).await, 199, "each photo is leased once");
    assert_eq!(store.photos.count_by_state(fixture.album).await.unwrap().ready, 200);
    cluster.wait_until_stream_is_empty(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_lost_from_an_intact_stream_are_published_again() {
    let Some(cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let fixture = AlbumFixture::create(&store).await;
    let photos = fixture.queue_photos(10).await;
    wait_until("the photos are published", async || cluster.stream_state().await.messages == 10).await;
    cluster.context().await.get_stream(STREAM).await.unwrap().purge().await.unwrap();
    assert_eq!(finish_all(&fixture).await, photos.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn photos_are_confirmed_while_the_server_is_unavailable() {
    let Some(mut cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let fixture = AlbumFixture::create(&store).await;
    fixture.queue_photos(2).await;
    let (leased, returned) = (lease_next(&fixture, LONG_TTL).await, lease_next(&fixture, LONG_TTL).await);
    cluster.server.kill();
    wait_until("the outage is noticed", async || store.check_queue().await.is_err()).await;
    let photos = fixture.queue_photos(100).await;
    assert_eq!(store.queue.depth().await.unwrap(), 100);
    // What is in progress ends as usual.
    assert_eq!(store.queue.renew(&[leased.id], LONG_TTL).await.unwrap(), [leased.id]);
    assert_eq!(store.queue.finish(vec![finished(&leased)]).await.unwrap(), [FinishOutcome::Done]);
    store.queue.release(std::slice::from_ref(&returned)).await.unwrap();
    let error = lease_any(&fixture).await.unwrap_err();
    assert_eq!((error.kind, error.is_from_queue), (StoreErrorKind::Unavailable, true), "{error}");
    assert!(store.queue.check().await.is_err_and(|error| error.is_from_queue), "no photo can be leased");
    // A process that starts now can confirm photos.
    let queue = Some(cluster.queue_settings());
    let late = Store::open(StoreSettings { queue, ..cluster.test_store.settings() }).await.unwrap();
    assert_eq!(late.queue.confirm(fixture.album, &photos).await.unwrap(), photos);
    cluster.server.run();
    assert_eq!(finish_all(&fixture).await, 101);
    wait_until("the late process has connected too", async || late.check_queue().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_there_is_a_stream_is_found_out_without_creating_it() {
    let Some(mut cluster) = Cluster::start() else { return };
    let settings = cluster.queue_settings();
    for _ in 0..2 {
        assert_eq!(check_stream(&settings).await.unwrap(), StreamState::Absent);
    }
    assert!(cluster.context().await.get_stream(STREAM).await.is_err(), "it was created");
    let store = cluster.start_process().await;
    assert_eq!(check_stream(&settings).await.unwrap(), StreamState::Present);
    store.close().await;
    cluster.server.kill();
    let error = check_stream(&settings).await.unwrap_err();
    assert_eq!((error.kind, error.is_from_queue), (StoreErrorKind::Unavailable, true), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tasks_end_with_the_store() {
    let Some(cluster) = Cluster::start() else { return };
    let closed = cluster.start_process().await;
    closed.close().await;
    drop(cluster.start_process().await);
    // What a process without the queue confirms is not published until an outbox runs again.
    let without_queue = cluster.test_store.open().await;
    let fixture = AlbumFixture::create(&without_queue).await;
    fixture.queue_photos(3).await;
    tokio::time::sleep(OUTBOX_POLL_INTERVAL * 2).await;
    assert_eq!(cluster.stream_state().await.messages, 0);
    drop(closed);
    let store = cluster.start_process().await;
    let fixture = support::reopen_fixture(&store, fixture.album).await;
    assert_eq!(finish_all(&fixture).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_given_back_over_a_cut_connection_does_not_wait_for_its_message() {
    let Some(cluster) = Cluster::start() else { return };
    // Only the photo's next round makes it available again.
    let long_waits =
        QueueSettings { ack_wait: LONG_TTL, republish_interval: LONG_TTL, ..cluster.queue_settings() };
    let proxy = Proxy::in_front_of(cluster.server.address()).await;
    let through_proxy = QueueSettings { url: format!("nats://{}", proxy.address()), ..long_waits.clone() };
    let (stopping, other) =
        (cluster.start_process_with(through_proxy).await, cluster.start_process_with(long_waits).await);
    let fixture = AlbumFixture::create(&stopping).await;
    let photo = fixture.queue_photos(1).await[0];
    let lease = lease_next(&fixture, LONG_TTL).await;
    proxy.set_fault(ProxyFault::Blackhole);
    stopping.queue.release(std::slice::from_ref(&lease)).await.unwrap();
    drop((fixture, stopping));
    let other_event = support::reopen_fixture(&other, lease.album).await;
    let again = lease_next(&other_event, LONG_TTL).await;
    assert_eq!((again.photo, again.attempt), (photo, 1));
    assert_eq!(other.queue.finish(vec![finished(&again)]).await.unwrap(), [FinishOutcome::Done]);
}
