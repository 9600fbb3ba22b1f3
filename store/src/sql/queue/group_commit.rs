//! Confirmations, committed together: what waits while one transaction syncs goes into the next one.
//!
//! A sync costs the same for one photo as for a hundred, and partners confirm from many connections at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::PhotoState;
use crate::sql::Database;
use crate::traits::{PhotoRef, Result};

/// How many calls may wait; the next ones wait for a place. More than the connections a busy API has open.
const QUEUE_CAPACITY: usize = 256;

/// How many calls one transaction takes.
const MAX_BATCH: usize = 64;

/// How long one transaction waits for as many calls as the one before had. Partners that confirm one photo after the
/// other come back a moment after their answer: without this, the first of eight would go alone and the other seven
/// wait for its sync, every time (measured: two syncs of 3.9 ms for eight photos instead of one).
const COLLECT_WINDOW: Duration = Duration::from_millis(1);

/// How long one transaction may take: more than waiting for a connection, for a lock and for a statement together. A
/// connection that went away without a word would otherwise hold up every confirmation of this process for as long as
/// the system keeps trying.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(60);

const OPERATION: &str = "confirm photos";

/// One call of `Queue::confirm`.
struct Confirmation {
    album: AlbumId,
    photos: Vec<PhotoId>,
    reply: oneshot::Sender<Result<Vec<PhotoId>>>,
}

impl Confirmation {
    fn photo_refs(&self) -> impl Iterator<Item = PhotoRef> {
        self.photos.iter().map(|photo| PhotoRef { album: self.album, photo: *photo })
    }
}

/// Takes confirmations to the task that commits them. The task ends with the last desk.
pub(crate) struct GroupCommit {
    calls: mpsc::Sender<Confirmation>,
}

impl GroupCommit {
    /// Starts the task on the current runtime.
    pub(crate) fn start(database: Database) -> Arc<Self> {
        let (waiting, calls) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(run(database, calls));
        Arc::new(Self { calls: waiting })
    }

    /// Answers once the photos are durable in the queue.
    pub(crate) async fn confirm(&self, album: AlbumId, photos: Vec<PhotoId>) -> Result<Vec<PhotoId>> {
        let closed = || StoreError::new(StoreErrorKind::Unavailable, OPERATION);
        let (answer, answered) = oneshot::channel();
        let call = Confirmation { album, photos, reply: answer };
        self.calls.send(call).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
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
            Ok(answers) => {
                for (call, confirmed) in batch.drain(..).zip(answers) {
                    // A caller that went away does not need its answer; its photos are confirmed.
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

/// Takes what waits, and what comes within a moment when less waits than `before`. Whether there is anything.
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
        let room = MAX_BATCH - batch.len();
        tokio::select! {
            () = &mut deadline => break,
            more = calls.recv_many(batch, room) => {
                if more == 0 {
                    break;
                }
            }
        }
    }
    true
}

/// One transaction for all calls. One answer a call, in order.
async fn commit_batch(database: &Database, calls: &[Confirmation]) -> Result<Vec<Vec<PhotoId>>> {
    let asked: Vec<PhotoRef> = calls.iter().flat_map(Confirmation::photo_refs).collect();
    let mut transaction = database.write(OPERATION).await?;
    let held = transaction.queue_writes().lock_photos(&asked).await?;
    let expected: Vec<PhotoRef> = held
        .iter()
        .filter(|(_, standing)| standing.state == PhotoState::AwaitingUpload)
        .map(|(photo, _)| *photo)
        .collect();
    if !expected.is_empty() {
        let now = transaction.read_clock(OPERATION).await?;
        transaction.queue_writes().queue_photos(&expected, now).await?;
    }
    transaction.commit(OPERATION).await?;
    let there = |call: &Confirmation| {
        call.photo_refs().filter(|key| held.contains_key(key)).map(|key| key.photo).collect()
    };
    Ok(calls.iter().map(there).collect())
}
