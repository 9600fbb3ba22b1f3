//! The work queue on a real nats-server over both databases: the conformance suite, and what happens to the photos of
//! workers that die.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod cluster;
mod messages;
mod servers;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Cluster, LONG_TTL, OUTBOX_LEAD, SHORT_TTL, finished, lease_next, lease_suspect, wait_until};
use futures_util::StreamExt;
use photofinish_store::conformance::{self, AlbumFixture, WaitingQueue};
use photofinish_store::model::photo::{FailureReason, PhotoState};
use photofinish_store::traits::FinishOutcome;
use photofinish_store::{QueueSettings, Store};
use support::ATTEMPT_LIMIT;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_queue_suite_passes() {
    let Some(cluster) = Cluster::start() else { return };
    conformance::queue_suite_with_lead(&patient_process(&cluster).await, OUTBOX_LEAD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_queue_suite_passes_over_postgres() {
    let Some(cluster) = Cluster::start_with_postgres() else {
        return;
    };
    conformance::queue_suite_with_lead(&patient_process(&cluster).await, OUTBOX_LEAD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_of_fair_shares_passes() {
    let Some(cluster) = Cluster::start() else { return };
    conformance::fair_shares_suite(&patient_process(&cluster).await, OUTBOX_LEAD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_of_fair_shares_passes_over_postgres() {
    let Some(cluster) = Cluster::start_with_postgres() else {
        return;
    };
    conformance::fair_shares_suite(&patient_process(&cluster).await, OUTBOX_LEAD).await;
}

/// A process that leases until its leases are full, and to which nothing is delivered twice.
async fn patient_process(cluster: &Cluster) -> Store {
    let settings =
        QueueSettings { ack_wait: LONG_TTL, republish_interval: LONG_TTL, ..cluster.queue_settings() };
    let mut store = cluster.start_process_with(settings).await;
    store.queue = Arc::new(WaitingQueue(store.queue));
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn the_photo_of_a_dead_worker_is_a_crash_suspect_and_the_dead_worker_cannot_write() {
    let Some(cluster) = Cluster::start() else { return };
    let (dead, alive) = (cluster.start_process().await, cluster.start_process().await);
    let fixture = AlbumFixture::create(&dead).await;
    let photo = fixture.queue_photos(1).await[0];
    let lost = lease_next(&fixture, SHORT_TTL).await;
    assert_eq!((lost.photo, lost.attempt), (photo, 1));
    let fixture = support::reopen_fixture(&alive, fixture.album).await;
    // The message is redelivered after the ack wait, and leases the photo to nobody as a fresh one.
    let start = Instant::now();
    let redelivered_after = cluster.queue_settings().ack_wait * 2;
    while start.elapsed() < redelivered_after {
        assert!(fixture.lease_fresh(10, LONG_TTL).await.is_empty(), "it is not a fresh photo");
    }
    let suspect = lease_suspect(&fixture, LONG_TTL).await;
    assert_eq!((suspect.photo, suspect.attempt), (photo, 2));
    assert_eq!(dead.queue.finish(vec![finished(&lost)]).await.unwrap(), [FinishOutcome::Superseded]);
    assert_eq!(dead.queue.renew(&[lost.id], LONG_TTL).await.unwrap(), []);
    assert_eq!(alive.queue.finish(vec![finished(&suspect)]).await.unwrap(), [FinishOutcome::Done]);
    cluster.wait_until_stream_is_empty(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_that_crashes_its_workers_fails_and_leaves_no_message() {
    let Some(cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let fixture = AlbumFixture::create(&store).await;
    let photo = fixture.queue_photos(1).await[0];
    let album = fixture.album;
    assert_eq!(lease_next(&fixture, SHORT_TTL).await.attempt, 1);
    for attempt in 2..=ATTEMPT_LIMIT {
        // Each time another worker; the one before is gone with its leases.
        let store = cluster.start_process().await;
        let fixture = support::reopen_fixture(&store, album).await;
        assert_eq!(lease_suspect(&fixture, SHORT_TTL).await.attempt, attempt);
    }
    let failed = async || {
        assert!(fixture.lease_suspect(LONG_TTL).await.is_none());
        store.photos.get(album, photo).await.unwrap()
    };
    wait_until("the photo has failed", async || failed().await.state == PhotoState::Failed).await;
    assert_eq!(failed().await.failure, Some(FailureReason::ProcessingCrashed));
    cluster.wait_until_stream_is_empty(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_renews_its_lease_keeps_its_photo() {
    let Some(cluster) = Cluster::start() else { return };
    // Far longer than two calls take on a busy machine.
    let ttl = Duration::from_secs(8);
    let settings = || QueueSettings { ack_wait: ttl, ..cluster.queue_settings() };
    let (slow, other) =
        (cluster.start_process_with(settings()).await, cluster.start_process_with(settings()).await);
    let fixture = AlbumFixture::create(&slow).await;
    fixture.queue_photos(1).await;
    let lease = lease_next(&fixture, ttl).await;
    let other_event = support::reopen_fixture(&other, fixture.album).await;
    let start = Instant::now();
    while start.elapsed() < ttl * 3 / 2 {
        assert_eq!(slow.queue.renew(&[lease.id], ttl).await.unwrap(), [lease.id]);
        assert!(other_event.lease_fresh(1, LONG_TTL).await.is_empty());
        assert!(other_event.lease_suspect(LONG_TTL).await.is_none());
    }
    let deliveries = cluster.consumer().await.cached_info().delivered.consumer_sequence;
    assert_eq!(deliveries, 1, "the message was not redelivered");
    assert_eq!(slow.queue.finish(vec![finished(&lease)]).await.unwrap(), [FinishOutcome::Done]);
    // Acknowledged by the worker itself: nobody else pulls.
    wait_until("the message is gone", async || cluster.stream_state().await.messages == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_whose_worker_died_before_leasing_it_stays_fresh() {
    let Some(cluster) = Cluster::start() else { return };
    let store = cluster.start_process().await;
    let fixture = AlbumFixture::create(&store).await;
    let photo = fixture.queue_photos(1).await[0];
    wait_until("the photo is published", async || cluster.stream_state().await.messages == 1).await;
    let consumer = cluster.consumer().await;
    let mut taken = consumer.fetch().max_messages(1).messages().await.unwrap();
    taken.next().await.unwrap().unwrap();
    let lease = lease_next(&fixture, LONG_TTL).await;
    assert_eq!((lease.photo, lease.attempt), (photo, 1));
}
