//! Albums that are idle: when that is told, and how often.

use std::time::Duration;

use super::events::{list, photos_of};
use super::fixture::AlbumFixture;
use crate::model::event::{Event, EventType};
use crate::model::process::TaskLease;
use crate::store::Store;

/// How long photos are gathered before they are told.
const GATHER_TIME: Duration = Duration::from_secs(2);

/// How long nothing may have settled until an album is idle.
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// How often that is told at most.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// What an album was told of: ready photos, and how often that it is idle.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    ready: usize,
    idle: usize,
}

pub(super) async fn idle_albums_suite(store: &Store, lease: TaskLease) {
    let fixture = AlbumFixture::create(store).await;
    an_album_is_idle_ten_seconds_after_its_last_photo(&fixture, lease).await;
    that_an_album_is_idle_is_told_once_a_minute(&fixture, lease).await;
    fixture.delete().await;
}

/// Lets time pass for the album and publishes; returns all that its tenant was told.
async fn publish_after(fixture: &AlbumFixture, lease: TaskLease, time: Duration) -> Vec<Event> {
    fixture.store.age_events(fixture.album, time).await.expect("lets time pass");
    fixture.store.event_publisher.publish(lease).await.expect("publishes");
    list(fixture, 0, 500).await.events
}

fn is_idle(event: &Event) -> bool {
    event.event_type == EventType::AlbumIdle.as_str()
}

async fn told_after(fixture: &AlbumFixture, lease: TaskLease, time: Duration) -> Told {
    let events = publish_after(fixture, lease, time).await;
    let idle = events.iter().filter(|event| is_idle(event)).count();
    Told { ready: photos_of(&events, EventType::PhotoReady).len(), idle }
}

async fn an_album_is_idle_ten_seconds_after_its_last_photo(fixture: &AlbumFixture, lease: TaskLease) {
    fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    assert_eq!(told_after(fixture, lease, GATHER_TIME).await, Told { ready: 1, idle: 0 });
    fixture.queue_photos(1).await;
    assert_eq!(told_after(fixture, lease, IDLE_AFTER).await, Told { ready: 1, idle: 0 }, "one is queued");
    // The moment comes to look again, and the last photo settles just before it.
    fixture.store.age_events(fixture.album, IDLE_AFTER).await.expect("lets time pass");
    fixture.process_next_photo(Vec::new(), Vec::new()).await;
    let told = told_after(fixture, lease, Duration::ZERO).await;
    assert_eq!(told, Told { ready: 1, idle: 0 }, "it has just settled, and is not told yet");
    let told = told_after(fixture, lease, IDLE_AFTER - Duration::from_secs(1)).await;
    assert_eq!(told, Told { ready: 2, idle: 0 }, "nine seconds after it settled");
    let events = publish_after(fixture, lease, IDLE_AFTER).await;
    assert!(events.last().is_some_and(is_idle), "{events:?}");
    assert_eq!(events.iter().filter(|event| is_idle(event)).count(), 1, "{events:?}");
}

/// It was told a moment ago.
async fn that_an_album_is_idle_is_told_once_a_minute(fixture: &AlbumFixture, lease: TaskLease) {
    fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    assert_eq!(told_after(fixture, lease, GATHER_TIME).await, Told { ready: 3, idle: 1 });
    let told = told_after(fixture, lease, IDLE_INTERVAL / 2).await;
    assert_eq!(told, Told { ready: 3, idle: 1 }, "idle for half a minute, and told so half a minute ago");
    assert_eq!(told_after(fixture, lease, IDLE_INTERVAL / 2).await, Told { ready: 3, idle: 2 });
    let told = told_after(fixture, lease, IDLE_INTERVAL).await;
    assert_eq!(told, Told { ready: 3, idle: 2 }, "nothing has happened since");
}
