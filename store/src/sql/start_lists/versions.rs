//! The version of an album's rules, and which albums are to be judged again.

use crate::error::StoreError;
use crate::model::ids::AlbumId;
use crate::sql::changes::note_to_learn;
use crate::sql::database::Transaction;
use crate::sql::statement::query;
use crate::traits::Result;

/// Makes the rules of an album newer, and locks its row.
const RAISE_VERSION: &str = "update album set list_version = list_version + 1 \
     where id = $1 and closed_at is null returning list_version";

const LOCK_ALBUM: &str = "update album set list_version = list_version where id = $1 returning list_version";

const NOTE_ALBUM: &str = "insert into album_to_judge (album) values ($1) on conflict (album) do nothing";

/// Raises the version of an album's rules and notes that its photos are to be judged by them. Locks the album's row.
pub(super) async fn raise_version(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
) -> Result<i64> {
    let raised: Option<(i64,)> =
        query(operation, RAISE_VERSION).bind(album).fetch_optional(&mut *transaction).await?;
    let (version,) = raised.ok_or_else(|| StoreError::not_found(format!("album {album}")))?;
    note_album(transaction, operation, album).await?;
    Ok(version)
}

/// Locks the row of an album; returns the version of its rules.
pub(super) async fn lock_album(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
) -> Result<Option<i64>> {
    let row: Option<(i64,)> = query(operation, LOCK_ALBUM).bind(album).fetch_optional(transaction).await?;
    Ok(row.map(|(version,)| version))
}

/// Notes that photos of an album were judged by an older version. The transaction holds the lock of the album's row.
pub(crate) async fn note_album(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
) -> Result<()> {
    query(operation, NOTE_ALBUM).bind(album).execute(transaction).await.map(drop)
}

/// Has an album judged again whose configuration has changed, or whose list lost entries, and has its format learned again: which
/// numbers are excluded may have changed. Locks its row.
pub(crate) async fn judge_again(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
) -> Result<()> {
    raise_version(transaction, operation, album).await?;
    note_to_learn(transaction, operation, album).await
}
