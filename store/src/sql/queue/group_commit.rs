//! Group commit of confirmations: calls that arrive while one transaction syncs share the next one.
//!
//! A sync costs the same for one photo as for a hundred, and partners confirm over many connections at once.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};

use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::ids::AlbumId;
use crate::model::photo::PhotoState;
use crate::sql::credits::SharedLedger;
use crate::sql::credits::acceptance::Acceptance;
use crate::sql::credits::ledger::Writer;
use crate::sql::database::{Database, Transaction};
use crate::sql::dialect::PhotoRowState;
use crate::sql::erasures::retention::NotedConfirmations;
use crate::traits::{ConfirmedUploads, Decline, PhotoRef, Result, Upload};

/// How many calls may be queued; further callers wait for a free slot. More than the connections of a busy API.
const QUEUE_CAPACITY: usize = 256;

/// How many calls share one transaction at most.
const MAX_BATCH: usize = 64;

/// How long to collect calls when fewer wait than the previous batch had. Partners that confirm one photo after the other
/// call again right after a response: without this, the first of eight calls would be committed alone and the other seven
/// wait for its sync, every time (measured: two syncs of 3.9 ms for eight photos instead of one).
const COLLECT_WINDOW: Duration = Duration::from_millis(1);

/// How long one transaction may take: more than the timeouts for a connection, a lock and a statement together. Otherwise
/// a silently lost connection would block every confirmation of this process until the system gives it up.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(60);

const OPERATION: &str = "confirm photos";

/// One call of `Queue::confirm`.
struct Confirmation {
    album: AlbumId,
    uploads: Vec<Upload>,
    reply: oneshot::Sender<Result<ConfirmedUploads>>,
}

impl Confirmation {
    /// The photos with the sizes of their uploads, as the database stores them.
    fn sizes(&self) -> impl Iterator<Item = (PhotoRef, Option<i64>)> {
        let stored = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
        self.photo_refs().zip(self.uploads.iter().map(move |upload| upload.size_bytes.map(stored)))
    }

    fn photo_refs(&self) -> impl Iterator<Item = PhotoRef> {
        self.uploads.iter().map(|upload| PhotoRef { album: self.album, photo: upload.photo })
    }
}

/// Sends confirmations to the task that commits them. The task ends when the last sender is dropped.
pub(crate) struct GroupCommit {
    calls: mpsc::Sender<Confirmation>,
}

impl GroupCommit {
    /// Starts the task on the current runtime.
    pub(crate) fn start(database: Database, shared: Arc<SharedLedger>) -> Arc<Self> {
        Self::start_with(DatabaseCommit { database, shared, noted: NotedConfirmations::default() })
    }

    fn start_with(commits: impl CommitBatch + 'static) -> Arc<Self> {
        let (calls, receiver) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(run(commits, receiver));
        Arc::new(Self { calls })
    }

    /// Returns once the photos are durably queued: those that exist and are paid for or can be.
    pub(crate) async fn confirm(&self, album: AlbumId, uploads: Vec<Upload>) -> Result<ConfirmedUploads> {
        let closed = || StoreError::new(StoreErrorKind::Unavailable, OPERATION);
        let (reply, response) = oneshot::channel();
        let call = Confirmation { album, uploads, reply };
        self.calls.send(call).await.map_err(|_| closed())?;
        response.await.map_err(|_| closed())?
    }
}

/// Commits the calls of a batch. A trait, so that a test can have one that panics.
#[async_trait]
trait CommitBatch: Send {
    /// Returns what became of each call.
    async fn commit(&mut self, calls: &[Confirmation]) -> Result<Vec<ConfirmedUploads>>;
}

/// Commits them to the database.
struct DatabaseCommit {
    database: Database,
    shared: Arc<SharedLedger>,
    noted: NotedConfirmations,
}

#[async_trait]
impl CommitBatch for DatabaseCommit {
    async fn commit(&mut self, calls: &[Confirmation]) -> Result<Vec<ConfirmedUploads>> {
        let albums: Vec<AlbumId> = calls.iter().map(|call| call.album).collect();
        self.noted.note(&self.database, albums.into_iter()).await?;
        commit_batch(&self.database, &self.shared, calls).await
    }
}

async fn run(mut commits: impl CommitBatch, mut calls: mpsc::Receiver<Confirmation>) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    let mut before = 1;
    while collect_batch(&mut calls, &mut batch, before).await {
        before = batch.len();
        metrics::histogram!(metric_names::CONFIRMATIONS_PER_COMMIT).record(batch.len() as f64);
        // A panic fails its batch alone: nobody else would ever commit one again.
        let commit = AssertUnwindSafe(commits.commit(&batch)).catch_unwind();
        let failed = || StoreError::new(StoreErrorKind::Unavailable, OPERATION);
        let committed = match tokio::time::timeout(COMMIT_TIMEOUT, commit).await {
            Ok(Ok(committed)) => committed,
            Ok(Err(_)) | Err(_) => Err(failed()),
        };
        match committed {
            Ok(replies) => {
                for (call, confirmed) in batch.drain(..).zip(replies) {
                    // A caller that is gone needs no reply; its photos are confirmed.
                    drop(call.reply.send(Ok(confirmed)));
                }
            }
            Err(cause) => {
                for call in batch.drain(..) {
                    drop(call.reply.send(Err(cause.clone())));
                }
            }
        }
    }
}

/// Receives the calls that wait, and for [`COLLECT_WINDOW`] more of them when fewer wait than `before`. `false` when the
/// channel is closed.
async fn collect_batch(
    calls: &mut mpsc::Receiver<Confirmation>,
    batch: &mut Vec<Confirmation>,
    before: usize,
) -> bool {
    if calls.recv_many(batch, MAX_BATCH).await == 0 {
        return false;
    }
    let deadline = tokio::time::sleep(COLLECT_WINDOW);
    tokio::pin!(deadline);
    while batch.len() < before {
        let capacity = MAX_BATCH - batch.len();
        tokio::select! {
            () = &mut deadline => break,
            more = calls.recv_many(batch, capacity) => {
                if more == 0 {
                    break;
                }
            }
        }
    }
    true
}

/// Confirms the photos of all calls in one transaction. Returns what became of each call.
async fn commit_batch(
    database: &Database,
    shared: &SharedLedger,
    calls: &[Confirmation],
) -> Result<Vec<ConfirmedUploads>> {
    let requested: Vec<PhotoRef> = calls.iter().flat_map(Confirmation::photo_refs).collect();
    let mut transaction = database.begin_write(OPERATION).await?;
    let locked = transaction.queue_writes().lock_photos(&requested).await?;
    let declined = if locked.values().any(is_to_be_queued) {
        queue_uploads(&mut transaction, shared, calls, &locked).await?
    } else {
        HashMap::new()
    };
    transaction.commit(OPERATION).await?;
    let reply = |call: &Confirmation| {
        let existing = call.photo_refs().filter(|key| locked.contains_key(key));
        let (refused, queued): (Vec<_>, Vec<_>) = existing.partition(|key| declined.contains_key(key));
        ConfirmedUploads {
            photos: queued.iter().map(|key| key.photo).collect(),
            declined: refused.iter().map(|key| key.photo).collect(),
            decline: refused.first().and_then(|key| declined.get(key)).copied(),
        }
    };
    Ok(calls.iter().map(reply).collect())
}

/// Queues locked photos that wait for their upload or have failed, as far as the balances of their tenants cover them, in the
/// order in which they came. Returns those that were declined.
async fn queue_uploads(
    transaction: &mut Transaction,
    shared: &SharedLedger,
    calls: &[Confirmation],
    locked: &HashMap<PhotoRef, PhotoRowState>,
) -> Result<HashMap<PhotoRef, Decline>> {
    let now = transaction.read_clock(OPERATION).await?;
    let unpaid = locked.iter().filter(|(_, row)| is_to_be_queued(row) && !row.is_charged);
    let unpaid = unpaid.map(|(photo, _)| *photo);
    let mut acceptance = Acceptance::new(transaction, shared, unpaid, now).await?;
    // In a map: of a photo that is confirmed twice, the last upload counts.
    let mut uploaded = BTreeMap::new();
    let mut declined = HashMap::new();
    for (photo, size_bytes) in calls.iter().flat_map(Confirmation::sizes) {
        let Some(row) = locked.get(&photo).filter(|row| is_to_be_queued(row)) else { continue };
        if declined.contains_key(&photo) {
            continue;
        }
        if !row.is_charged
            && !uploaded.contains_key(&photo)
            && let Err(decline) = acceptance.hold(photo)
        {
            declined.insert(photo, decline);
            continue;
        }
        uploaded.insert(photo, size_bytes);
    }
    if !uploaded.is_empty() {
        let uploaded: Vec<(PhotoRef, Option<i64>)> = uploaded.into_iter().collect();
        let holds = acceptance.entries.into_holds(&shared.ledger, Writer::Api)?;
        transaction.queue_writes().queue_photos(&uploaded, &holds, now).await?;
    }
    Ok(declined)
}

fn is_to_be_queued(row: &PhotoRowState) -> bool {
    matches!(row.state, PhotoState::AwaitingUpload | PhotoState::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::PhotoId;

    /// Panics at its first batch.
    #[derive(Default)]
    struct PanicsOnce {
        has_panicked: bool,
    }

    #[async_trait]
    impl CommitBatch for PanicsOnce {
        async fn commit(&mut self, calls: &[Confirmation]) -> Result<Vec<ConfirmedUploads>> {
            assert!(std::mem::replace(&mut self.has_panicked, true), "a panic of this test");
            let confirmed = |call: &Confirmation| ConfirmedUploads {
                photos: call.uploads.iter().map(|upload| upload.photo).collect(),
                ..ConfirmedUploads::default()
            };
            Ok(calls.iter().map(confirmed).collect())
        }
    }

    #[tokio::test]
    async fn a_panic_fails_its_confirmations_alone_and_later_ones_are_committed() {
        let group_commit = GroupCommit::start_with(PanicsOnce::default());
        let (album, photo) = (AlbumId::generate(), PhotoId::generate());
        let confirm = || group_commit.confirm(album, vec![Upload { photo, size_bytes: None }]);
        let failed = confirm().await.unwrap_err();
        assert_eq!(failed.kind, StoreErrorKind::Unavailable);
        assert_eq!(confirm().await.unwrap().photos, [photo]);
    }
}
