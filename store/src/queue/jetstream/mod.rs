//! The work queue of the cluster profile: a JetStream work queue offers photos to workers; the database is authoritative.
//!
//! The stream decides nothing. A photo is confirmed, leased, finished and failed in the database, and a message only
//! says which photo to try next: a surplus message finds its photo leased or finished, and a lost message is published
//! again by the republisher.
//!
//! The stream carries fresh photos only. Crash suspects, photos whose earlier lease expired without a result, are leased
//! from the database, as in the embedded profile: an index contains exactly them, they are visible as soon as their lease
//! expires, and one can be leased alone without first pulling other photos from the stream. If a redelivered message
//! turns out to name a crash suspect, because its worker died, the message is dropped and the photo stays in the database.

mod message;
mod named;
mod outbox;
mod republisher;
mod settings;
mod stream;
mod stream_state;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::named::NamedPhotos;
use self::outbox::Outbox;
use self::republisher::Republisher;
pub use self::settings::QueueSettings;
use self::stream::{Delivery, WorkStream};
pub use self::stream_state::{StreamState, check_stream};
use crate::metric_names;
use crate::model::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use crate::model::photo::FailureReason;
use crate::traits::{
    ConfirmedUploads, FinishOutcome, Lease, LeaseKind, LeaseRequest, NamedLease, OutboxQueue, PhotoRef,
    PhotoResults, Queue, Reprocessed, Result, Upload,
};

/// How long an idle worker waits for a message. Short enough to stop a worker without delay.
const PULL_TIMEOUT: Duration = Duration::from_millis(250);

/// The queue, and the tasks that keep the stream in step with the database; they stop with it.
pub(crate) struct JetStreamQueue {
    database: Arc<dyn OutboxQueue>,
    stream: Arc<WorkStream>,
    /// Wakes the outbox.
    wakeup: Arc<Notify>,
    redelivery_delay: Duration,
    /// The messages of this process's leases. A crash suspect has none.
    leased_deliveries: Mutex<HashMap<LeaseId, Delivery>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl JetStreamQueue {
    /// Connects in the background and starts the tasks. An unavailable server is no error: photos can be confirmed
    /// without it.
    pub(crate) async fn open(settings: QueueSettings, database: Arc<dyn OutboxQueue>) -> Result<Self> {
        let redelivery_delay = settings.redelivery_delay();
        let stream = Arc::new(WorkStream::open(settings.clone()).await?);
        let wakeup = Arc::new(Notify::new());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let outbox = Outbox {
            database: Arc::clone(&database),
            stream: Arc::clone(&stream),
            wakeup: Arc::clone(&wakeup),
        };
        let republisher = Republisher {
            settings,
            database: Arc::clone(&database),
            stream: Arc::clone(&stream),
            wakeup: Arc::clone(&wakeup),
        };
        // They may be cancelled anywhere: the result is the same as if the process died there.
        tasks.spawn(stop.clone().run_until_cancelled_owned(outbox.run()));
        tasks.spawn(stop.clone().run_until_cancelled_owned(republisher.run()));
        tasks.close();
        let leased_deliveries = Mutex::default();
        Ok(Self { database, stream, wakeup, redelivery_delay, leased_deliveries, tasks, stop })
    }

    /// Checks that the servers respond and have the stream.
    pub(crate) async fn check_stream(&self) -> Result<()> {
        self.stream.lag().await.map(drop)
    }

    /// Returns the photos that the messages name.
    pub(crate) async fn list_named(&self) -> Result<NamedPhotos> {
        self.stream.list_named().await
    }

    /// Deletes the messages that name these photos.
    pub(crate) async fn delete_named(&self, is_erased: impl Fn(&PhotoRef) -> bool) -> Result<()> {
        self.stream.delete_named(is_erased).await
    }

    /// Stops the tasks and waits for them.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
        self.stream.flush().await;
    }

    /// Leases the photos that messages name, and acknowledges the messages whose photos cannot be leased.
    async fn lease_delivered(&self, deliveries: Vec<Delivery>, ttl: Duration) -> Result<Vec<Lease>> {
        let (valid, unknown): (Vec<_>, Vec<_>) =
            deliveries.into_iter().partition(|delivery| delivery.queued.is_some());
        if !unknown.is_empty() {
            tracing::warn!(
                messages = unknown.len(),
                "removing messages from the work stream that name no photo"
            );
            self.stream.acknowledge(&unknown, AckKind::Term).await;
        }
        let photos: Vec<PhotoRef> =
            valid.iter().filter_map(|delivery| Some(delivery.queued?.photo)).collect();
        let named = match self.database.lease_named(&photos, ttl).await {
            Ok(named) => named,
            Err(error) => {
                self.stream.acknowledge(&valid, AckKind::Nak(Some(self.redelivery_delay))).await;
                return Err(error);
            }
        };
        let mut outcomes = DeliveryOutcomes::default();
        for (delivery, named) in valid.into_iter().zip(named) {
            outcomes.add(delivery, named);
        }
        self.apply_outcomes(outcomes).await
    }

    async fn apply_outcomes(&self, outcomes: DeliveryOutcomes) -> Result<Vec<Lease>> {
        let redeliver = AckKind::Nak(Some(self.redelivery_delay));
        self.stream.acknowledge(&outcomes.finished, AckKind::Ack).await;
        self.stream.acknowledge(&outcomes.leased_elsewhere, redeliver).await;
        if !outcomes.crash_suspects.is_empty()
            && let Err(error) = self.drop_suspect_messages(&outcomes.crash_suspects).await
        {
            // The fresh photos are leased anyway; the messages of the suspects are delivered again.
            tracing::warn!(%error, "failed to drop messages of crash suspects, retrying at their redelivery");
        }
        let mut leases = Vec::with_capacity(outcomes.leased.len());
        let mut leased_deliveries = self.leased_deliveries();
        for (lease, delivery) in outcomes.leased {
            leased_deliveries.insert(lease.id, delivery);
            leases.push(lease);
        }
        Ok(leases)
    }

    /// Removes the messages of crash suspects from the stream; the photos stay in the database. They are marked as
    /// published first, so that the outbox does not publish them again. If the process dies in between, a surplus
    /// message remains and ends here again.
    async fn drop_suspect_messages(&self, suspects: &[Delivery]) -> Result<()> {
        let photos: Vec<_> = suspects.iter().filter_map(|delivery| delivery.queued).collect();
        self.database.mark_published(&photos).await?;
        self.stream.acknowledge(suspects, AckKind::Ack).await;
        Ok(())
    }

    /// Removes and returns the messages of leases that have ended.
    fn remove_deliveries<'a>(&self, leases: impl Iterator<Item = &'a LeaseId>) -> Vec<Delivery> {
        let mut leased_deliveries = self.leased_deliveries();
        leases.filter_map(|lease| leased_deliveries.remove(lease)).collect()
    }

    fn leased_deliveries(&self) -> std::sync::MutexGuard<'_, HashMap<LeaseId, Delivery>> {
        self.leased_deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for JetStreamQueue {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Deliveries by the state of their photos.
#[derive(Default)]
struct DeliveryOutcomes {
    leased: Vec<(Lease, Delivery)>,
    crash_suspects: Vec<Delivery>,
    finished: Vec<Delivery>,
    leased_elsewhere: Vec<Delivery>,
}

impl DeliveryOutcomes {
    fn add(&mut self, delivery: Delivery, named: NamedLease) {
        if delivery.is_redelivered {
            metrics::counter!(metric_names::QUEUE_REDELIVERED).increment(1);
        }
        match named {
            NamedLease::Leased(lease) => self.leased.push((lease, delivery)),
            NamedLease::CrashSuspect => self.crash_suspects.push(delivery),
            NamedLease::Obsolete => self.finished.push(delivery),
            NamedLease::HeldElsewhere => self.leased_elsewhere.push(delivery),
        }
    }
}

#[async_trait]
impl Queue for JetStreamQueue {
    async fn confirm_uploads(&self, album: AlbumId, uploads: &[Upload]) -> Result<ConfirmedUploads> {
        let confirmed = self.database.confirm_uploads(album, uploads).await?;
        self.wakeup.notify_one();
        Ok(confirmed)
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        self.database.retry(album, photo).await?;
        self.wakeup.notify_one();
        Ok(())
    }

    async fn reprocess(&self, album: AlbumId) -> Result<Reprocessed> {
        let reprocessed = self.database.reprocess(album).await?;
        self.wakeup.notify_one();
        Ok(reprocessed)
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        if request.kind == LeaseKind::CrashSuspect || request.limit == 0 {
            return self.database.lease(request).await;
        }
        let deliveries = self.stream.pull(request.limit, PULL_TIMEOUT).await?;
        if deliveries.is_empty() {
            return Ok(Vec::new());
        }
        // The outbox may publish more now.
        self.wakeup.notify_one();
        self.lease_delivered(deliveries, request.ttl).await
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        let renewed = self.database.renew(leases, ttl).await?;
        let in_progress: Vec<Delivery> = {
            let mut leased_deliveries = self.leased_deliveries();
            // The message of a lost lease belongs to the worker that it is delivered to next.
            for lease in leases.iter().filter(|lease| !renewed.contains(lease)) {
                leased_deliveries.remove(lease);
            }
            renewed.iter().filter_map(|lease| leased_deliveries.get(lease).cloned()).collect()
        };
        self.stream.acknowledge(&in_progress, AckKind::Progress).await;
        Ok(renewed)
    }

    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<FinishOutcome>> {
        let leases: Vec<LeaseId> = photos.iter().map(|photo| photo.lease.id).collect();
        let finished = self.database.finish(photos).await?;
        let deliveries = self.remove_deliveries(leases.iter());
        self.stream.acknowledge(&deliveries, AckKind::Ack).await;
        Ok(finished)
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<FinishOutcome> {
        let finished = self.database.fail(lease, reason, detail).await?;
        let deliveries = self.remove_deliveries(std::iter::once(&lease.id));
        self.stream.acknowledge(&deliveries, AckKind::Ack).await;
        Ok(finished)
    }

    /// Acknowledges the message: the photo is queued again in a new round, which an outbox publishes at once. If the message were returned to the stream instead, over a connection that is cut, the photo would
    /// wait until the ack wait has passed.
    async fn release(&self, leases: &[Lease]) -> Result<()> {
        self.database.release(leases).await?;
        let deliveries = self.remove_deliveries(leases.iter().map(|lease| &lease.id));
        self.stream.acknowledge(&deliveries, AckKind::Ack).await;
        self.wakeup.notify_one();
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        self.database.check().await?;
        self.check_stream().await
    }

    async fn depth(&self) -> Result<u64> {
        self.database.depth().await
    }

    async fn has_waiting_beside(&self, organizations: &[OrganizationId]) -> Result<bool> {
        self.database.has_waiting_beside(organizations).await
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        self.database.waiting_since().await
    }
}
