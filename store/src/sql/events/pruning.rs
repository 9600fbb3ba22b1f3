//! Deletes old changes of albums that live, so that an album that is processed again and again does not grow: events were made
//! of them, and a face index that has not seen them reads the album.

use crate::model::ids::AlbumId;
use crate::sql::database::Transaction;
use crate::sql::statement::query;
use crate::traits::Result;

pub(crate) const OPERATION: &str = "delete old changes";

/// Albums of one transaction, and changes of each, with some dozen photos at most: writers of the albums wait for it.
const ALBUMS_PER_STEP: i64 = 16;
const CHANGES_PER_STEP: i64 = 128;

/// Albums with changes that are neither among the last `$1` nor still to be published, and up to where these go.
pub(crate) const PRUNABLE_ALBUMS: &str = "select album.id, album.pruned_before, \
     case when event_cursor.published < album.changes - $1 then event_cursor.published else album.changes - $1 end \
     from album join event_cursor on event_cursor.album = album.id where album.closed_at is null \
     and event_cursor.published > album.pruned_before and album.changes - $1 > album.pruned_before \
     order by album.id limit $2";

type PrunableAlbum = (AlbumId, i64, i64);

/// Whether changes can be deleted of which the album has `kept` later ones.
pub(crate) async fn has_prunable(snapshot: &mut Transaction, kept: i64) -> Result<bool> {
    let album: Option<PrunableAlbum> =
        query(OPERATION, PRUNABLE_ALBUMS).bind(kept).bind(1_i64).fetch_optional(snapshot).await?;
    Ok(album.is_some())
}

/// Deletes some of the changes of which their album has `kept` later ones; returns how many rows.
///
/// The last published change stays: by its mark the publisher recognises that a database has lost it. Albums are locked in
/// the order of their ids, as everybody does.
pub(crate) async fn prune(transaction: &mut Transaction, kept: i64) -> Result<u64> {
    let albums: Vec<PrunableAlbum> = query(OPERATION, PRUNABLE_ALBUMS)
        .bind(kept)
        .bind(ALBUMS_PER_STEP)
        .fetch_all(&mut *transaction)
        .await?;
    let mut deleted = 0;
    for (album, pruned_before, limit) in albums {
        let before = limit.min(pruned_before + CHANGES_PER_STEP);
        let note = "update album set pruned_before = $2 where id = $1 and closed_at is null";
        query(OPERATION, note).bind(album).bind(before).execute(&mut *transaction).await?;
        let delete = "delete from photo_change where album = $1 and change < $2";
        deleted += query(OPERATION, delete).bind(album).bind(before).execute(&mut *transaction).await?;
    }
    Ok(deleted)
}
