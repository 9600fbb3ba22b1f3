//! Events: what is told, to whom, in which order, and what happens to old ones.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::assert_error_kind;
use super::bib_formats::{add_runners, judge_all};
use super::erasures::{bib_of, erase};
use super::fixture::{AlbumFixture, LONG, empty_results, face, text};
use super::idle_albums::idle_albums_suite;
use crate::error::StoreErrorKind;
use crate::model::event::{Event, EventPage, EventQuery, EventType, KeptChanges};
use crate::model::ids::{PhotoId, ProcessId};
use crate::model::photo::FailureReason;
use crate::model::process::{Task, TaskLease};
use crate::store::Store;

/// How long a suite waits for an event: photos are gathered for two seconds, and an album is idle after ten.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Checks the backends of [`crate::traits::Events`] and [`crate::traits::EventPublisher`].
pub async fn events_suite(store: &Store) {
    let lease = take_task(store).await;
    let fixture = AlbumFixture::create(store).await;
    settled_photos_are_told_once_and_the_album_when_it_is_idle(&fixture, lease).await;
    a_photo_that_is_queued_again_is_told_when_it_has_settled(&fixture, lease).await;
    a_photo_that_is_judged_by_a_learned_format_is_told_once(store, lease).await;
    a_photo_of_which_somebody_is_erased_is_told_once(&fixture, lease).await;
    changes_that_nobody_needs_are_deleted_while_the_album_lives(store, lease).await;
    many_photos_fill_events_and_each_is_told_once(&fixture, lease).await;
    idle_albums_suite(store, lease).await;
    a_page_ends_where_the_next_begins(&fixture).await;
    another_tenant_reads_none_of_them(&fixture).await;
    only_the_holder_of_the_task_publishes(&fixture, lease).await;
    a_deleted_album_is_told_with_its_photos(&fixture, lease).await;
    deleted_events_are_a_loss_for_those_who_have_not_read_them(&fixture, lease).await;
    store.tasks.release(lease).await.expect("releases the task");
    fixture.delete().await;
}

async fn take_task(store: &Store) -> TaskLease {
    let taken = store.tasks.take(Task::EventPublisher, ProcessId::generate(), LONG).await;
    taken.expect("takes the task").expect("nobody else publishes")
}

/// Publishes until the tenant has an event of this type after `after`; returns everything after it.
async fn publish_until(fixture: &AlbumFixture, lease: TaskLease, after: i64, last: EventType) -> Vec<Event> {
    let events = publish_until_told(fixture, lease, after, |events| {
        events.iter().any(|event| event.event_type == last.as_str())
    });
    events.await
}

async fn publish_until_told(
    fixture: &AlbumFixture,
    lease: TaskLease,
    after: i64,
    is_told: impl Fn(&[Event]) -> bool,
) -> Vec<Event> {
    let start = std::time::Instant::now();
    loop {
        if fixture.store.event_publisher.is_due().await.expect("looks") {
            fixture.store.event_publisher.publish(lease).await.expect("publishes");
        }
        let events = list(fixture, after, 500).await.events;
        if is_told(&events) {
            return events;
        }
        assert!(start.elapsed() < WAIT_LIMIT, "not told: {events:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(super) async fn list(fixture: &AlbumFixture, after: i64, limit: u32) -> EventPage {
    let query = EventQuery { after, types: Vec::new(), album: None, limit };
    fixture.store.events.list(&fixture.tenant, query).await.expect("lists events")
}

/// The photos of the events of a type.
pub(super) fn photos_of(events: &[Event], event_type: EventType) -> Vec<Value> {
    let of_type = events.iter().filter(|event| event.event_type == event_type.as_str());
    let photos: Vec<Value> =
        of_type.clone().flat_map(|event| event.data["photos"].as_array().expect("a list").clone()).collect();
    let counted: u64 = of_type.map(|event| event.data["count"].as_u64().expect("a number")).sum();
    assert_eq!(photos.len() as u64, counted);
    photos
}

async fn settled_photos_are_told_once_and_the_album_when_it_is_idle(
    fixture: &AlbumFixture,
    lease: TaskLease,
) {
    let photos = fixture.queue_photos(3).await;
    let leases = fixture.lease_fresh(3, LONG).await;
    for held in &leases {
        if held.photo == photos[1] {
            let reason = FailureReason::CorruptImage;
            fixture.store.queue.fail(held, reason, "ends early").await.expect("fails a photo");
        } else {
            let results =
                crate::traits::PhotoResults { texts: vec![text("77", 0.99)], ..empty_results(held) };
            fixture.store.queue.finish(vec![results]).await.expect("finishes a photo");
        }
    }
    let waiting = fixture.create_photos(2).await;
    let events = publish_until(fixture, lease, 0, EventType::AlbumIdle).await;
    let ready: BTreeSet<String> =
        photos_of(&events, EventType::PhotoReady).iter().map(|photo| photo["photoId"].to_string()).collect();
    let expected = |id: PhotoId| json!(id).to_string();
    assert_eq!(ready, BTreeSet::from([expected(photos[0]), expected(photos[2])]));
    for photo in photos_of(&events, EventType::PhotoReady) {
        assert_eq!(photo["again"], json!(false), "{photo}");
    }
    let failed = photos_of(&events, EventType::PhotoFailed);
    assert_eq!(failed, [json!({ "photoId": photos[1], "reason": "CORRUPT_IMAGE" })]);
    let idle = events.last().expect("an event");
    let counts =
        json!({ "albumId": fixture.album, "total": 5, "ready": 2, "failed": 1, "awaitingUpload": 2 });
    assert_eq!(Value::from(idle.data.clone()), counts);
    for (event, next) in events.iter().zip(&events[1..]) {
        assert!(event.sequence < next.sequence && event.id != next.id);
    }
    for event in &events {
        assert_eq!((event.tenant, event.album), (fixture.tenant, Some(fixture.album)));
        assert_eq!(event.data["albumId"], json!(fixture.album));
    }
    for photo in waiting {
        fixture.store.photos.delete(fixture.album, photo).await.expect("deletes a photo");
    }
}

async fn a_photo_that_is_queued_again_is_told_when_it_has_settled(fixture: &AlbumFixture, lease: TaskLease) {
    let before = list(fixture, 0, 500).await.up_to;
    let photo = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    let deleted = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    fixture.store.photos.delete(fixture.album, deleted).await.expect("deletes a photo");
    assert!(fixture.store.queue.reprocess(fixture.album).await.expect("queues again").queued > 0);
    // Whatever was told by now, it was not a photo that is queued.
    for _ in 0..3 {
        fixture.store.event_publisher.publish(lease).await.expect("publishes");
    }
    assert_eq!(photos_of(&list(fixture, before, 500).await.events, EventType::PhotoReady), [] as [Value; 0]);
    let leases = fixture.lease_fresh(100, LONG).await;
    assert!(leases.iter().any(|held| held.photo == photo));
    for held in &leases {
        fixture.store.queue.finish(vec![empty_results(held)]).await.expect("finishes a photo");
    }
    let is_told = |events: &[Event]| photos_of(events, EventType::PhotoReady).len() >= leases.len();
    let events = publish_until_told(fixture, lease, before, is_told).await;
    let told = photos_of(&events, EventType::PhotoReady);
    let again = told.iter().find(|told| told["photoId"] == json!(photo)).expect("it is told");
    assert_eq!(again["again"], json!(true), "it was ready before");
    let told: BTreeSet<String> = told.iter().map(|photo| photo["photoId"].to_string()).collect();
    assert_eq!(told, leases.iter().map(|held| json!(held.photo).to_string()).collect());
}

/// Publishes all changes of an album, and asserts that its ready photos were told these times.
async fn assert_told(fixture: &AlbumFixture, lease: TaskLease, ready: usize, message: &str) {
    let is_told = |events: &[Event]| photos_of(events, EventType::PhotoReady).len() >= ready;
    publish_until_told(fixture, lease, 0, is_told).await;
    // Another photo comes after all changes: what is told before it is all that is told of them.
    let last = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    let is_told = |events: &[Event]| {
        photos_of(events, EventType::PhotoReady).iter().any(|photo| photo["photoId"] == json!(last))
    };
    let events = publish_until_told(fixture, lease, 0, is_told).await;
    let told = photos_of(&events, EventType::PhotoReady);
    assert_eq!(told.len(), ready + 1, "{message}: {told:?}");
    fixture.store.photos.delete(fixture.album, last).await.expect("deletes a photo");
}

async fn a_photo_that_is_judged_by_a_learned_format_is_told_once(store: &Store, lease: TaskLease) {
    let fixture = AlbumFixture::create(store).await;
    let part = fixture.add_ready_photo(Vec::new(), vec![text("203", 0.97)]).await;
    add_runners(&fixture, 80).await;
    assert_told(&fixture, lease, 21, "before").await;
    // It does not fit the format that the others show.
    let changed = judge_all(store).await;
    assert!(changed > 0, "nothing was judged otherwise");
    assert_told(&fixture, lease, 22, "a change by a format is no readiness").await;
    // Processed once more, it is told again.
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("queues again").queued, 21);
    for held in fixture.lease_fresh(100, LONG).await {
        store.queue.finish(vec![empty_results(&held)]).await.expect("finishes a photo");
    }
    let is_told = |events: &[Event]| photos_of(events, EventType::PhotoReady).len() >= 23 + 21;
    let events = publish_until_told(&fixture, lease, 0, is_told).await;
    let of_part: Vec<Value> = photos_of(&events, EventType::PhotoReady)
        .into_iter()
        .filter(|photo| photo["photoId"] == json!(part))
        .map(|photo| photo["again"].clone())
        .collect();
    assert_eq!(of_part, [json!(false), json!(true)]);
    fixture.delete().await;
}

async fn a_photo_of_which_somebody_is_erased_is_told_once(fixture: &AlbumFixture, lease: TaskLease) {
    let other = AlbumFixture::create(&fixture.store).await;
    other.add_ready_photo(Vec::new(), vec![text("77", 0.99)]).await;
    assert_told(&other, lease, 1, "before").await;
    let store = &other.store;
    erase(store, bib_of(&other, "77", false)).await;
    assert_told(&other, lease, 2, "an erasure is no readiness").await;
    other.delete().await;
}

async fn changes_that_nobody_needs_are_deleted_while_the_album_lives(store: &Store, lease: TaskLease) {
    const KEPT: KeptChanges = KeptChanges { least: 3, most: 3, recent: LONG };
    let fixture = AlbumFixture::create(store).await;
    let seen = |turn: usize| {
        let mut vector = [0.0; 4];
        vector[turn % 4] = 1.0;
        face(vector)
    };
    let found = async |turn: usize| {
        let probe = seen(turn).embedding.expect("a searchable face");
        let hits = store.faces.nearest(fixture.album, &probe, 10, 0.9).await.expect("searches");
        hits.into_iter().map(|hit| hit.photo).collect::<Vec<_>>()
    };
    // The index has read an album without changes.
    assert_eq!(found(0).await, []);
    let photo = fixture.add_ready_photo(vec![seen(0)], Vec::new()).await;
    let turns = 300;
    for turn in 1..=turns {
        store.queue.reprocess(fixture.album).await.expect("queues again");
        fixture.process_next_photo(vec![seen(turn)], Vec::new()).await;
    }
    let prune = async || {
        let mut deleted = 0;
        while store.event_publisher.has_prunable_changes(&KEPT).await.expect("looks") {
            deleted += store.event_publisher.prune_changes(lease, &KEPT).await.expect("deletes");
        }
        deleted
    };
    prune().await;
    let is_told = |events: &[Event]| !photos_of(events, EventType::PhotoReady).is_empty();
    let events = publish_until_told(&fixture, lease, 0, is_told).await;
    assert_eq!(
        photos_of(&events, EventType::PhotoReady).len(),
        1,
        "what was not published was kept: {events:?}"
    );
    assert!(prune().await >= turns as u64 - u64::from(KEPT.most));
    assert_eq!((found(turns).await, found(turns + 1).await), (vec![photo], vec![]));
    assert_eq!(prune().await, 0);
    // And again, however often: each new change is an old one less.
    for turn in 1..=8 {
        store.queue.reprocess(fixture.album).await.expect("queues again");
        fixture.process_next_photo(vec![seen(turns + turn)], Vec::new()).await;
    }
    let is_told = |events: &[Event]| photos_of(events, EventType::PhotoReady).len() == 2;
    publish_until_told(&fixture, lease, 0, is_told).await;
    assert_eq!(prune().await, 8);
    assert_eq!(found(turns + 8).await, [photo]);
    let another = TaskLease { holder: ProcessId::generate(), ..lease };
    assert_error_kind(store.event_publisher.prune_changes(another, &KEPT).await, StoreErrorKind::Conflict);
    fixture.delete().await;
}

async fn many_photos_fill_events_and_each_is_told_once(fixture: &AlbumFixture, lease: TaskLease) {
    const PHOTOS: usize = 640;
    let before = list(fixture, 0, 500).await.up_to;
    let mut photos = Vec::new();
    while photos.len() < PHOTOS {
        photos.extend(fixture.queue_photos(20).await);
        let held = fixture.lease_fresh(20, LONG).await;
        let results = held.iter().map(empty_results).collect();
        fixture.store.queue.finish(results).await.expect("finishes photos");
        if fixture.store.event_publisher.is_due().await.expect("looks") {
            fixture.store.event_publisher.publish(lease).await.expect("publishes");
        }
    }
    let is_told = |events: &[Event]| photos_of(events, EventType::PhotoReady).len() >= PHOTOS;
    let events = publish_until_told(fixture, lease, before, is_told).await;
    let mut told: Vec<String> =
        photos_of(&events, EventType::PhotoReady).iter().map(|photo| photo["photoId"].to_string()).collect();
    told.sort();
    let mut expected: Vec<String> = photos.iter().map(|photo| json!(photo).to_string()).collect();
    expected.sort();
    assert_eq!(told, expected);
    let of_type = |event: &&Event| event.event_type == EventType::PhotoReady.as_str();
    for event in events.iter().filter(of_type) {
        let body = serde_json::to_string(&event.data).expect("JSON");
        assert!(event.data["count"].as_u64() <= Some(250) && body.len() < 20_000, "{}", body.len());
    }
}

async fn a_page_ends_where_the_next_begins(fixture: &AlbumFixture) {
    let all = list(fixture, 0, 500).await;
    let (mut after, mut read) = (0, Vec::new());
    loop {
        let page = list(fixture, after, 1).await;
        let Some(event) = page.events.first() else {
            assert_eq!(page.up_to, after, "the end stays where it is");
            break;
        };
        assert_eq!((page.events.len(), page.up_to), (1, event.sequence));
        after = page.up_to;
        read.extend(page.events);
    }
    assert_eq!(read, all.events);
    // A filter moves on past what it leaves out.
    let query = |types| EventQuery { after: 0, types, album: Some(fixture.album), limit: 500 };
    let events = &fixture.store.events;
    let failed = events.list(&fixture.tenant, query(vec![EventType::PhotoFailed])).await.expect("lists");
    assert_eq!(failed.up_to, all.up_to);
    let is_failed = |event: &&Event| event.event_type == EventType::PhotoFailed.as_str();
    assert_eq!(failed.events, all.events.iter().filter(is_failed).cloned().collect::<Vec<_>>());
    let other = EventQuery { album: Some(crate::model::ids::AlbumId::generate()), ..query(Vec::new()) };
    assert_eq!(events.list(&fixture.tenant, other).await.expect("lists").events, []);
    // What all streams read has them too, and knows its end.
    let of_all = events.read_after(all.events[0].sequence - 1, 1000).await.expect("reads");
    assert!(all.events.iter().all(|event| of_all.contains(event)));
    assert_eq!(events.newest().await.expect("finds"), of_all.last().expect("an event").sequence);
}

async fn another_tenant_reads_none_of_them(fixture: &AlbumFixture) {
    let other = AlbumFixture::create(&fixture.store).await;
    assert_eq!(list(&other, 0, 500).await.events, []);
    other.delete().await;
}

async fn only_the_holder_of_the_task_publishes(fixture: &AlbumFixture, lease: TaskLease) {
    let publisher = &fixture.store.event_publisher;
    let another = TaskLease { holder: ProcessId::generate(), ..lease };
    assert_error_kind(publisher.publish(another).await, StoreErrorKind::Conflict);
    let now = OffsetDateTime::now_utc();
    assert_error_kind(publisher.remove_expired(another, now).await, StoreErrorKind::Conflict);
}

async fn a_deleted_album_is_told_with_its_photos(fixture: &AlbumFixture, lease: TaskLease) {
    let before = list(fixture, 0, 500).await.up_to;
    let album = fixture.create_album(super::fixture::album_config()).await;
    album.create_photos(3).await;
    let id = album.album;
    // Closed twice, as when its deletion was interrupted.
    fixture.store.albums.close(&fixture.tenant, id).await.expect("closes");
    album.delete().await;
    let events = publish_until(fixture, lease, before, EventType::AlbumDeleted).await;
    let deleted = |event: &&Event| event.event_type == EventType::AlbumDeleted.as_str();
    let told: Vec<Value> =
        events.iter().filter(deleted).map(|event| Value::from(event.data.clone())).collect();
    assert_eq!(told, [json!({ "albumId": id, "photos": 3, "cause": "request" })]);
}

async fn deleted_events_are_a_loss_for_those_who_have_not_read_them(
    fixture: &AlbumFixture,
    lease: TaskLease,
) {
    let (events, publisher) = (&fixture.store.events, &fixture.store.event_publisher);
    let tenant = &fixture.tenant;
    let all = list(fixture, 0, 500).await;
    assert_eq!(events.find_loss(tenant, 0).await.expect("looks"), None);
    let before_all = OffsetDateTime::now_utc() - time::Duration::DAY;
    assert!(!publisher.has_expired(before_all).await.expect("looks"));
    assert!(publisher.has_expired(OffsetDateTime::now_utc()).await.expect("looks"));
    assert_eq!(publisher.remove_expired(lease, before_all).await.expect("removes none"), 0);
    let kept = &all.events[all.events.len() - 1];
    let removed = publisher.remove_expired(lease, kept.created_at).await.expect("removes");
    assert!(removed >= all.events.len() as u64 - 1, "{removed}");
    let left = list(fixture, 0, 500).await;
    assert_eq!((&left.events[..], left.up_to), (std::slice::from_ref(kept), all.up_to));
    let newest_lost = all.events[all.events.len() - 2].sequence;
    let loss = events.find_loss(tenant, 0).await.expect("looks").expect("events are lost");
    assert_eq!((loss.resume_after, loss.oldest), (newest_lost, Some(kept.created_at)));
    for read in [newest_lost, kept.sequence] {
        assert_eq!(events.find_loss(tenant, read).await.expect("looks"), None);
    }
    let tomorrow = OffsetDateTime::now_utc() + time::Duration::DAY;
    publisher.remove_expired(lease, tomorrow).await.expect("removes the rest");
    let loss = events.find_loss(tenant, newest_lost).await.expect("looks").expect("an event is lost");
    assert_eq!((loss.resume_after, loss.oldest), (kept.sequence, None));
    // A position that only a database from before its restoration can have given.
    let page = list(fixture, kept.sequence + 1000, 500).await;
    assert_eq!((page.events.len(), page.up_to), (0, kept.sequence));
    assert!(events.find_loss(tenant, kept.sequence + 1000).await.expect("looks").is_some());
}
