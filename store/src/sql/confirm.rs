//! Confirmations, committed together: what waits while one transaction syncs goes into the next one.
//!
//! A sync costs the same for one photo as for a hundred, and partners confirm from many connections at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::Database;
use crate::error::{StoreError, StoreErrorKind};
use crate::ids::{AlbumId, PhotoId};
use crate::meters;
use crate::photo::PhotoState;
use crate::traits::{PhotoRef, Result};

/// How many calls may wait; the next ones wait for a place. More than the connections a busy API has open.
const WAITING: usize = 256;

/// How many calls one transaction takes.
const AT_ONCE: usize = 64;

/// How long one transaction waits for as many calls as the one before had. Partners that confirm one photo after the
/// other come back a moment after their answer: without this, the first of eight would go alone and the other seven
/// wait for its sync, every time (measured: two syncs of 3.9 ms for eight photos instead of one).
const GATHER: Duration = Duration::from_millis(1);

/// How long one transaction may take: more than waiting for a connection, for a lock and for a statement together. A
/// connection that went away without a word would otherwise hold up every confirmation of this process for as long as
/// the system keeps trying.
const COMMIT_LIMIT: Duration = Duration::from_secs(60);

const WHAT: &str = "confirm photos";

/// One call of `Queue::confirm`.
struct Confirmation {
    album: AlbumId,
    photos: Vec<PhotoId>,
    answer: oneshot::Sender<Result<Vec<PhotoId>>>,
}

impl Confirmation {
    fn keys(&self) -> impl Iterator<Item = PhotoRef> {
        self.photos.iter().map(|photo| PhotoRef { album: self.album, photo: *photo })
    }
}

/// Takes confirmations to the task that commits them. The task ends with the last desk.
pub(super) struct ConfirmDesk {
    waiting: mpsc::Sender<Confirmation>,
}

impl ConfirmDesk {
    /// Starts the task on the current runtime.
    pub(super) fn open(database: Database) -> Arc<Self> {
        let (waiting, calls) = mpsc::channel(WAITING);
        tokio::spawn(serve(database, calls));
        Arc::new(Self { waiting })
    }

    /// Answers once the photos are durable in the queue.
    pub(super) async fn confirm(&self, album: AlbumId, photos: Vec<PhotoId>) -> Result<Vec<PhotoId>> {
        let closed = || StoreError::new(StoreErrorKind::Unavailable, WHAT);
        let (answer, answered) = oneshot::channel();
        let call = Confirmation { album, photos, answer };
        self.waiting.send(call).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

async fn serve(database: Database, mut calls: mpsc::Receiver<Confirmation>) {
    let mut together = Vec::with_capacity(AT_ONCE);
    let mut before = 1;
    while gather(&mut calls, &mut together, before).await {
        before = together.len();
        metrics::histogram!(meters::CONFIRMATIONS_TOGETHER).record(together.len() as f64);
        let committed = tokio::time::timeout(COMMIT_LIMIT, commit(&database, &together)).await;
        match committed.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable, WHAT))) {
            Ok(answers) => {
                for (call, confirmed) in together.drain(..).zip(answers) {
                    // A caller that went away does not need its answer; its photos are confirmed.
                    drop(call.answer.send(Ok(confirmed)));
                }
            }
            Err(cause) => {
                for call in together.drain(..) {
                    drop(call.answer.send(Err(cause.clone())));
                }
            }
        }
    }
}

/// Takes what waits, and what comes within a moment when less waits than `before`. Whether there is anything.
async fn gather(
    calls: &mut mpsc::Receiver<Confirmation>,
    together: &mut Vec<Confirmation>,
    before: usize,
) -> bool {
    if calls.recv_many(together, AT_ONCE).await == 0 {
        return false;
    }
    let deadline = tokio::time::sleep(GATHER);
    tokio::pin!(deadline);
    while together.len() < before {
        let room = AT_ONCE - together.len();
        tokio::select! {
            () = &mut deadline => break,
            more = calls.recv_many(together, room) => {
                if more == 0 {
                    break;
                }
            }
        }
    }
    true
}

/// One transaction for all calls. One answer a call, in order.
async fn commit(database: &Database, calls: &[Confirmation]) -> Result<Vec<Vec<PhotoId>>> {
    let asked: Vec<PhotoRef> = calls.iter().flat_map(Confirmation::keys).collect();
    let mut transaction = database.write(WHAT).await?;
    let held = transaction.bulk().hold(&asked).await?;
    let expected: Vec<PhotoRef> = held
        .iter()
        .filter(|(_, standing)| standing.state == PhotoState::AwaitingUpload)
        .map(|(photo, _)| *photo)
        .collect();
    if !expected.is_empty() {
        let now = transaction.now(WHAT).await?;
        transaction.bulk().queue(&expected, now).await?;
    }
    transaction.commit(WHAT).await?;
    let there =
        |call: &Confirmation| call.keys().filter(|key| held.contains_key(key)).map(|key| key.photo).collect();
    Ok(calls.iter().map(there).collect())
}
