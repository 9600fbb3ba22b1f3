//! The rules of deliveries: the real sender, a real receiver that answers as it is told, and days that pass in the database
//! between two attempts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use photofinish_api::context::{RefusedUrl, WebhookGateway};
use photofinish_servers::{Answer, Receiver};
use photofinish_store::Store;
use photofinish_store::conformance::{AlbumFixture, album_config, test_settings};
use photofinish_store::model::event::{EventQuery, EventType};
use photofinish_store::model::ids::{ProcessId, WebhookId};
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::model::webhook::{Attempt, Delivery, DeliveryQuery, DeliveryState, NewWebhook};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::addresses::{AddressRules, AllowedTarget};
use super::client::{Lookup, SystemLookup, WebhookClients};
use super::sender::WebhookSender;
use crate::shutdown::wait_until_stopped;

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than a sender needs to find what is due.
const SEVERAL_POLLS: Duration = Duration::from_millis(800);
/// How long a test waits for an attempt.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// The pauses of the documentation, seconds.
const PAUSES: [u64; 8] = [5, 60, 300, 1800, 7200, 18_000, 28_800, 28_800];

struct Installation {
    _folder: tempfile::TempDir,
    store: Store,
    fixture: AlbumFixture,
    lease: TaskLease,
    receiver: Receiver,
    webhook: WebhookId,
    stop: watch::Sender<bool>,
    sender: JoinHandle<()>,
}

impl Installation {
    /// With a webhook whose receiver answers 500.
    async fn start() -> Self {
        Self::start_with(|_| Answer::of(500)).await
    }

    /// With a webhook whose receiver chooses its answers so, by their place among all.
    async fn start_with(choose: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(test_settings(folder.path())).await.unwrap();
        let fixture = AlbumFixture::create(&store).await;
        let receiver = Receiver::start(choose);
        let lease = store.tasks.take(Task::EventPublisher, ProcessId::generate(), HOUR).await;
        let webhook = NewWebhook {
            tenant: fixture.tenant,
            created_by: fixture.key.id,
            url: receiver.url(),
            label: String::new(),
            types: vec![EventType::AlbumDeleted],
            album: None,
            secret: [1; 32],
        };
        let webhook = store.webhooks.create(webhook, 1).await.unwrap().id;
        let allowed = AllowedTarget::parse(&format!("127.0.0.1:{}", receiver.port())).unwrap();
        let rules = AddressRules { allowed: vec![allowed], allows_http: true };
        let clients = WebhookClients::new(rules, Arc::new(SystemLookup)).unwrap();
        let (stop, stopped) = watch::channel(false);
        let sending = WebhookSender::new(store.clone(), clients);
        let sender = tokio::spawn(async move { sending.send_until(wait_until_stopped(stopped)).await });
        let lease = lease.unwrap().unwrap();
        Self { _folder: folder, store, fixture, lease, receiver, webhook, stop, sender }
    }

    /// Lets so many events happen.
    async fn publish(&self, events: usize) {
        for _ in 0..events {
            self.fixture.create_album(album_config()).await.delete().await;
        }
        self.store.event_publisher.publish(self.lease).await.unwrap();
    }

    async fn deliveries(&self) -> Vec<Delivery> {
        let query = DeliveryQuery { before: None, state: None, event_type: None, limit: 100 };
        self.store
            .webhooks
            .list_deliveries(&self.fixture.tenant, self.webhook, query)
            .await
            .unwrap()
            .deliveries
    }

    /// The attempts of the newest delivery.
    async fn attempts(&self) -> Vec<Attempt> {
        let newest = self.deliveries().await.remove(0);
        let webhooks = &self.store.webhooks;
        webhooks.get_delivery(&self.fixture.tenant, self.webhook, newest.id).await.unwrap().attempts
    }

    /// Whether the webhook is enabled; why not, if the service has disabled it.
    async fn is_enabled(&self) -> (bool, Option<String>) {
        let webhook = self.store.webhooks.get(&self.fixture.tenant, self.webhook).await.unwrap();
        (webhook.enabled, webhook.disabled_reason)
    }

    /// Waits until a condition holds for all deliveries.
    async fn wait_until_all(&self, what: &str, holds: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let begun = Instant::now();
        loop {
            let deliveries = self.deliveries().await;
            if deliveries.iter().all(&holds) {
                return deliveries;
            }
            assert!(begun.elapsed() < WAIT_LIMIT, "not {what}: {deliveries:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the outcomes of so many attempts of each delivery are written.
    async fn wait_for_attempts(&self, count: usize) -> Vec<Delivery> {
        let (tenant, webhooks) = (&self.fixture.tenant, &self.store.webhooks);
        for delivery in self.deliveries().await {
            let begun = Instant::now();
            while webhooks.get_delivery(tenant, self.webhook, delivery.id).await.unwrap().attempts.len()
                < count
            {
                assert!(begun.elapsed() < WAIT_LIMIT, "no attempt {count} of {delivery:?}");
                sleep(Duration::from_millis(20)).await;
            }
        }
        self.deliveries().await
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.sender.await.unwrap();
    }
}

#[tokio::test]
async fn a_delivery_is_attempted_nine_times_in_a_day_at_the_times_of_the_schedule() {
    let installation = Installation::start().await;
    installation.publish(1).await;
    for (number, pause) in (1..).zip(PAUSES) {
        let delivery = installation.wait_for_attempts(number).await.remove(0);
        assert_eq!((delivery.state, delivery.last_status), (DeliveryState::Pending, Some(500)));
        let left = delivery.next_attempt_at.unwrap() - OffsetDateTime::now_utc();
        let (left, pause) = (left.as_seconds_f64(), pause as f64);
        assert!(left > pause * 0.9 - 1.0 && left < pause * 1.1 + 0.01, "{left} s after attempt {number}");
        // A minute before, or in a whole shorter pause, nothing happens, and then it does: a busy machine takes seconds for this.
        let rest = left.min(60.0);
        installation.store.age_webhooks(Duration::from_secs_f64(left - rest)).await.unwrap();
        sleep(SEVERAL_POLLS).await;
        assert_eq!(installation.receiver.count(), number, "before attempt {}", number + 1);
        installation.store.age_webhooks(Duration::from_secs_f64(rest)).await.unwrap();
    }
    let last = installation.wait_for_attempts(9).await.remove(0);
    assert_eq!((last.state, last.next_attempt_at), (DeliveryState::Failed, None));
    installation.store.age_webhooks(10 * HOUR).await.unwrap();
    sleep(SEVERAL_POLLS).await;
    assert_eq!(installation.receiver.count(), 9);
    installation.stop().await;
}

#[tokio::test]
async fn a_webhook_that_refuses_everything_is_disabled_after_five_days() {
    let installation = Installation::start().await;
    installation.publish(20).await;
    // The whole schedule of 20 deliveries, in steps of nine hours: longer than the longest pause.
    for number in 1..=9 {
        installation.wait_for_attempts(number).await;
        installation.store.age_webhooks(9 * HOUR).await.unwrap();
    }
    installation.wait_until_all("failed", |delivery| delivery.state == DeliveryState::Failed).await;
    assert_eq!(installation.is_enabled().await, (true, None), "81 hours are not five days");
    assert_eq!(installation.receiver.count(), 180);
    // Nothing is attempted for a while. Then two events happen: the first attempt of either disables it.
    installation.store.age_webhooks(40 * HOUR).await.unwrap();
    assert_eq!(installation.is_enabled().await, (true, None));
    installation.publish(2).await;
    installation.wait_until_all("ended", |delivery| delivery.state != DeliveryState::Pending).await;
    assert_eq!(installation.is_enabled().await, (false, Some("FAILING".to_owned())));
    installation.store.event_publisher.publish(installation.lease).await.unwrap();
    let types = vec![EventType::WebhookDisabled];
    let query = EventQuery { after: 0, types, album: None, limit: 10 };
    let told = installation.store.events.list(&installation.fixture.tenant, query).await.unwrap();
    assert_eq!(told.events.len(), 1);
    // What happens now is not for it.
    let before = installation.receiver.count();
    installation.publish(1).await;
    installation.store.age_webhooks(9 * HOUR).await.unwrap();
    sleep(SEVERAL_POLLS).await;
    assert_eq!(installation.receiver.count(), before);
    installation.stop().await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_sent_nothing_more() {
    let installation = Installation::start_with(|_| Answer::of(410)).await;
    installation.publish(1).await;
    let delivery = installation.wait_for_attempts(1).await.remove(0);
    assert_eq!((delivery.state, delivery.last_status), (DeliveryState::Failed, Some(410)));
    assert_eq!(installation.is_enabled().await, (false, Some("GONE".to_owned())), "at once");
    installation.publish(3).await;
    installation.store.age_webhooks(9 * HOUR).await.unwrap();
    sleep(SEVERAL_POLLS).await;
    assert_eq!(installation.receiver.count(), 1);
    installation.stop().await;
}

#[tokio::test]
async fn a_test_whose_caller_is_gone_is_sent_once_more_and_no_further() {
    let installation = Installation::start().await;
    let (tenant, deliveries) = (&installation.fixture.tenant, &installation.store.deliveries);
    // As where the request ends before the attempt does.
    deliveries.create_test(tenant, installation.webhook, Duration::from_millis(1)).await.unwrap();
    let delivery = installation.wait_for_attempts(1).await.remove(0);
    assert_eq!((delivery.state, delivery.last_status), (DeliveryState::Failed, Some(500)));
    installation.stop().await;
}

/// Whoever makes webhooks could ask for one name after the other.
#[tokio::test]
async fn nobody_is_told_the_addresses_of_names_inside_the_network() {
    struct InsideLookup;
    #[async_trait]
    impl Lookup for InsideLookup {
        async fn lookup(&self, _: &str) -> std::io::Result<Vec<SocketAddr>> {
            Ok(vec![SocketAddr::from(([10, 96, 3, 7], 0))])
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(test_settings(folder.path())).await.unwrap();
    let fixture = AlbumFixture::create(&store).await;
    let webhook = NewWebhook {
        tenant: fixture.tenant,
        created_by: fixture.key.id,
        url: "https://orders.shop.svc/hook".to_owned(),
        label: String::new(),
        types: vec![EventType::AlbumDeleted],
        album: None,
        secret: [1; 32],
    };
    let refused = "the name has an address that is not public".to_owned();
    let clients = WebhookClients::new(AddressRules::default(), Arc::new(InsideLookup)).unwrap();
    let sender = WebhookSender::new(store.clone(), clients);
    assert_eq!(sender.check_url(&webhook.url).await, Err(RefusedUrl(refused.clone())));
    let webhook = store.webhooks.create(webhook, 1).await.unwrap().id;
    let test = store.deliveries.create_test(&fixture.tenant, webhook, HOUR).await.unwrap();
    assert_eq!(sender.send_test(test).await.unwrap().last_error, Some(refused));
}

/// What a busy receiver asks for counts where it is longer than the schedule, up to an hour: from the statuses that mean busy,
/// in seconds.
#[tokio::test]
async fn a_busy_receiver_says_when_to_come_back() {
    const DATE: &str = "Fri, 31 Dec 2100 23:59:59 GMT";
    let answers = [(429, "1800"), (503, "7200"), (429, "1"), (500, "7200"), (503, DATE)];
    let installation = Installation::start_with(move |place| {
        let (status, retry_after) = answers[place % answers.len()];
        Answer { headers: vec![("retry-after", retry_after.to_owned())], ..Answer::of(status) }
    })
    .await;
    installation.publish(1).await;
    // The least and the longest pause, seconds. The third to fifth are those of the schedule.
    let pauses = [(1800.0, 1800.0), (3600.0, 3600.0), (270.0, 330.0), (1620.0, 1980.0), (6480.0, 7920.0)];
    for (number, (least, longest)) in (1..).zip(pauses) {
        let delivery = installation.wait_for_attempts(number).await.remove(0);
        assert_eq!(delivery.last_status, Some(answers[number - 1].0));
        let left = (delivery.next_attempt_at.unwrap() - OffsetDateTime::now_utc()).as_seconds_f64();
        assert!(left > least - 2.0 && left < longest + 0.01, "{left} s after attempt {number}");
        installation.store.age_webhooks(Duration::from_secs_f64(longest)).await.unwrap();
    }
    installation.stop().await;
}

#[tokio::test]
async fn of_an_answer_a_kilobyte_is_kept_and_of_a_huge_one_the_beginning_is_read() {
    /// More than the buffers of both ends of a connection take.
    const HUGE: usize = 64 << 20;
    let installation = Installation::start_with(|place| {
        let length = if place == 0 { 2000 } else { HUGE };
        Answer { body: vec![b'x'; length], ..Answer::of(200) }
    })
    .await;
    for cut_off in [0, 1] {
        installation.publish(1).await;
        installation.wait_until_all("delivered", |delivery| delivery.state == DeliveryState::Delivered).await;
        assert_eq!(installation.attempts().await[0].answer, "x".repeat(1024));
        let begun = Instant::now();
        while installation.receiver.cut_off() < cut_off {
            assert!(begun.elapsed() < WAIT_LIMIT, "the answer was read to its end");
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(installation.receiver.cut_off(), cut_off);
    }
    installation.stop().await;
}

/// Takes as long as the sender waits.
#[tokio::test]
async fn an_answer_after_more_than_fifteen_seconds_is_none() {
    let installation = Installation::start_with(|place| {
        let delay = if place == 0 { Duration::from_secs(30) } else { Duration::ZERO };
        Answer { delay, ..Answer::of(200) }
    })
    .await;
    installation.publish(1).await;
    let delivery = installation.wait_for_attempts(1).await.remove(0);
    assert_eq!((delivery.state, delivery.last_status), (DeliveryState::Pending, None));
    let attempt = installation.attempts().await.remove(0);
    assert_eq!(attempt.error.as_deref(), Some("no answer within 15 s"));
    let took = attempt.duration.as_secs_f64();
    assert!((14.9..25.0).contains(&took), "{took} s");
    installation.store.age_webhooks(Duration::from_secs(6)).await.unwrap();
    installation.wait_until_all("delivered", |delivery| delivery.state == DeliveryState::Delivered).await;
    assert_eq!(installation.receiver.count(), 2);
    installation.stop().await;
}
