//! Webhooks and their deliveries.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::assert_error_kind;
use super::fixture::{AlbumFixture, LONG};
use super::webhook_edges;
use crate::error::StoreErrorKind;
use crate::model::album::Tenant;
use crate::model::event::{EventQuery, EventType};
use crate::model::ids::{ProcessId, WebhookId};
use crate::model::process::{Task, TaskLease};
use crate::model::webhook::{
    Attempt, AttemptOutcome, DeliveryQuery, DeliveryState, DueDelivery, NewWebhook, Redelivery, TEST_TYPE,
    Webhook, WebhookChange,
};
use crate::store::Store;
use crate::traits::DeliveryRoom;

/// The most webhooks of a tenant in this suite.
const LIMIT: u32 = 3;

pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// Checks the backends of [`crate::traits::Webhooks`] and [`crate::traits::DeliveryQueue`].
pub async fn webhooks_suite(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    a_webhook_is_created_changed_and_found_by_its_tenant_alone(&fixture).await;
    let publisher = ProcessId::generate();
    let taken = store.tasks.take(Task::EventPublisher, publisher, LONG).await;
    let lease = taken.expect("takes the task").expect("nobody else publishes");
    an_event_is_delivered_once_to_each_webhook_that_wants_it(&fixture, lease).await;
    a_delivery_is_attempted_again_until_it_fails_and_can_be_made_again(&fixture, lease).await;
    a_delivery_whose_process_died_is_attempted_again(&fixture, lease).await;
    a_rotated_secret_signs_beside_the_old_one(&fixture).await;
    a_webhook_that_is_gone_is_disabled_and_that_is_told(&fixture, lease).await;
    a_test_says_nothing_of_deliveries_unless_the_receiver_is_gone(&fixture, lease).await;
    the_webhooks_of_a_tenant_share_its_room(&fixture, lease).await;
    webhook_edges::webhook_edges(&fixture, lease).await;
    store.tasks.release(lease).await.expect("releases the task");
    fixture.delete().await;
}

pub(crate) async fn create(fixture: &AlbumFixture, types: &[EventType], secret: u8) -> Webhook {
    let webhook = NewWebhook {
        tenant: fixture.tenant,
        created_by: fixture.key.id,
        url: "https://timing.example/hook".into(),
        label: "timing".into(),
        types: types.to_vec(),
        album: None,
        secret: [secret; 32],
    };
    fixture.store.webhooks.create(webhook, LIMIT).await.expect("creates a webhook")
}

pub(super) async fn delete(fixture: &AlbumFixture, id: WebhookId) {
    fixture.store.webhooks.delete(&fixture.tenant, id).await.expect("deletes a webhook");
}

/// Creates and deletes an album, which is an event, and publishes it; returns how many events were.
pub(super) async fn publish_event(fixture: &AlbumFixture, lease: TaskLease) {
    fixture.create_album(super::fixture::album_config()).await.delete().await;
    let published = fixture.store.event_publisher.publish(lease).await.expect("publishes");
    assert!(published.events > 0);
}

/// Room for so many deliveries of each tenant, and for any number of one webhook, or of all.
pub(crate) struct Room {
    pub(crate) of_tenant: usize,
    pub(crate) webhook: Option<WebhookId>,
}

impl DeliveryRoom for Room {
    fn of_tenant(&self, _: &Tenant) -> usize {
        self.of_tenant
    }

    fn of_webhook(&self, webhook: WebhookId) -> usize {
        if self.webhook.is_none_or(|one| one == webhook) { 100 } else { 0 }
    }
}

/// Takes all due deliveries of a webhook.
pub(super) async fn take(fixture: &AlbumFixture, webhook: WebhookId) -> Vec<DueDelivery> {
    take_for(fixture, webhook, LONG).await
}

async fn take_for(fixture: &AlbumFixture, webhook: WebhookId, ttl: Duration) -> Vec<DueDelivery> {
    let room = Room { of_tenant: 100, webhook: Some(webhook) };
    fixture.store.deliveries.lease(100, ttl, &room).await.expect("leases deliveries")
}

pub(super) fn attempt(status: Option<u16>) -> Attempt {
    let now = OffsetDateTime::now_utc();
    Attempt {
        at: now - time::Duration::nanoseconds(i64::from(now.nanosecond() % 1000)),
        duration: Duration::from_millis(120),
        status,
        error: status.is_none().then(|| "no answer within 15 s".to_owned()),
        answer: "thank you".into(),
    }
}

async fn a_webhook_is_created_changed_and_found_by_its_tenant_alone(fixture: &AlbumFixture) {
    let (webhooks, tenant) = (&fixture.store.webhooks, &fixture.tenant);
    let made = create(fixture, &[EventType::AlbumIdle], 1).await;
    assert_eq!((made.enabled, made.pending, &made.types), (true, 0, &vec!["album.idle".to_owned()]));
    assert_eq!(webhooks.get(tenant, made.id).await.expect("finds it"), made);
    let other = AlbumFixture::create(&fixture.store).await;
    let foreign = &other.tenant;
    assert_error_kind(webhooks.get(foreign, made.id).await, StoreErrorKind::NotFound);
    assert_error_kind(webhooks.delete(foreign, made.id).await, StoreErrorKind::NotFound);
    let change = WebhookChange { label: Some("gate".into()), ..WebhookChange::default() };
    assert_error_kind(webhooks.update(foreign, made.id, change.clone()).await, StoreErrorKind::NotFound);
    let rotated = webhooks.rotate(foreign, made.id, [9; 32], LONG).await;
    assert_error_kind(rotated, StoreErrorKind::NotFound);
    let tested = fixture.store.deliveries.create_test(foreign, made.id, LONG).await;
    assert_error_kind(tested, StoreErrorKind::NotFound);
    let query = DeliveryQuery { before: None, state: None, event_type: None, limit: 10 };
    let listed = webhooks.list_deliveries(foreign, made.id, query).await;
    assert_error_kind(listed, StoreErrorKind::NotFound);
    assert_eq!(webhooks.list(foreign).await.expect("lists"), []);
    let changed = webhooks.update(tenant, made.id, change).await.expect("updates");
    assert_eq!((changed.label.as_str(), &changed.url, &changed.types), ("gate", &made.url, &made.types));
    let others = [create(fixture, &[], 2).await, create(fixture, &[], 3).await];
    let full = NewWebhook {
        tenant: *tenant,
        created_by: fixture.key.id,
        url: String::new(),
        label: String::new(),
        types: Vec::new(),
        album: None,
        secret: [4; 32],
    };
    assert_error_kind(webhooks.create(full, LIMIT).await, StoreErrorKind::Conflict);
    let ids: Vec<WebhookId> =
        webhooks.list(tenant).await.expect("lists").iter().map(|webhook| webhook.id).collect();
    assert_eq!(ids, [made.id, others[0].id, others[1].id]);
    for id in ids {
        delete(fixture, id).await;
        assert_error_kind(webhooks.get(tenant, id).await, StoreErrorKind::NotFound);
    }
    other.delete().await;
}

async fn an_event_is_delivered_once_to_each_webhook_that_wants_it(fixture: &AlbumFixture, lease: TaskLease) {
    let deliveries = &fixture.store.deliveries;
    let wants = create(fixture, &[EventType::AlbumDeleted, EventType::AlbumIdle], 1).await;
    let wants_not = create(fixture, &[EventType::PhotoReady], 2).await;
    publish_event(fixture, lease).await;
    assert!(deliveries.is_due().await.expect("looks"));
    assert_eq!(take(fixture, wants_not.id).await.len(), 0);
    let none = Room { of_tenant: 0, webhook: None };
    assert_eq!(deliveries.lease(100, LONG, &none).await.expect("leases none").len(), 0);
    let due = take(fixture, wants.id).await;
    assert_eq!(due.len(), 1);
    let content = due[0].content.as_ref().expect("the event is kept");
    let query = EventQuery { after: 0, types: Vec::new(), album: None, limit: 500 };
    let events = fixture.store.events.list(&fixture.tenant, query).await.expect("lists").events;
    let event = events.last().expect("an event");
    assert_eq!(
        (content.sequence, &content.data, due[0].event),
        (Some(event.sequence), &event.data, event.id)
    );
    assert_eq!((due[0].attempt, due[0].secrets.as_slice()), (1, &[[1; 32]][..]));
    assert_eq!(take(fixture, wants.id).await.len(), 0, "another process has it");
    let done =
        deliveries.finish(&due[0], &attempt(Some(204)), AttemptOutcome::Delivered).await.expect("finishes");
    assert_eq!((done.state, done.attempts, done.last_status), (DeliveryState::Delivered, 1, Some(204)));
    let late = deliveries.finish(&due[0], &attempt(None), AttemptOutcome::Failed).await;
    assert_error_kind(late, StoreErrorKind::Conflict);
    let webhook = fixture.store.webhooks.get(&fixture.tenant, wants.id).await.expect("finds it");
    assert!(webhook.last_success_at.is_some() && webhook.last_failure_at.is_none());
    delete(fixture, wants.id).await;
    delete(fixture, wants_not.id).await;
}

async fn a_delivery_is_attempted_again_until_it_fails_and_can_be_made_again(
    fixture: &AlbumFixture,
    lease: TaskLease,
) {
    let (deliveries, webhooks, tenant) =
        (&fixture.store.deliveries, &fixture.store.webhooks, &fixture.tenant);
    let webhook = create(fixture, &[EventType::AlbumDeleted], 1).await;
    publish_event(fixture, lease).await;
    let first = take(fixture, webhook.id).await.pop().expect("it is due");
    let failed = attempt(None);
    let outcome = AttemptOutcome::Retry(Duration::ZERO);
    let again = deliveries.finish(&first, &failed, outcome).await.expect("finishes");
    assert_eq!((again.state, again.last_error), (DeliveryState::Pending, failed.error.clone()));
    assert!(again.next_attempt_at.is_some());
    let second = take(fixture, webhook.id).await.pop().expect("it is due again");
    assert_eq!((second.id, second.attempt), (first.id, 2));
    assert_error_kind(deliveries.finish(&first, &failed, outcome).await, StoreErrorKind::Conflict);
    let refused = attempt(Some(500));
    deliveries.finish(&second, &refused, AttemptOutcome::Failed).await.expect("finishes");
    let detail = webhooks.get_delivery(tenant, webhook.id, first.id).await.expect("finds it");
    assert_eq!((detail.delivery.state, detail.attempts), (DeliveryState::Failed, vec![failed, refused]));
    assert_eq!(detail.content, first.content);
    let query = |state| DeliveryQuery { before: None, state, event_type: None, limit: 1 };
    let page = webhooks.list_deliveries(tenant, webhook.id, query(Some(DeliveryState::Failed))).await;
    let page = page.expect("lists");
    assert_eq!((page.deliveries.len(), page.next, page.total), (1, None, 1));
    let page = webhooks.list_deliveries(tenant, webhook.id, query(Some(DeliveryState::Pending))).await;
    assert_eq!(page.expect("lists").total, 0);
    let hour_ago = OffsetDateTime::now_utc() - time::Duration::HOUR;
    let tomorrow = OffsetDateTime::now_utc() + time::Duration::DAY;
    for (redelivery, queued) in [
        (Redelivery::FailedSince(tomorrow), 0),
        (Redelivery::FailedSince(hour_ago), 1),
        (Redelivery::FailedSince(hour_ago), 0),
    ] {
        assert_eq!(webhooks.redeliver(tenant, webhook.id, redelivery).await.expect("queues"), queued);
    }
    let third = take(fixture, webhook.id).await.pop().expect("it is due again");
    assert_eq!((third.id, third.event, third.attempt), (first.id, first.event, 1));
    let done = attempt(Some(200));
    let done = deliveries.finish(&third, &done, AttemptOutcome::Delivered).await.expect("finishes");
    assert_eq!((done.state, done.attempts), (DeliveryState::Delivered, 3));
    assert_eq!(webhooks.redeliver(tenant, webhook.id, Redelivery::One(first.id)).await.expect("queues"), 1);
    assert_eq!(take(fixture, webhook.id).await.len(), 1, "a delivered one too");
    delete(fixture, webhook.id).await;
}

/// A process may die between an attempt and its outcome: the next is made when the lease has expired.
async fn a_delivery_whose_process_died_is_attempted_again(fixture: &AlbumFixture, lease: TaskLease) {
    let webhook = create(fixture, &[EventType::AlbumDeleted], 1).await;
    publish_event(fixture, lease).await;
    let lost = take_for(fixture, webhook.id, Duration::ZERO).await.pop().expect("it is due");
    let next = take(fixture, webhook.id).await.pop().expect("it is due again");
    assert_eq!((lost.attempt, next.attempt, next.id), (1, 2, lost.id));
    assert_eq!(take(fixture, webhook.id).await.len(), 0, "another process has it");
    let refused = attempt(Some(500));
    let deliveries = &fixture.store.deliveries;
    let late = deliveries.finish(&lost, &refused, AttemptOutcome::Failed).await;
    assert_error_kind(late, StoreErrorKind::Conflict);
    let delivered = deliveries.finish(&next, &attempt(Some(200)), AttemptOutcome::Delivered).await;
    assert_eq!(delivered.expect("finishes").state, DeliveryState::Delivered);
    delete(fixture, webhook.id).await;
}

async fn a_rotated_secret_signs_beside_the_old_one(fixture: &AlbumFixture) {
    let (deliveries, webhooks, tenant) =
        (&fixture.store.deliveries, &fixture.store.webhooks, &fixture.tenant);
    let webhook = create(fixture, &[EventType::AlbumDeleted], 1).await;
    webhooks.rotate(tenant, webhook.id, [2; 32], LONG).await.expect("rotates");
    let test = deliveries.create_test(tenant, webhook.id, LONG).await.expect("makes a test");
    assert_eq!(test.secrets, [[2; 32], [1; 32]]);
    let content = test.content.as_ref().expect("a test has its content");
    assert_eq!((content.sequence, content.event_type.as_str()), (None, TEST_TYPE));
    assert_eq!(Value::from(content.data.clone()), json!({ "webhookId": webhook.id }));
    let done = deliveries.finish(&test, &attempt(Some(200)), AttemptOutcome::Delivered).await;
    assert_eq!(done.expect("finishes").state, DeliveryState::Delivered);
    // Again, for lack of an answer.
    webhooks.rotate(tenant, webhook.id, [4; 32], LONG).await.expect("rotates");
    let test = deliveries.create_test(tenant, webhook.id, LONG).await.expect("makes a test");
    assert_eq!(test.secrets, [[4; 32], [1; 32]], "receivers have the first one");
    webhooks.rotate(tenant, webhook.id, [3; 32], Duration::ZERO).await.expect("rotates");
    let test = deliveries.create_test(tenant, webhook.id, LONG).await.expect("makes a test");
    assert_eq!(test.secrets, [[3; 32]]);
    delete(fixture, webhook.id).await;
}

async fn a_webhook_that_is_gone_is_disabled_and_that_is_told(fixture: &AlbumFixture, lease: TaskLease) {
    let (deliveries, webhooks, tenant) =
        (&fixture.store.deliveries, &fixture.store.webhooks, &fixture.tenant);
    let webhook = create(fixture, &[EventType::AlbumDeleted], 1).await;
    publish_event(fixture, lease).await;
    publish_event(fixture, lease).await;
    let due = take(fixture, webhook.id).await;
    assert_eq!(due.len(), 2);
    deliveries.finish(&due[0], &attempt(Some(410)), AttemptOutcome::Gone).await.expect("finishes");
    let disabled = webhooks.get(tenant, webhook.id).await.expect("finds it");
    assert_eq!((disabled.enabled, disabled.disabled_reason.as_deref()), (false, Some("GONE")));
    // The other one was cancelled while it was attempted.
    let late = deliveries.finish(&due[1], &attempt(Some(200)), AttemptOutcome::Delivered).await;
    assert_error_kind(late, StoreErrorKind::Conflict);
    publish_event(fixture, lease).await;
    assert_eq!(take(fixture, webhook.id).await.len(), 0);
    let query = EventQuery { after: 0, types: vec![EventType::WebhookDisabled], album: None, limit: 10 };
    let told = fixture.store.events.list(tenant, query).await.expect("lists").events;
    assert_eq!(told.len(), 1);
    let expected = json!({ "webhookId": webhook.id, "reason": "GONE" });
    assert_eq!(Value::from(told[0].data.clone()), expected);
    let redelivery = Redelivery::FailedSince(OffsetDateTime::UNIX_EPOCH);
    assert_error_kind(webhooks.redeliver(tenant, webhook.id, redelivery).await, StoreErrorKind::Conflict);
    let change = WebhookChange { enabled: Some(true), ..WebhookChange::default() };
    let enabled = webhooks.update(tenant, webhook.id, change).await.expect("enables");
    assert_eq!((enabled.enabled, enabled.disabled_reason, enabled.pending), (true, None, 0));
    assert_eq!(webhooks.redeliver(tenant, webhook.id, redelivery).await.expect("queues"), 2);
    delete(fixture, webhook.id).await;
}

async fn a_test_says_nothing_of_deliveries_unless_the_receiver_is_gone(
    fixture: &AlbumFixture,
    lease: TaskLease,
) {
    let (deliveries, webhooks, tenant) =
        (&fixture.store.deliveries, &fixture.store.webhooks, &fixture.tenant);
    let webhook = create(fixture, &[EventType::AlbumDeleted], 1).await;
    let test = async |status: u16, outcome: AttemptOutcome| {
        let test = deliveries.create_test(tenant, webhook.id, LONG).await.expect("makes a test");
        deliveries.finish(&test, &attempt(Some(status)), outcome).await.expect("finishes");
    };
    let is_enabled = async || webhooks.get(tenant, webhook.id).await.expect("finds it").enabled;
    let fail_one = async || {
        publish_event(fixture, lease).await;
        let due = take(fixture, webhook.id).await.pop().expect("it is due");
        deliveries.finish(&due, &attempt(Some(500)), AttemptOutcome::Failed).await.expect("finishes");
    };
    // One delivery has failed for six days. Tests are not among the twenty that disable it.
    fail_one().await;
    fixture.store.age_webhooks(6 * DAY).await.expect("passes time");
    for _ in 0..30 {
        test(500, AttemptOutcome::Failed).await;
    }
    fail_one().await;
    assert!(is_enabled().await, "two deliveries are not twenty");
    for _ in 0..17 {
        fail_one().await;
    }
    // One that is accepted does not make up for the deliveries.
    test(200, AttemptOutcome::Delivered).await;
    let shown = webhooks.get(tenant, webhook.id).await.expect("finds it");
    assert!(shown.enabled && shown.last_success_at.is_some());
    fail_one().await;
    assert!(!is_enabled().await, "twenty deliveries have failed for six days");
    let change = WebhookChange { enabled: Some(true), ..WebhookChange::default() };
    webhooks.update(tenant, webhook.id, change).await.expect("enables");
    test(410, AttemptOutcome::Gone).await;
    let gone = webhooks.get(tenant, webhook.id).await.expect("finds it");
    assert_eq!((gone.enabled, gone.disabled_reason.as_deref()), (false, Some("GONE")));
    delete(fixture, webhook.id).await;
}

async fn the_webhooks_of_a_tenant_share_its_room(fixture: &AlbumFixture, lease: TaskLease) {
    let other = AlbumFixture::create(&fixture.store).await;
    let mut webhooks = Vec::new();
    for (fixture, secret) in [(fixture, 1), (fixture, 2), (&other, 3)] {
        webhooks.push(create(fixture, &[EventType::AlbumDeleted], secret).await.id);
    }
    for _ in 0..3 {
        publish_event(fixture, lease).await;
        publish_event(&other, lease).await;
    }
    let room = Room { of_tenant: 2, webhook: None };
    let due = fixture.store.deliveries.lease(100, LONG, &room).await.expect("leases deliveries");
    let of = |tenant: Tenant| due.iter().filter(|due| due.tenant == tenant).count();
    assert_eq!((of(fixture.tenant), of(other.tenant)), (2, 2));
    delete(fixture, webhooks[0]).await;
    delete(fixture, webhooks[1]).await;
    delete(&other, webhooks[2]).await;
    other.delete().await;
}
