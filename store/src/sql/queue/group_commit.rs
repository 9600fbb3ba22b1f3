//! Group commit of confirmations: calls that arrive while one transaction syncs share the next one.
//!
//! A sync costs the same for one photo as for a hundred, and partners confirm over many connections at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::PhotoState;
use crate::sql::database::Database;
use crate::traits::{PhotoRef, Result, Upload};

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
    reply: oneshot::Sender<Result<Vec<PhotoId>>>,
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
    pub(crate) fn start(database: Database) -> Arc<Self> {
        let (calls, receiver) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(run(database, receiver));
        Arc::new(Self { calls })
    }

    /// Returns once the photos are durably queued: those that exist.
    pub(crate) async fn confirm(&self, album: AlbumId, uploads: Vec<Upload>) -> Result<Vec<PhotoId>> {
        let closed = || StoreError::new(StoreErrorKind::Unavailable, OPERATION);
        let (reply, response) = oneshot::channel();
        let call = Confirmation { album, uploads, reply };
        self.calls.send(call).await.map_err(|_| closed())?;
        response.await.map_err(|_| closed())?
    }
}

async fn run(database: Database, mut calls: mpsc::Receiver<Confirmation>) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    let mut before = 1;
    while collect_batch(&mut calls, &mut batch, before).await {
        before = batch.len();
        metrics::histogram!(metric_names::CONFIRMATIONS_PER_COMMIT).record(batch.len() as f64);
        let committed = tokio::time::timeout(COMMIT_TIMEOUT, commit_batch(&database, &batch)).await;
        match committed.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable, OPERATION))) {
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

/// Confirms the photos of all calls in one transaction. Returns the existing photos of each call, in order.
async fn commit_batch(database: &Database, calls: &[Confirmation]) -> Result<Vec<Vec<PhotoId>>> {
    let requested: Vec<PhotoRef> = calls.iter().flat_map(Confirmation::photo_refs).collect();
    let mut transaction = database.begin_write(OPERATION).await?;
    let locked = transaction.queue_writes().lock_photos(&requested).await?;
    // In a map: of a photo that is confirmed twice, the last upload counts.
    let mut uploaded = BTreeMap::new();
    for (photo, size_bytes) in calls.iter().flat_map(Confirmation::sizes) {
        let state = locked.get(&photo).map(|row| row.state);
        if matches!(state, Some(PhotoState::AwaitingUpload | PhotoState::Failed)) {
            uploaded.insert(photo, size_bytes);
        }
    }
    if !uploaded.is_empty() {
        let now = transaction.read_clock(OPERATION).await?;
        let uploaded: Vec<(PhotoRef, Option<i64>)> = uploaded.into_iter().collect();
        transaction.queue_writes().queue_photos(&uploaded, now).await?;
    }
    transaction.commit(OPERATION).await?;
    let existing = |call: &Confirmation| {
        call.photo_refs().filter(|key| locked.contains_key(key)).map(|key| key.photo).collect()
    };
    Ok(calls.iter().map(existing).collect())
}
