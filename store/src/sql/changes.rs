//! Numbers the changes of an album.

use crate::model::ids::{AlbumId, PhotoId};
use crate::search::faces::Change;
use crate::sql::database::Transaction;
use crate::sql::statement::query;
use crate::traits::Result;

const OPERATION: &str = "record a change";

const NOTE_TO_LEARN: &str = "insert into album_to_learn (album) values ($1) on conflict (album) do nothing";

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// Photos became ready or failed: the publisher of events tells it.
    Settled,
    /// Photos were judged again, erased or deleted: searches follow it, and nobody is told that photos are ready which were
    /// ready before.
    Content,
}

/// The album of a recorded change, which is locked.
pub(crate) struct RecordedChange {
    /// The version of the rules by which its texts are judged.
    pub(crate) rules_version: i64,
    /// How many erasures of faces and bibs it has had.
    pub(crate) erasures: i64,
    /// The version of its watermark; 0 without one.
    pub(crate) watermark_version: i64,
}

/// Notes that the format of an album's bibs is to be learned again. The transaction holds the lock of the album's row.
pub(crate) async fn note_to_learn(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
) -> Result<()> {
    query(operation, NOTE_TO_LEARN).bind(album).execute(transaction).await.map(drop)
}

/// Increments the album's change number and records which photos changed.
///
/// The update locks the album's row until the commit. So changes become visible in the order of their numbers, and an
/// index that has read up to change n misses nothing below it. With a sequence instead of the row, a transaction could
/// get number 7, commit after number 8, and be missed by every index that read in between.
pub(crate) async fn record_changes(
    transaction: &mut Transaction,
    album: AlbumId,
    photos: &[PhotoId],
    kind: ChangeKind,
) -> Result<RecordedChange> {
    let count = "update album set changes = changes + 1 where id = $1 \
                 returning changes, list_version, erasures, watermark_version, \
                 cast(case when changes >= learn_at then 1 else 0 end as bigint)";
    let (number, rules_version, erasures, watermark_version, has_grown): (i64, i64, i64, i64, i64) =
        query(OPERATION, count).bind(album).fetch_one(&mut *transaction).await?;
    if has_grown != 0 {
        note_to_learn(transaction, OPERATION, album).await?;
    }
    transaction.queue_writes().record_change(album, Change::new(number), photos, kind).await?;
    Ok(RecordedChange { rules_version, erasures, watermark_version })
}
