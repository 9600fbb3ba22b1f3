//! Confirmations, committed together: what waits while one transaction syncs goes into the next one.
//!
//! A sync costs the same for one photo as for a hundred, and partners confirm from many connections at once.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Sqlite, Transaction};
use tokio::sync::{mpsc, oneshot};

use super::{Database, fault};
use crate::error::{StoreError, StoreErrorKind};
use crate::ids::{AlbumId, PhotoId};
use crate::meters;
use crate::rows::now;
use crate::traits::Result;

/// How many calls may wait; the next ones wait for a place. More than the connections a busy API has open.
const WAITING: usize = 256;

/// How many calls one transaction takes.
const AT_ONCE: usize = 64;

/// How long one transaction waits for as many calls as the one before had. Partners that confirm one photo after the
/// other come back a moment after their answer: without this, the first of eight would go alone and the other seven
/// wait for its sync, every time (measured: two syncs of 3.9 ms for eight photos instead of one).
const GATHER: Duration = Duration::from_millis(1);

const WHAT: &str = "confirm photos";

/// One call of `Queue::confirm`.
struct Confirmation {
    album: AlbumId,
    photos: Vec<PhotoId>,
    answer: oneshot::Sender<Result<Vec<PhotoId>>>,
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
        match commit(&database, &together).await {
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
    let mut transaction = database.write(WHAT).await?;
    let now = now();
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        let mut confirmed = Vec::with_capacity(call.photos.len());
        for photo in &call.photos {
            if confirm_one(&mut transaction, call.album, *photo, now).await? {
                confirmed.push(*photo);
            }
        }
        answers.push(confirmed);
    }
    transaction.commit().await.map_err(fault(WHAT))?;
    Ok(answers)
}

/// Whether the photo is there; queued when it waited for its upload.
async fn confirm_one(
    transaction: &mut Transaction<'static, Sqlite>,
    album: AlbumId,
    photo: PhotoId,
    now: i64,
) -> Result<bool> {
    let queued = sqlx::query(
        "update photo set state = 'queued', confirmed_at = $3, updated_at = $3, published_at = null \
         where album = $1 and id = $2 and state = 'awaiting_upload'",
    )
    .bind(album)
    .bind(photo)
    .bind(now)
    .execute(&mut **transaction)
    .await
    .map_err(fault(WHAT))?
    .rows_affected();
    if queued > 0 {
        return Ok(true);
    }
    let there: Option<i64> = sqlx::query_scalar("select 1 from photo where album = $1 and id = $2")
        .bind(album)
        .bind(photo)
        .fetch_optional(&mut **transaction)
        .await
        .map_err(fault(WHAT))?;
    Ok(there.is_some())
}
