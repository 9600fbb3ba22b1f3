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

mod message;
mod outbox;
mod settings;
mod stream;
mod sweeper;

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
pub use self::settings::QueueSettings;
use self::stream::{Delivery, WorkStream};
use self::sweeper::Sweeper;
use crate::ids::{AlbumId, LeaseId, PhotoId};
use crate::meters;
use crate::photo::FailureReason;
use crate::traits::{Finish, Finished, Lease, LeaseRequest, Named, PhotoRef, Queue, Result, WorkRows};

/// How long a worker with nothing to do waits for a message: the bell of other processes. Short enough to end a worker
/// without delay.
const PATIENCE: Duration = Duration::from_millis(250);

/// The queue, and the tasks that follow the rows for it; they end with it.
pub(crate) struct JetStreamQueue {
    rows: Arc<dyn WorkRows>,
    stream: Arc<WorkStream>,
    bell: Arc<Notify>,
    look_again: Duration,
    /// The messages behind the leases of this process. A suspect has none.
    held: Mutex<HashMap<LeaseId, Delivery>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl JetStreamQueue {
    /// Connects in the background and starts the tasks. A server that is away is no error: photos can be confirmed
    /// without it.
    pub(crate) async fn open(settings: QueueSettings, rows: Arc<dyn WorkRows>) -> Result<Self> {
        let look_again = settings.look_again();
        let stream = Arc::new(WorkStream::open(settings.clone()).await?);
        let bell = Arc::new(Notify::new());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let outbox = Outbox { rows: Arc::clone(&rows), stream: Arc::clone(&stream), bell: Arc::clone(&bell) };
        let sweeper = Sweeper {
            settings,
            rows: Arc::clone(&rows),
            stream: Arc::clone(&stream),
            bell: Arc::clone(&bell),
        };
        // Cut off anywhere: what a task did not finish is what a process that dies does not finish.
        tasks.spawn(stop.clone().run_until_cancelled_owned(outbox.run()));
        tasks.spawn(stop.clone().run_until_cancelled_owned(sweeper.run()));
        tasks.close();
        Ok(Self { rows, stream, bell, look_again, held: Mutex::default(), tasks, stop })
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
            deliveries.into_iter().partition(|delivery| delivery.named.is_some());
        if !foreign.is_empty() {
            tracing::warn!(messages = foreign.len(), "messages in the work stream that name no photo go");
            self.stream.tell(&foreign, AckKind::Term).await;
        }
        let photos: Vec<PhotoRef> = ours.iter().filter_map(|delivery| Some(delivery.named?.photo)).collect();
        let named = match self.rows.lease_named(&photos, ttl).await {
            Ok(named) => named,
            Err(error) => {
                self.stream.tell(&ours, AckKind::Nak(Some(self.look_again))).await;
                return Err(error);
            }
        };
        let mut sorted = Sorted::default();
        for (delivery, named) in ours.into_iter().zip(named) {
            sorted.add(delivery, named);
        }
        self.settle(sorted).await
    }

    async fn settle(&self, sorted: Sorted) -> Result<Vec<Lease>> {
        self.stream.tell(&sorted.over, AckKind::Ack).await;
        self.stream.tell(&sorted.elsewhere, AckKind::Nak(Some(self.look_again))).await;
        if !sorted.suspects.is_empty()
            && let Err(error) = self.leave_to_the_rows(&sorted.suspects).await
        {
            // The fresh ones are leased all the same; the suspects' messages come again.
            tracing::warn!(%error, "suspects keep their messages until these come again");
        }
        let mut leases = Vec::with_capacity(sorted.fresh.len());
        let mut held = self.held();
        for (lease, delivery) in sorted.fresh {
            held.insert(lease.id, delivery);
            leases.push(lease);
        }
        Ok(leases)
    }

    /// Takes the messages of suspects out of the stream; the rows have them. Noted as published first, so that the outbox
    /// does not publish them again; dying in between leaves a message too many, which comes here again.
    async fn leave_to_the_rows(&self, suspects: &[Delivery]) -> Result<()> {
        let named: Vec<_> = suspects.iter().filter_map(|delivery| delivery.named).collect();
        self.rows.published(&named).await?;
        self.stream.tell(suspects, AckKind::Ack).await;
        Ok(())
    }

    /// The messages of leases that ended.
    fn released<'a>(&self, leases: impl Iterator<Item = &'a LeaseId>) -> Vec<Delivery> {
        let mut held = self.held();
        leases.filter_map(|lease| held.remove(lease)).collect()
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<LeaseId, Delivery>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for JetStreamQueue {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Deliveries by what became of their photos.
#[derive(Default)]
struct Sorted {
    fresh: Vec<(Lease, Delivery)>,
    suspects: Vec<Delivery>,
    over: Vec<Delivery>,
    elsewhere: Vec<Delivery>,
}

impl Sorted {
    fn add(&mut self, delivery: Delivery, named: Named) {
        if delivery.is_again {
            metrics::counter!(meters::QUEUE_REDELIVERED).increment(1);
        }
        match named {
            Named::Leased(lease) => self.fresh.push((lease, delivery)),
            Named::Suspect => self.suspects.push(delivery),
            Named::Over => self.over.push(delivery),
            Named::Held => self.elsewhere.push(delivery),
        }
    }
}

#[async_trait]
impl Queue for JetStreamQueue {
    async fn confirm(&self, album: AlbumId, photos: &[PhotoId]) -> Result<Vec<PhotoId>> {
        let confirmed = self.rows.confirm(album, photos).await?;
        self.bell.notify_one();
        Ok(confirmed)
    }

    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()> {
        self.rows.retry(album, photo).await?;
        self.bell.notify_one();
        Ok(())
    }

    async fn reprocess(&self, album: AlbumId) -> Result<u64> {
        let queued = self.rows.reprocess(album).await?;
        self.bell.notify_one();
        Ok(queued)
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>> {
        if request.suspects || request.limit == 0 {
            return self.rows.lease(request).await;
        }
        let deliveries = self.stream.pull(request.limit, PATIENCE).await?;
        if deliveries.is_empty() {
            return Ok(Vec::new());
        }
        // There is room in the stream now.
        self.bell.notify_one();
        self.lease_delivered(deliveries, request.ttl).await
    }

    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>> {
        let kept = self.rows.renew(leases, ttl).await?;
        let working: Vec<Delivery> = {
            let mut held = self.held();
            // The messages of lost leases belong to whoever they are delivered to next.
            for lease in leases.iter().filter(|lease| !kept.contains(lease)) {
                held.remove(lease);
            }
            kept.iter().filter_map(|lease| held.get(lease).cloned()).collect()
        };
        self.stream.tell(&working, AckKind::Progress).await;
        Ok(kept)
    }

    async fn finish(&self, photos: Vec<Finished>) -> Result<Vec<Finish>> {
        let leases: Vec<LeaseId> = photos.iter().map(|finished| finished.lease.id).collect();
        let answers = self.rows.finish(photos).await?;
        let settled = self.released(leases.iter());
        self.stream.tell(&settled, AckKind::Ack).await;
        Ok(answers)
    }

    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<Finish> {
        let answer = self.rows.fail(lease, reason, detail).await?;
        let settled = self.released(std::iter::once(&lease.id));
        self.stream.tell(&settled, AckKind::Ack).await;
        Ok(answer)
    }

    /// The message has done its work: the photo is queued again in another turn, which an outbox publishes at once, this
    /// one or another. Handed back instead, a message whose way is cut would keep its photo for the rest of the ack wait.
    async fn give_back(&self, leases: &[LeaseId]) -> Result<()> {
        self.rows.give_back(leases).await?;
        let returned = self.released(leases.iter());
        self.stream.tell(&returned, AckKind::Ack).await;
        self.bell.notify_one();
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        self.rows.check().await?;
        self.check_stream().await
    }

    async fn depth(&self) -> Result<u64> {
        self.rows.depth().await
    }

    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>> {
        self.rows.waiting_since().await
    }
}
