//! Deliveries that are not to be made, and events that wait for theirs.

use std::time::Duration;

use time::OffsetDateTime;

use super::fixture::AlbumFixture;
use super::webhooks::{DAY, attempt, create, delete, publish_event, take};
use crate::error::StoreErrorKind;
use crate::model::event::EventType;
use crate::model::process::TaskLease;
use crate::model::webhook::{AttemptOutcome, DeliveryQuery, DeliveryState, WebhookChange};

/// The part of [`super::webhooks::webhooks_suite`] about them.
pub(super) async fn webhook_edges(fixture: &AlbumFixture, lease: TaskLease) {
    a_disabled_webhook_is_sent_tests_alone(fixture, lease).await;
    an_event_is_kept_until_its_deliveries_have_ended(fixture, lease).await;
}

async fn a_disabled_webhook_is_sent_tests_alone(fixture: &AlbumFixture, lease: TaskLease) {
    let (deliveries, webhooks, tenant) =
        (&fixture.store.deliveries, &fixture.store.webhooks, &fixture.tenant);
    let webhook = create(fixture, &[EventType::AlbumDeleted], 1).await;
    publish_event(fixture, lease).await;
    let enable = async |enabled| {
        let change = WebhookChange { enabled: Some(enabled), ..WebhookChange::default() };
        webhooks.update(tenant, webhook.id, change).await.expect("updates");
    };
    enable(false).await;
    fixture.store.publish_late(webhook.id).await.expect("publishes");
    // Sent again where the process that made it has died.
    let test = deliveries.create_test(tenant, webhook.id, Duration::ZERO).await.expect("makes a test");
    let due = take(fixture, webhook.id).await;
    assert_eq!(due.iter().map(|due| due.id).collect::<Vec<_>>(), [test.id]);
    let state = Some(DeliveryState::Cancelled);
    let query = DeliveryQuery { before: None, state, event_type: None, limit: 10 };
    let cancelled = webhooks.list_deliveries(tenant, webhook.id, query).await.expect("lists");
    assert_eq!(cancelled.total, 1);
    enable(true).await;
    assert_eq!(take(fixture, webhook.id).await.len(), 0, "it stays cancelled");
    delete(fixture, webhook.id).await;
}

/// Deliveries take a day, and begin late where nothing ran for as long as events are kept.
async fn an_event_is_kept_until_its_deliveries_have_ended(fixture: &AlbumFixture, lease: TaskLease) {
    let webhook = create(fixture, &[EventType::AlbumDeleted], 1).await;
    publish_event(fixture, lease).await;
    let publisher = &fixture.store.event_publisher;
    let remove_all = async |days: u32| {
        let before = OffsetDateTime::now_utc() + days * DAY;
        let mut removed = 0;
        loop {
            match publisher.remove_expired(lease, before).await.expect("removes") {
                0 => return removed,
                more => removed += more,
            }
        }
    };
    remove_all(2).await;
    let due = take(fixture, webhook.id).await.pop().expect("the delivery is there");
    assert!(due.content.is_some(), "with its event");
    let deliveries = &fixture.store.deliveries;
    let test =
        deliveries.create_test(&fixture.tenant, webhook.id, Duration::ZERO).await.expect("makes a test");
    assert_eq!(remove_all(2).await, 0, "it is being attempted");
    let old_test = fixture.store.webhooks.get_delivery(&fixture.tenant, webhook.id, test.id).await;
    let error = old_test.err().map(|error| error.kind);
    assert_eq!(error, Some(StoreErrorKind::NotFound), "tests wait for no event");
    deliveries.finish(&due, &attempt(Some(500)), AttemptOutcome::Failed).await.expect("finishes");
    assert!(remove_all(2).await > 0);
    publish_event(fixture, lease).await;
    assert!(remove_all(4).await > 0);
    assert_eq!(take(fixture, webhook.id).await.len(), 0, "it is not kept for ever");
    delete(fixture, webhook.id).await;
}
