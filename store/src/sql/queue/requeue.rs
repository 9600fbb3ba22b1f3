//! Queues settled photos once more, those that are not paid as far as the balance covers them: one, or all of an album. Photos
//! of it that are being processed are asked for again: see [`super::finish`].

use uuid::Uuid;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::PhotoState;
use crate::sql::credits::SharedLedger;
use crate::sql::credits::acceptance::Acceptance;
use crate::sql::credits::ledger::Writer;
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::parse_photo_state;
use crate::sql::statement::{Statement, query};
use crate::traits::{PhotoRef, Reprocessed, Result};

/// Requeues ready and failed photos, and holds `$price` for those that were never ready. Their detections stay searchable
/// until new ones replace them. Photos that wait and have a size have pictures: those that failed have none, but versions before
/// this one left them their size.
macro_rules! requeue {
    ($price:literal) => {
        concat!(
            "update photo set state = 'queued', failure = null, failure_detail = null, settled_at = null, \
             confirmed_at = $2, updated_at = $2, published_at = null, \
             organization = (select organization from album where album.id = photo.album), \
             width = case when state = 'failed' then null else width end, \
             height = case when state = 'failed' then null else height end, \
             held = case when charged_at is null then ",
            $price,
            " else 0 end where album = $1 "
        )
    };
}

const RETRY: &str = concat!(requeue!("$4"), "and id = $3");

/// How many photos are requeued in one transaction. A hundred thousand at once would block every confirmation for
/// seconds.
const BATCH: i64 = 2000;

const OPERATION: &str = "reprocess an album";

macro_rules! select_batch {
    ($lock:literal) => {
        concat!(
            "select id, state from photo where album = $1 and state in ('ready', 'failed', 'processing', 'queued') \
             and id > $2 order by id limit $3",
            $lock
        )
    };
}

/// The photos of a batch, locked: before the balance, as everywhere. This blocks until transactions that are making some of them
/// ready, or leasing them with the old settings, have ended. Photos that are still queued then will be leased with the new
/// settings.
pub(crate) const LOCK_BATCH: Statement =
    Statement::PerDialect { sqlite: select_batch!(""), postgres: select_batch!(" for no key update") };

/// Requeues the locked photos of a batch, of those that are not paid the first `$5`. The state is asked again, in case
/// another version of the service locks in another order.
macro_rules! requeue_batch {
    ($named:literal) => {
        concat!(
            "with settled as (select id, charged_at, \
             count(*) filter (where charged_at is null) over (order by id) as unpaid \
             from photo where album = $1 and id ",
            $named,
            ") ",
            requeue!("$4"),
            "and state in ('ready', 'failed') \
             and id in (select id from settled where charged_at is not null or unpaid <= $5) returning id, held"
        )
    };
}

pub(crate) const REQUEUE_BATCH: Statement = Statement::PerDialect {
    sqlite: requeue_batch!("in (select unhex(value) from json_each($3))"),
    postgres: requeue_batch!("= any($3)"),
};

macro_rules! ask_again {
    ($named:literal) => {
        concat!("update photo set confirmed_at = $2, updated_at = $2 where album = $1 and id ", $named)
    };
}

/// Notes that locked photos, which are being processed, were asked for again. They keep their leases: a worker may be writing
/// their pictures, and an erasure waits for its end.
const ASK_AGAIN: Statement = Statement::PerDialect {
    sqlite: ask_again!("in (select unhex(value) from json_each($3))"),
    postgres: ask_again!("= any($3)"),
};

/// As [`crate::traits::Queue::retry`].
pub(super) async fn retry(database: &Database, shared: &SharedLedger, photo: PhotoRef) -> Result<()> {
    const OPERATION: &str = "retry a photo";
    let mut transaction = database.begin_write(OPERATION).await?;
    let locked = transaction.queue_writes().lock_photos(&[photo]).await?;
    let Some(row) = locked.get(&photo).filter(|row| row.state == PhotoState::Failed) else {
        // Explicitly: a rollback on drop would end a moment later, and leasing skips rows that are locked.
        transaction.rollback(OPERATION).await?;
        let id = photo.photo;
        let row = locked.get(&photo).ok_or_else(|| StoreError::not_found(format!("photo {id}")))?;
        let what = format!("photo {id} is {}", row.state.as_str());
        return Err(StoreError::new(StoreErrorKind::Conflict, what));
    };
    let now = transaction.read_clock(OPERATION).await?;
    let unpaid = (!row.is_charged).then_some(photo);
    let mut acceptance = Acceptance::new(&mut transaction, shared, unpaid.into_iter(), now).await?;
    if unpaid.is_some_and(|photo| acceptance.hold(photo).is_err()) {
        transaction.rollback(OPERATION).await?;
        return Err(StoreError::new(StoreErrorKind::InsufficientCredits, OPERATION));
    }
    query(OPERATION, RETRY)
        .bind(photo.album)
        .bind(now)
        .bind(photo.photo)
        .bind(shared.ledger.price_of_photo())
        .execute(&mut transaction)
        .await?;
    acceptance.entries.write(&mut transaction, &shared.ledger, Writer::Api, now).await?;
    transaction.commit(OPERATION).await
}

/// Batch by batch in the order of ids, so that a photo that becomes ready again meanwhile is not requeued twice. An
/// interrupted call is completed by calling again. Photos that are being processed are not counted: whether they are processed
/// again is known when their attempts end.
pub(super) async fn reprocess(
    database: &Database,
    shared: &SharedLedger,
    album: AlbumId,
) -> Result<Reprocessed> {
    let mut reprocessed = Reprocessed::default();
    let mut asked_again = 0;
    let mut after = PhotoId(Uuid::nil());
    loop {
        let mut transaction = database.begin_write(OPERATION).await?;
        let locked: Vec<(PhotoId, String)> = query(OPERATION, LOCK_BATCH)
            .bind(album)
            .bind(after)
            .bind(BATCH)
            .fetch_all(&mut transaction)
            .await?;
        let last = locked.last().map(|(id, _)| *id).filter(|_| locked.len() as i64 == BATCH);
        let (mut processing, mut settled) = (Vec::new(), Vec::new());
        for (photo, state) in locked {
            match parse_photo_state(&state)? {
                PhotoState::Processing => processing.push(photo.0),
                PhotoState::Ready | PhotoState::Failed => settled.push(photo.0),
                PhotoState::Queued | PhotoState::AwaitingUpload => {}
            }
        }
        asked_again += ask_again(&mut transaction, album, processing).await?;
        let count = settled.len() as u64;
        let queued = requeue_batch(&mut transaction, shared, album, settled).await?;
        transaction.commit(OPERATION).await?;
        reprocessed.queued += queued;
        reprocessed.declined += count - queued;
        match last {
            Some(last) => after = last,
            None => break,
        }
    }
    if reprocessed.queued == 0 && asked_again == 0 && reprocessed.declined > 0 {
        return Err(StoreError::new(StoreErrorKind::InsufficientCredits, OPERATION));
    }
    Ok(reprocessed)
}

/// Asks again for locked photos that are being processed; returns how many.
async fn ask_again(transaction: &mut Transaction, album: AlbumId, photos: Vec<Uuid>) -> Result<u64> {
    if photos.is_empty() {
        return Ok(0);
    }
    let now = transaction.read_clock(OPERATION).await?;
    query(OPERATION, ASK_AGAIN).bind(album).bind(now).bind(photos).execute(transaction).await
}

/// Requeues locked photos; returns how many.
async fn requeue_batch(
    transaction: &mut Transaction,
    shared: &SharedLedger,
    album: AlbumId,
    locked: Vec<Uuid>,
) -> Result<u64> {
    if locked.is_empty() {
        return Ok(0);
    }
    let now = transaction.read_clock(OPERATION).await?;
    let mut acceptance = Acceptance::of_many(transaction, shared, album, now).await?;
    let requeued: Vec<(PhotoId, i64)> = query(OPERATION, REQUEUE_BATCH)
        .bind(album)
        .bind(now)
        .bind(locked)
        .bind(shared.ledger.price_of_photo())
        .bind(acceptance.count_covered(album))
        .fetch_all(&mut *transaction)
        .await?;
    let held: i64 = requeued.iter().map(|(_, held)| held).sum();
    if held > 0 {
        acceptance.hold_more(album, held);
    }
    acceptance.entries.write(transaction, &shared.ledger, Writer::Api, now).await?;
    Ok(requeued.len() as u64)
}
