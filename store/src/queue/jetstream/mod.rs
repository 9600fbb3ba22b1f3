//! The work queue of the cluster profile: photos are offered to workers by a JetStream work queue, with the rows as
//! the truth.
//!
//! Nothing is decided here by what the stream says. A photo is confirmed, leased, finished and failed in the rows, and
//! the messages only say what to look at next: a message too many finds its photo held or over, a message too few is
//! published again by the sweeper.
//!
//! The stream carries fresh photos. Suspects, photos whose earlier lease ended without a word, are taken from the rows,
//! as where the database is the queue: there an index holds them and nothing else, they are seen the moment their
//! lease lapses, and one can be had alone without taking others from the stream and keeping them aside. When a message
//! turns out to name a suspect, because its worker died and it was delivered again, it goes and the rows keep it.

pub(crate) mod message;
pub(crate) mod outbox;
pub(crate) mod republisher;
pub(crate) mod settings;
pub(crate) mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::outbox::Outbox;
use self::republisher::Republisher;
pub use self::settings::QueueSettings;
use self::stream::{Delivery, WorkStream};
use crate::metric_names;
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::FailureReason;
use crate::traits::{Finish, Lease, LeaseRequest, Named, OutboxQueue, PhotoRef, PhotoResults, Queue, Result};

/// How long a worker with nothing to do waits for a message: the bell of other processes. Short enough to end a worker
/// without delay.
const PULL_TIMEOUT: Duration = Duration::from_millis(250);

/// The queue, and the tasks that follow the rows for it; they end with it.
pub(crate) struct JetStreamQueue {
    database: Arc<dyn OutboxQueue>,
    stream: Arc<WorkStream>,
    wakeup: Arc<Notify>,
    redelivery_delay: Duration,
    /// The messages behind the leases of this process. A suspect has none.
    leased_deliveries: Mutex<HashMap<LeaseId, Delivery>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl JetStreamQueue {
    /// Connects in the background and starts the tasks. A server that is away is no error: photos can be confirmed
    /// without it.
    pub(crate) async fn open(settings: QueueSettings, rows: Arc<dyn OutboxQueue>) -> Result<Self> {
        let look_again = settings.redelivery_delay();
        let stream = Arc::new(WorkStream::open(settings.clone()).await?);
        let bell = Arc::new(Notify::new());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let outbox =
            Outbox { database: Arc::clone(&rows), stream: Arc::clone(&stream), wakeup: Arc::clone(&bell) };
        let sweeper = Republisher {
            settings,
            database: Arc::clone(&rows),
            stream: Arc::clone(&stream),
            wakeup: Arc::clone(&bell),
        };
        // Cut off anywhere: what a task did not finish is what a process that dies does not finish.
        tasks.spawn(stop.clone().run_until_cancelled_owned(outbox.run()));
        tasks.spawn(stop.clone().run_until_cancelled_owned(sweeper.run()));
        tasks.close();
        Ok(Self {
            database: rows,
            stream,
            wakeup: bell,
            redelivery_delay: look_again,
            leased_deliveries: Mutex::default(),
            tasks,
            stop,
        })
    }

    /// Whether the servers answer and have the stream.
    pub(crate) async fn check_stream(&self) -> Result<()> {
        self.stream.lag().await.map(drop)
    }

    /// Ends the tasks and waits for them.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
        self.stream.flush().await;
    }

    /// Leases what messages name. What cannot be leased is settled here.
    async fn lease_delivered(&self, deliveries: Vec<Delivery>, ttl: Duration) -> Result<Vec<Lease>> {
        let (ours, foreign): (Vec<_>, Vec<_>) =
            deliveries.into_iter().partition(|delivery| delivery.queued.is_some());
        if !foreign.is_empty() {
            tracing::warn!(messages = foreign.len(), "messages in the work stream that name no photo go");
            self.stream.acknowledge(&foreign, AckKind::Term).await;
        }
        let photos: Vec<PhotoRef> = ours.iter().filter_map(|delivery| Some(delivery.queued?.photo)).collect();
        let named = match self.database.lease_named(&photos, ttl).await {
            Ok(named) => named,
            Err(error) => {
                self.stream.acknowledge(&ours, AckKind::Nak(Some(self.redelivery_delay))).await;
                return Err(error);
            }
        };
        let mut sorted = DeliveryOutcomes::default();
        for (delivery, named) in ours.into_iter().zip(named) {
            sorted.add(delivery, named);
        }
        self.apply_outcomes(sorted).await
    }

    async fn apply_outcomes(&self, sorted: DeliveryOutcomes) -> Result<Vec<Lease>> {
        self.stream.acknowledge(&sorted.finished, AckKind::Ack).await;
        self.stream.acknowledge(&sorted.leased_elsewhere, AckKind::Nak(Some(self.redelivery_delay))).await;
        if !sorted.crash_suspects.is_empty()
            && let Err(error) = self.drop_suspect_messages(&sorted.crash_suspects).await
        {
            // The fresh ones are leased all the same; the suspects' messages come again.
            tracing::warn!(%error, "suspects keep their messages until these come again");
        }
        let mut leases = Vec::with_capacity(sorted.leased.len());
        let mut held = self.leased_deliveries();
        for (lease, delivery) in sorted.leased {
            held.insert(lease.id, delivery);
            leases.push(lease);
        }
        Ok(leases)
    }

    /// Takes the messages of suspects out of the stream; the rows have them. Noted as published first, so that the outbox
    /// does not publish them again; dying in between leaves a message too many, which comes here again.
    async fn drop_suspect_messages(&self, suspects: &[Delivery]) -> Result<()> {
        let named: Vec<_> = suspects.iter().filter_map(|delivery| delivery.queued).collect();
        self.database.mark_published(&named).await?;
        self.stream.acknowledge(suspects, AckKind::Ack).await;
        Ok(())
    }

    /// The messages of leases that ended.
    fn remove_deliveries<'a>(&self, leases: impl Iterator<Item = &'a LeaseId>) -> Vec<Delivery> {
        let mut held = self.leased_deliveries();
        leases.filter_map(|lease| held.remove(lease)).collect()
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

/// Deliveries by what became of their photos.
#[derive(Default)]
struct DeliveryOutcomes {
    leased: Vec<(Lease, Delivery)>,
    crash_suspects: Vec<Delivery>,
    finished: Vec<Delivery>,
    leased_elsewhere: Vec<Delivery>,
}

impl DeliveryOutcomes {
    fn add(&mut self, delivery: Delivery, named: Named) {
        if delivery.is_redelivered {
            metrics::counter!(metric_names::QUEUE_REDELIVERED).increment(1);
        }
        match named {
            Named::Leased(lease) => self.leased.push((lease, delivery)),
            Named::Suspect => self.crash_suspects.push(delivery),
            Named::Obsolete => self.finished.push(delivery),
            Named::HeldElsewhere => self.leased_elsewhere.push(delivery),
        }
    }
}

#[async_trait]
impl Queue for JetStreamQueue {
    async fn confirm(&self, album: AlbumId, photos: &[PhotoId]) -> Result<Vec<PhotoId>> {
        let confirmed = self.database.confirm(album, photos).await?;
        self.wakeup.notify_one();
        Ok(confirmed)
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        self.database.retry(album, photo).await?;
        self.wakeup.notify_one();
        Ok(())
    }

    async fn reprocess(&self, album: AlbumId) -> Result<u64> {
        let queued = self.database.reprocess(album).await?;
        self.wakeup.notify_one();
        Ok(queued)
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        if request.suspects || request.limit == 0 {
            return self.database.lease(request).await;
        }
        let deliveries = self.stream.pull(request.limit, PULL_TIMEOUT).await?;
        if deliveries.is_empty() {
            return Ok(Vec::new());
        }
        // There is room in the stream now.
        self.wakeup.notify_one();
        self.lease_delivered(deliveries, request.ttl).await
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        let kept = self.database.renew(leases, ttl).await?;
        let working: Vec<Delivery> = {
            let mut held = self.leased_deliveries();
            // The messages of lost leases belong to whoever they are delivered to next.
            for lease in leases.iter().filter(|lease| !kept.contains(lease)) {
                held.remove(lease);
            }
            kept.iter().filter_map(|lease| held.get(lease).cloned()).collect()
        };
        self.stream.acknowledge(&working, AckKind::Progress).await;
        Ok(kept)
    }

    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<Finish>> {
        let leases: Vec<LeaseId> = photos.iter().map(|finished| finished.lease.id).collect();
        let answers = self.database.finish(photos).await?;
        let settled = self.remove_deliveries(leases.iter());
        self.stream.acknowledge(&settled, AckKind::Ack).await;
        Ok(answers)
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<Finish> {
        let answer = self.database.fail(lease, reason, detail).await?;
        let settled = self.remove_deliveries(std::iter::once(&lease.id));
        self.stream.acknowledge(&settled, AckKind::Ack).await;
        Ok(answer)
    }

    /// The message has done its work: the photo is queued again in another turn, which an outbox publishes at once, this
    /// one or another. Handed back instead, a message whose way is cut would keep its photo for the rest of the ack wait.
    async fn release(&self, leases: &[LeaseId]) -> Result<()> {
        self.database.release(leases).await?;
        let returned = self.remove_deliveries(leases.iter());
        self.stream.acknowledge(&returned, AckKind::Ack).await;
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

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        self.database.waiting_since().await
    }
}
