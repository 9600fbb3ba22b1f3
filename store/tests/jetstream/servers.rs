//! A server that goes away, comes back, and comes back with less.

use std::time::Duration;

use photofinish_servers::{Fault, Proxy};
use photofinish_store::suite::Event;
use photofinish_store::traits::Finish;
use photofinish_store::{QueueSettings, Store, StoreErrorKind, StoreSettings};

use crate::cluster::{Cluster, LEAD, LONG, STREAM, arrival, lease_any, reading, until, work_off};
use crate::embedded;

/// An outbox looks so often.
const OUTBOX_TICK: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarted_with_its_disk_loses_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    loses_nothing(cluster, async |cluster| {
        cluster.server.kill();
        cluster.server.run();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_its_disk_loses_no_photo() {
    let Some(cluster) = Cluster::start() else { return };
    loses_nothing(cluster, async |cluster| {
        let published = async || cluster.stream().await.messages;
        until("the outbox is ahead", async || published().await >= LEAD as u64).await;
        cluster.server.kill();
        cluster.server.lose_disk();
        cluster.server.run();
    })
    .await;
}

/// With one photo in a worker's hands and 199 that wait.
async fn loses_nothing(mut cluster: Cluster, restart: impl AsyncFnOnce(&mut Cluster)) {
    let store = cluster.process().await;
    let event = Event::make(&store).await;
    event.queued(200).await;
    let held = arrival(&event, LONG).await;
    restart(&mut cluster).await;
    assert_eq!(store.queue.finish(vec![reading(&held)]).await.unwrap(), [Finish::Done]);
    assert_eq!(work_off(&event).await, 199, "each once");
    assert_eq!(store.photos.counts(event.album).await.unwrap().ready, 200);
    cluster.until_the_stream_is_empty(&event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_went_from_a_stream_that_stayed_are_published_again() {
    let Some(cluster) = Cluster::start() else { return };
    let store = cluster.process().await;
    let event = Event::make(&store).await;
    let photos = event.queued(10).await;
    until("they are published", async || cluster.stream().await.messages == 10).await;
    cluster.context().await.get_stream(STREAM).await.unwrap().purge().await.unwrap();
    assert_eq!(work_off(&event).await, photos.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn photos_are_confirmed_while_the_server_is_away() {
    let Some(mut cluster) = Cluster::start() else { return };
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
    assert_eq!((error.kind, error.of_queue), (StoreErrorKind::Unavailable, true), "{error}");
    assert!(store.queue.check().await.is_err_and(|error| error.of_queue), "no photo can be leased");
    // A process that starts now works as far as it can.
    let queue = Some(cluster.queue_settings());
    let late = Store::open(StoreSettings { queue, ..cluster.home.settings() }).await.unwrap();
    assert_eq!(late.queue.confirm(event.album, &photos).await.unwrap(), photos);
    cluster.server.run();
    assert_eq!(work_off(&event).await, 101);
    until("the late one reaches it too", async || late.check_queue().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tasks_end_with_the_store() {
    let Some(cluster) = Cluster::start() else { return };
    let closed = cluster.process().await;
    closed.close().await;
    drop(cluster.process().await);
    // What a process without the queue confirms is published by nobody, until somebody runs an outbox again.
    let rows = cluster.home.open().await;
    let event = Event::make(&rows).await;
    event.queued(3).await;
    tokio::time::sleep(OUTBOX_TICK * 2).await;
    assert_eq!(cluster.stream().await.messages, 0);
    drop(closed);
    let store = cluster.process().await;
    let event = embedded::event_of(&store, event.album).await;
    assert_eq!(work_off(&event).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_given_back_over_a_way_that_is_cut_does_not_wait_for_its_message() {
    let Some(cluster) = Cluster::start() else { return };
    // Nothing but the photo's next turn brings it back.
    let patient = QueueSettings { ack_wait: LONG, sweep_every: LONG, ..cluster.queue_settings() };
    let proxy = Proxy::before(cluster.server.address()).await;
    let far = QueueSettings { url: format!("nats://{}", proxy.address()), ..patient.clone() };
    let (stopping, other) = (cluster.process_with(far).await, cluster.process_with(patient).await);
    let event = Event::make(&stopping).await;
    let photo = event.queued(1).await[0];
    let lease = arrival(&event, LONG).await;
    proxy.set(Fault::Blackhole);
    stopping.queue.give_back(&[lease.id]).await.unwrap();
    drop((event, stopping));
    let theirs = embedded::event_of(&other, lease.album).await;
    let again = arrival(&theirs, LONG).await;
    assert_eq!((again.photo, again.attempt), (photo, 1));
    assert_eq!(other.queue.finish(vec![reading(&again)]).await.unwrap(), [Finish::Done]);
}
