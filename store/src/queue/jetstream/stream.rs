//! The stream on the server: created, published to, pulled from. Knows messages and what they name; knows no database.
//!
//! Every replica creates the stream and its consumer if they are missing, with the same settings, and again if the server
//! has lost them. Nothing here waits for an unavailable server: callers get an error at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, AckKind, Context, ErrorCode};
use async_nats::{ConnectOptions, Event};
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::message;
use super::settings::QueueSettings;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::encoding::to_micros;
use crate::traits::{Result, UnpublishedPhoto};

/// The name of the consumer that all workers share.
const CONSUMER: &str = "workers";

/// Time limit of a request. A healthy server responds within milliseconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit of acknowledgements. The server redelivers what was not acknowledged after the ack wait.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// When callers should try again after the server was unavailable.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How many messages all workers together may have: far more than a thousand workers lease, and a bound on the memory of
/// the server.
const MAX_ACK_PENDING: i64 = 65_536;

/// How often a message is delivered. Every delivery counts, also those whose photo another worker has leased or for which
/// the database was unavailable. Only the database fails photos, by counting leases that expired without a result; the
/// photo of a message that exceeds this number is left to the republisher.
const MAX_DELIVERIES: i64 = 10_000;

/// After this time the stream drops a message. The republisher has published its photo again by then.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// A message that was delivered and not yet acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// The photo that it names; `None` if its text is unknown.
    pub(crate) queued: Option<UnpublishedPhoto>,
    /// Whether it was delivered before.
    pub(crate) is_redelivered: bool,
    message: jetstream::Message,
}

/// Number of messages in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lag {
    /// Not delivered to a worker yet.
    pub(crate) waiting: usize,
    /// Delivered and not acknowledged.
    pub(crate) unacknowledged: usize,
}

/// The result of publishing photos.
#[derive(Debug, Default)]
pub(crate) struct PublishOutcome {
    /// Photos whose messages are in the stream now.
    pub(crate) stored: Vec<UnpublishedPhoto>,
    /// How many of them were in the stream already.
    pub(crate) duplicates: usize,
    /// Why the others are not in the stream.
    pub(crate) error: Option<StoreError>,
}

/// The connection to the servers and the stream on them.
pub(crate) struct WorkStream {
    settings: QueueSettings,
    context: Context,
    /// The consumer; `None` until it is known to exist.
    consumer: Mutex<Option<PullConsumer>>,
    /// Notified when the stream was created: nothing that was published before is in it.
    recreated: Notify,
}

/// Connects with the options of the settings and those that are added.
pub(super) async fn connect(
    settings: &QueueSettings,
    add: impl FnOnce(ConnectOptions) -> ConnectOptions,
) -> Result<Context> {
    let servers = settings.server_addresses()?;
    let options = settings
        .connect_options()
        .await?
        .name("photofinish")
        .connection_timeout(REQUEST_TIMEOUT)
        .request_timeout(Some(REQUEST_TIMEOUT));
    let client = add(options).connect(servers).await.map_err(unavailable_because("connect to the queue"))?;
    let mut context = jetstream::new(client);
    context.set_timeout(REQUEST_TIMEOUT);
    Ok(context)
}

/// Looks for the stream; `None` if the servers have none of this name.
pub(super) async fn find_stream(context: &Context, name: &str) -> Result<Option<Stream>> {
    match context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream)),
        Err(cause) => match cause.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Ok(None)
            }
            _ => Err(unavailable_because("look for the work stream")(cause)),
        },
    }
}

impl WorkStream {
    /// Connects in the background without a time limit, and again whenever the connection is lost.
    pub(crate) async fn open(settings: QueueSettings) -> Result<Self> {
        let add = |options: ConnectOptions| options.retry_on_initial_connect().event_callback(log_event);
        let context = connect(&settings, add).await?;
        Ok(Self { settings, context, consumer: Mutex::default(), recreated: Notify::new() })
    }

    /// Waits until the stream is created because the server did not have it.
    pub(crate) async fn wait_until_recreated(&self) {
        self.recreated.notified().await;
    }

    /// Returns how many messages wait and are in progress; an error if the servers do not respond.
    pub(crate) async fn lag(&self) -> Result<Lag> {
        const OPERATION: &str = "read the lag of the queue";
        let consumer = self.ensure_consumer().await?;
        let info = consumer.get_info().await.map_err(|cause| self.fail_and_clear(OPERATION, cause))?;
        let waiting = usize::try_from(info.num_pending).unwrap_or(usize::MAX);
        Ok(Lag { waiting, unacknowledged: info.num_ack_pending })
    }

    /// Returns when the oldest message in the stream was published, in microseconds; `None` if the stream is empty.
    pub(crate) async fn oldest_timestamp(&self) -> Result<Option<i64>> {
        let stream = self.get_stream("read the oldest message of the queue").await?;
        let state = &stream.cached_info().state;
        Ok((state.messages > 0).then(|| to_micros(state.first_timestamp)))
    }

    /// Returns the stream, with what is known of it now.
    pub(super) async fn get_stream(&self, operation: &'static str) -> Result<Stream> {
        self.ensure_consumer().await?;
        let stream = self.context.get_stream(&self.settings.stream).await;
        stream.map_err(|cause| self.fail_and_clear(operation, cause))
    }

    /// Publishes photos in order and waits until the server has written them all.
    pub(crate) async fn publish(&self, photos: &[UnpublishedPhoto]) -> Result<PublishOutcome> {
        const OPERATION: &str = "publish photos";
        // Checked first: without the stream there would be no response.
        self.ensure_consumer().await?;
        let mut sent = Vec::with_capacity(photos.len());
        for photo in photos {
            let text = message::encode(photo);
            let publish = PublishMessage::build().message_id(&text).payload(text.into());
            let acknowledgement = self
                .context
                .send_publish(self.subject(), publish)
                .await
                .map_err(unavailable_because(OPERATION))?;
            sent.push(acknowledgement.into_future());
        }
        let mut published = PublishOutcome::default();
        for (photo, acknowledgement) in photos.iter().zip(join_all(sent).await) {
            match acknowledgement {
                Ok(written) => {
                    published.stored.push(*photo);
                    published.duplicates += usize::from(written.duplicate);
                }
                Err(cause) => published.error = Some(self.fail_and_clear(OPERATION, cause)),
            }
        }
        Ok(published)
    }

    /// Pulls up to `limit` waiting messages; if there is none, waits up to `max_wait` for the first one.
    pub(crate) async fn pull(&self, limit: usize, max_wait: Duration) -> Result<Vec<Delivery>> {
        match self.pull_once(limit, max_wait).await {
            // The server has lost the consumer, or the consumer moves to another server: created if missing, and tried again.
            Err(_) if self.is_connected() => self.pull_once(limit, max_wait).await,
            pulled => pulled,
        }
    }

    async fn pull_once(&self, limit: usize, max_wait: Duration) -> Result<Vec<Delivery>> {
        const OPERATION: &str = "pull photos from the queue";
        let consumer = self.ensure_consumer().await?;
        let pulled = consumer.fetch().max_messages(limit).expires(max_wait).messages().await;
        let mut messages = pulled.map_err(|cause| self.fail_and_clear(OPERATION, cause))?;
        let mut deliveries = Vec::new();
        while let Some(next) = messages.next().await {
            match next {
                Ok(message) => deliveries.push(Delivery::from_message(message)),
                Err(cause) if deliveries.is_empty() => {
                    self.clear_consumer();
                    return Err(unavailable(OPERATION).with_source(std::io::Error::other(cause)));
                }
                // The messages received so far are used; the next pull gets the error again.
                Err(_) => break,
            }
        }
        Ok(deliveries)
    }

    /// Acknowledges messages, or asks for their redelivery. If the server does not receive it, it delivers them again
    /// after the ack wait, and the database says then that there is nothing to do.
    pub(crate) async fn acknowledge(&self, deliveries: &[Delivery], kind: AckKind) {
        if deliveries.is_empty() || !self.is_connected() {
            return;
        }
        let acknowledgements = join_all(deliveries.iter().map(|delivery| delivery.message.ack_with(kind)));
        match tokio::time::timeout(ACK_TIMEOUT, acknowledgements).await {
            Ok(results) => {
                if let Some(error) = results.into_iter().find_map(std::result::Result::err) {
                    tracing::debug!(%error, "failed to acknowledge messages");
                }
            }
            Err(_elapsed) => tracing::debug!("failed to acknowledge messages: timed out"),
        }
    }

    /// Returns the consumer, and creates it if it is not known to exist.
    async fn ensure_consumer(&self) -> Result<PullConsumer> {
        if !self.is_connected() {
            return Err(unavailable("connect to the queue"));
        }
        if let Some(consumer) = self.cached_consumer().clone() {
            return Ok(consumer);
        }
        let consumer = self.ensure_stream().await?;
        *self.cached_consumer() = Some(consumer.clone());
        Ok(consumer)
    }

    /// Creates the stream and its consumer, or updates their settings; any number of replicas may do so.
    async fn ensure_stream(&self) -> Result<PullConsumer> {
        const OPERATION: &str = "create the work stream";
        let found = find_stream(&self.context, &self.settings.stream).await?;
        let replicas = found.map_or(0, |stream| stream.cached_info().config.num_replicas);
        let config = stream_config(&self.settings, replicas);
        match self.context.update_stream(&config).await {
            Ok(_) => {}
            Err(cause) if cause.kind() == CreateStreamErrorKind::NotFound => {
                self.context.create_stream(config).await.map_err(unavailable_because(OPERATION))?;
                tracing::info!(stream = self.settings.stream, "created the work stream");
                self.recreated.notify_one();
            }
            Err(cause) => return Err(unavailable_because(OPERATION)(cause)),
        }
        let created = self.context.create_consumer_on_stream(self.consumer_config(), &self.settings.stream);
        created.await.map_err(unavailable_because("create the consumer of the work stream"))
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

    pub(super) fn subject(&self) -> String {
        subject(&self.settings)
    }

    /// Waits until acknowledgements are sent, unless the server is unavailable.
    pub(crate) async fn flush(&self) {
        if self.is_connected()
            && tokio::time::timeout(ACK_TIMEOUT, self.context.client().flush()).await.is_err()
        {
            tracing::warn!("failed to send last acknowledgements to the queue: timed out");
        }
    }

    fn is_connected(&self) -> bool {
        self.context.client().connection_state() == State::Connected
    }

    fn cached_consumer(&self) -> std::sync::MutexGuard<'_, Option<PullConsumer>> {
        self.consumer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next call check stream and consumer again: an error may mean that they are gone.
    fn clear_consumer(&self) {
        *self.cached_consumer() = None;
    }

    /// Clears the consumer and returns the error of `operation`.
    fn fail_and_clear(
        &self,
        operation: &'static str,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> StoreError {
        self.clear_consumer();
        unavailable_because(operation)(cause)
    }
}

impl Delivery {
    fn from_message(message: jetstream::Message) -> Self {
        let is_redelivered = message.info().is_ok_and(|info| info.delivered > 1);
        Self { queued: message::decode(&message.payload), is_redelivered, message }
    }
}

fn subject(settings: &QueueSettings) -> String {
    format!("{}.work", settings.stream)
}

/// The settings of a stream that `replicas` servers store now. More than this process was told to want are kept: the operator
/// has added them since, and every start and every outage would take them away.
fn stream_config(settings: &QueueSettings, replicas: usize) -> Config {
    Config {
        name: settings.stream.clone(),
        description: Some("photos that wait to be read".into()),
        subjects: vec![subject(settings)],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        num_replicas: settings.replicas.max(replicas),
        discard: DiscardPolicy::Old,
        max_age: MAX_AGE,
        duplicate_window: settings.duplicate_window().min(MAX_AGE),
        ..Config::default()
    }
}

/// Logs changes of the connection once each, so that an outage is two lines of the log.
async fn log_event(event: Event) {
    match event {
        Event::Connected | Event::Disconnected => {
            tracing::info!(%event, "connection to the queue changed")
        }
        Event::ServerError(_) | Event::ClientError(_) => tracing::warn!(%event, "queue reported an error"),
        event => tracing::debug!(%event, "queue reported an event"),
    }
}

fn unavailable(operation: &'static str) -> StoreError {
    let mut error = StoreError::new(StoreErrorKind::Unavailable, operation);
    error.retry_after = Some(RETRY_AFTER);
    error.is_from_queue = true;
    error
}

/// Converts an error of `operation`.
pub(super) fn unavailable_because<E: std::error::Error + Send + Sync + 'static>(
    operation: &'static str,
) -> impl Fn(E) -> StoreError {
    move |cause| unavailable(operation).with_source(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_the_replicas_that_an_operator_has_added() {
        let settings = |replicas| QueueSettings {
            url: "nats://127.0.0.1".into(),
            credentials: None,
            stream: "test".into(),
            replicas,
            ack_wait: Duration::from_secs(60),
            republish_interval: Duration::from_secs(60),
        };
        for (wanted, now, expected) in [(1, 0, 1), (1, 3, 3), (3, 1, 3), (3, 3, 3)] {
            assert_eq!(stream_config(&settings(wanted), now).num_replicas, expected, "{wanted} {now}");
        }
    }
}
