//! The stream on the server: made, filled, pulled from. Knows messages and their names; knows no rows.
//!
//! Every replica makes sure of the stream and its consumer by itself, with the same settings, and does so again when
//! the server has lost them. Nothing here waits for a server that is away: callers are told at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::Event;
use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, AckKind, Context};
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::message;
use super::settings::QueueSettings;
use crate::error::{StoreError, StoreErrorKind};
use crate::sql::row_types::micros;
use crate::traits::{Result, UnpublishedPhoto};

/// The consumer that all workers share.
const CONSUMER: &str = "workers";

/// How long a request may take. A healthy server answers in milliseconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long telling the server about messages may take; what it was not told it finds out by the ack wait.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// When to try again after the server was away.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What all workers together may have: far more than a thousand workers take, and a bound on what the server remembers.
const MAX_ACK_PENDING: i64 = 65_536;

/// Every delivery counts, also those that found their photo with another worker or no rows that answered; what ends a photo
/// are the rows, which count only leases that ended without a word. A message that gets so far is left to the sweeper.
const MAX_DELIVERIES: i64 = 10_000;

/// A message that nobody takes any more goes after so long; the sweeper has published its photo anew by then.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// A message that was delivered, until it is settled.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// What it names; `None` for a message that is not one of ours.
    pub(crate) queued: Option<UnpublishedPhoto>,
    /// Whether it had been delivered before.
    pub(crate) is_redelivered: bool,
    message: jetstream::Message,
}

/// Messages by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lag {
    /// In the stream, with no worker yet.
    pub(crate) waiting: usize,
    /// With workers.
    pub(crate) unacknowledged: usize,
}

/// What became of photos to publish.
#[derive(Debug, Default)]
pub(crate) struct PublishOutcome {
    /// Those that are in the stream now.
    pub(crate) stored: Vec<UnpublishedPhoto>,
    /// How many of them it had already.
    pub(crate) duplicates: usize,
    /// Why the others are not.
    pub(crate) error: Option<StoreError>,
}

/// The connection to the servers and the stream on them.
pub(crate) struct WorkStream {
    settings: QueueSettings,
    context: Context,
    /// The consumer, once made sure of.
    consumer: Mutex<Option<PullConsumer>>,
    /// Rings when the stream had to be made: whatever was published before is not in it.
    recreated: Notify,
}

impl WorkStream {
    /// Connects in the background, for as long as it takes, and again whenever the connection is lost.
    pub(crate) async fn open(settings: QueueSettings) -> Result<Self> {
        let servers = settings.server_addresses()?;
        let client = settings
            .connect_options()
            .await?
            .name("photofinish")
            .retry_on_initial_connect()
            .event_callback(log_event)
            .connection_timeout(REQUEST_TIMEOUT)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .connect(servers)
            .await
            .map_err(unavailable_because("connect to the queue"))?;
        let mut context = jetstream::new(client);
        context.set_timeout(REQUEST_TIMEOUT);
        Ok(Self { settings, context, consumer: Mutex::default(), recreated: Notify::new() })
    }

    /// Waits until the stream had to be made.
    pub(crate) async fn wait_until_recreated(&self) {
        self.recreated.notified().await;
    }

    /// Whether the servers answer and have the stream.
    pub(crate) async fn lag(&self) -> Result<Lag> {
        const OPERATION: &str = "ask the queue for its lag";
        let consumer = self.ensure_consumer().await?;
        let info = consumer.get_info().await.map_err(|cause| self.fail_and_clear(OPERATION, cause))?;
        let waiting = usize::try_from(info.num_pending).unwrap_or(usize::MAX);
        Ok(Lag { waiting, unacknowledged: info.num_ack_pending })
    }

    /// When the oldest message that is still there came, microseconds; `None` for an empty stream.
    pub(crate) async fn oldest_timestamp(&self) -> Result<Option<i64>> {
        const OPERATION: &str = "ask the queue for its oldest message";
        self.ensure_consumer().await?;
        let stream = self.context.get_stream(&self.settings.stream).await;
        let stream = stream.map_err(|cause| self.fail_and_clear(OPERATION, cause))?;
        let state = &stream.cached_info().state;
        Ok((state.messages > 0).then(|| micros(state.first_timestamp)))
    }

    /// Publishes photos in order, and waits for the server to have written them all.
    pub(crate) async fn publish(&self, photos: &[UnpublishedPhoto]) -> Result<PublishOutcome> {
        const OPERATION: &str = "publish photos";
        // Made sure of first: without the stream nobody would answer.
        self.ensure_consumer().await?;
        let mut sent = Vec::with_capacity(photos.len());
        for photo in photos {
            let text = message::encode(photo);
            let publish = PublishMessage::build().message_id(&text).payload(text.into());
            let answer = self
                .context
                .send_publish(self.subject(), publish)
                .await
                .map_err(unavailable_because(OPERATION))?;
            sent.push(answer.into_future());
        }
        let mut published = PublishOutcome::default();
        for (photo, answer) in photos.iter().zip(join_all(sent).await) {
            match answer {
                Ok(kept) => {
                    published.stored.push(*photo);
                    published.duplicates += usize::from(kept.duplicate);
                }
                Err(cause) => published.error = Some(self.fail_and_clear(OPERATION, cause)),
            }
        }
        Ok(published)
    }

    /// Takes up to `limit` messages that wait; when none does, waits for the first one, `at_most` so long.
    pub(crate) async fn pull(&self, limit: usize, at_most: Duration) -> Result<Vec<Delivery>> {
        match self.pull_once(limit, at_most).await {
            // The server has lost the consumer, or it moves to another server: made sure of, and asked once more.
            Err(_) if self.is_connected() => self.pull_once(limit, at_most).await,
            answer => answer,
        }
    }

    async fn pull_once(&self, limit: usize, at_most: Duration) -> Result<Vec<Delivery>> {
        const OPERATION: &str = "pull photos from the queue";
        let consumer = self.ensure_consumer().await?;
        let pulled = consumer.fetch().max_messages(limit).expires(at_most).messages().await;
        let mut messages = pulled.map_err(|cause| self.fail_and_clear(OPERATION, cause))?;
        let mut deliveries = Vec::new();
        while let Some(next) = messages.next().await {
            match next {
                Ok(message) => deliveries.push(Delivery::from_message(message)),
                Err(cause) if deliveries.is_empty() => {
                    self.clear_consumer();
                    return Err(unavailable(OPERATION).with_source(std::io::Error::other(cause)));
                }
                // What came is worked on; the next pull meets the error again.
                Err(_) => break,
            }
        }
        Ok(deliveries)
    }

    /// Tells the server what became of messages. What it does not hear it finds out: they are delivered again after
    /// the ack wait, and the rows say then that there is nothing to do.
    pub(crate) async fn acknowledge(&self, deliveries: &[Delivery], what: AckKind) {
        if deliveries.is_empty() || !self.is_connected() {
            return;
        }
        let telling = join_all(deliveries.iter().map(|delivery| delivery.message.ack_with(what)));
        match tokio::time::timeout(ACK_TIMEOUT, telling).await {
            Ok(told) => {
                if let Some(error) = told.into_iter().find_map(std::result::Result::err) {
                    tracing::debug!(error = %error, "the queue was not told of messages");
                }
            }
            Err(_elapsed) => tracing::debug!("the queue was not told of messages in time"),
        }
    }

    /// The consumer, made sure of when it is not known to be there.
    async fn ensure_consumer(&self) -> Result<PullConsumer> {
        if !self.is_connected() {
            return Err(unavailable("reach the queue"));
        }
        if let Some(consumer) = self.cached_consumer().clone() {
            return Ok(consumer);
        }
        let consumer = self.ensure_stream().await?;
        *self.cached_consumer() = Some(consumer.clone());
        Ok(consumer)
    }

    /// Makes the stream and its consumer, or brings them to these settings; the same from any number of replicas.
    async fn ensure_stream(&self) -> Result<PullConsumer> {
        const OPERATION: &str = "make the work stream";
        let config = self.stream_config();
        match self.context.update_stream(&config).await {
            Ok(_) => {}
            Err(cause) if cause.kind() == CreateStreamErrorKind::NotFound => {
                self.context.create_stream(config).await.map_err(unavailable_because(OPERATION))?;
                tracing::info!(stream = self.settings.stream, "the work stream was made");
                self.recreated.notify_one();
            }
            Err(cause) => return Err(unavailable_because(OPERATION)(cause)),
        }
        let created = self.context.create_consumer_on_stream(self.consumer_config(), &self.settings.stream);
        created.await.map_err(unavailable_because("make the consumer of the work stream"))
    }

    fn stream_config(&self) -> Config {
        Config {
            name: self.settings.stream.clone(),
            description: Some("photos that wait to be read".into()),
            subjects: vec![self.subject()],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            num_replicas: self.settings.replicas,
            discard: DiscardPolicy::Old,
            max_age: MAX_AGE,
            duplicate_window: self.settings.duplicate_window().min(MAX_AGE),
            ..Config::default()
        }
    }

    fn consumer_config(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(CONSUMER.into()),
            description: Some("the workers, all of them".into()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.settings.ack_wait,
            max_ack_pending: MAX_ACK_PENDING,
            max_deliver: MAX_DELIVERIES,
            ..pull::Config::default()
        }
    }

    fn subject(&self) -> String {
        format!("{}.work", self.settings.stream)
    }

    /// Waits until the server has what was told it, as long as it is there.
    pub(crate) async fn flush(&self) {
        if self.is_connected()
            && tokio::time::timeout(ACK_TIMEOUT, self.context.client().flush()).await.is_err()
        {
            tracing::warn!("the queue's server did not take the last answers in time");
        }
    }

    fn is_connected(&self) -> bool {
        self.context.client().connection_state() == State::Connected
    }

    fn cached_consumer(&self) -> std::sync::MutexGuard<'_, Option<PullConsumer>> {
        self.consumer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next call makes sure of stream and consumer again: the error may be that they are gone.
    fn clear_consumer(&self) {
        *self.cached_consumer() = None;
    }

    fn fail_and_clear(
        &self,
        what: &'static str,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> StoreError {
        self.clear_consumer();
        unavailable_because(what)(cause)
    }
}

impl Delivery {
    fn from_message(message: jetstream::Message) -> Self {
        let is_redelivered = message.info().is_ok_and(|info| info.delivered > 1);
        Self { queued: message::decode(&message.payload), is_redelivered, message }
    }
}

/// Once per change, so that an outage is two lines of the log.
async fn log_event(event: Event) {
    match event {
        Event::Connected | Event::Disconnected => {
            tracing::info!(%event, "the connection to the queue changed")
        }
        Event::ServerError(_) | Event::ClientError(_) => tracing::warn!(%event, "the queue has an error"),
        event => tracing::debug!(%event, "the queue says"),
    }
}

fn unavailable(what: &'static str) -> StoreError {
    let mut error = StoreError::new(StoreErrorKind::Unavailable, what);
    error.retry_after = Some(RETRY_AFTER);
    error.is_from_queue = true;
    error
}

/// Turns an error of the call named `what` into the store's.
fn unavailable_because<E: std::error::Error + Send + Sync + 'static>(
    what: &'static str,
) -> impl Fn(E) -> StoreError {
    move |cause| unavailable(what).with_source(cause)
}
