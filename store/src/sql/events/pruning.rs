//! Deletes old changes of albums that live, so that an album that is processed again and again does not grow: events were made
//! of them, and a face index that has not seen them reads the album.

use crate::model::encoding::micros_after;
use crate::model::event::KeptChanges;
use crate::model::ids::AlbumId;
use crate::sql::database::Transaction;
use crate::sql::statement::{Query, Statement, query};
use crate::traits::Result;

pub(crate) const OPERATION: &str = "delete old changes";

/// Albums of one transaction, and changes of each, with some dozen photos at most: writers of the albums wait for it.
const ALBUMS_PER_STEP: i64 = 16;
const CHANGES_PER_STEP: i64 = 128;

/// Albums with changes that are published and not kept, and before which change the next step ends. Whether a step is too recent is
/// seen from its newest change alone: one whose photos have settled since is kept for longer than it has to.
macro_rules! prunable_albums {
    ($least:literal) => {
        concat!(
            "select album, before from (select album.id as album, album.changes as changes, \
             album.pruned_before as pruned_before, ",
            $least,
            "(event_cursor.published, album.changes - $1, album.pruned_before + $2) as before \
             from album join event_cursor on event_cursor.album = album.id where album.closed_at is null) as step \
             where before > pruned_before and (before <= changes - $3 or coalesce(( \
             select max(photo.settled_at) from photo_change as newest cross join photo \
             where newest.album = step.album and newest.change = step.before - 1 \
             and photo.album = newest.album and photo.id = newest.photo), 0) <= $4) \
             order by album limit $5"
        )
    };
}

pub(crate) const PRUNABLE_ALBUMS: Statement =
    Statement::PerDialect { sqlite: prunable_albums!("min"), postgres: prunable_albums!("least") };

type PrunableAlbum = (AlbumId, i64);

/// Whether there are changes that are not kept.
pub(crate) async fn has_prunable(snapshot: &mut Transaction, kept: &KeptChanges) -> Result<bool> {
    let now = snapshot.read_clock(OPERATION).await?;
    let album: Option<PrunableAlbum> = find_prunable(kept, now).bind(1_i64).fetch_optional(snapshot).await?;
    Ok(album.is_some())
}

/// Deletes some of the changes that are not kept; returns how many rows.
///
/// The last published change stays: by its mark the publisher recognises that a database has lost it. Albums are locked in
/// the order of their ids, as everybody does.
pub(crate) async fn prune(transaction: &mut Transaction, kept: &KeptChanges) -> Result<u64> {
    let now = transaction.read_clock(OPERATION).await?;
    let albums: Vec<PrunableAlbum> =
        find_prunable(kept, now).bind(ALBUMS_PER_STEP).fetch_all(&mut *transaction).await?;
    let mut deleted = 0;
    for (album, before) in albums {
        let note = "update album set pruned_before = $2 where id = $1 and closed_at is null";
        query(OPERATION, note).bind(album).bind(before).execute(&mut *transaction).await?;
        let delete = "delete from photo_change where album = $1 and change < $2";
        deleted += query(OPERATION, delete).bind(album).bind(before).execute(&mut *transaction).await?;
    }
    Ok(deleted)
}

/// The statement without its limit.
fn find_prunable(kept: &KeptChanges, now: i64) -> Query {
    query(OPERATION, PRUNABLE_ALBUMS)
        .bind(i64::from(kept.least.max(1)))
        .bind(CHANGES_PER_STEP)
        .bind(i64::from(kept.most.max(1)))
        .bind(now - micros_after(0, kept.recent))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::conformance::{AlbumFixture, face};
    use crate::model::encoding::now_micros;
    use crate::model::ids::ProcessId;
    use crate::model::process::{Task, TaskLease};
    use crate::sql::connection::sqlite::SqliteFile;
    use crate::sql::tests::open_store;
    use crate::store::Store;

    /// The changes of 40 s in which many workers commit 300 a second, of one photo each.
    const CHANGES: i64 = 12_000;

    /// Adds them to an album with one change, as they are when they were published.
    async fn add_changes(database: &SqliteFile, album: AlbumId) {
        for insert in [
            "with recursive n (i) as (select 2 union all select i + 1 from n where i <= $2) \
             insert into photo (album, id, filename, content_type, state, width, height, created_at, updated_at, \
             confirmed_at, settled_at, organization) select $1, randomblob(16), i, 'image/jpeg', 'ready', 60, 40, 1, 1, 1, \
             $3 - ($2 + 1 - i) * 1000000 / 300, (select organization from album where id = $1) from n",
            "insert into photo_change (album, change, photo, mark, settled) \
             select album, cast(filename as integer), id, 7, 1 from photo where album = $1 and filename <> '0.jpg'",
            "update album set changes = 1 + $2 where id = $1",
            "insert into event_cursor (album, published) values ($1, 1 + $2)",
        ] {
            let insert = sqlx::query(insert).bind(album).bind(CHANGES).bind(now_micros());
            insert.execute(&database.writer).await.unwrap();
        }
    }

    /// Deletes what is not kept; returns how many changes are left.
    async fn prune_all(store: &Store, database: &SqliteFile, lease: TaskLease, kept: &KeptChanges) -> i64 {
        while store.event_publisher.has_prunable_changes(kept).await.unwrap() {
            store.event_publisher.prune_changes(lease, kept).await.unwrap();
        }
        let left = sqlx::query_scalar("select count(*) from photo_change");
        left.fetch_one(&database.reader).await.unwrap()
    }

    /// Processes bring their albums up to date every 20 s, one after the other, and read an album as a whole that lacks a change.
    #[tokio::test]
    async fn changes_of_the_last_two_minutes_are_kept_for_albums_in_memory() {
        let (_folder, store, database) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        fixture.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], Vec::new()).await;
        let probe = face([1.0, 0.0, 0.0, 0.0]).embedding.unwrap();
        assert_eq!(store.faces.nearest(fixture.album, &probe, 10, 0.5).await.unwrap().len(), 1);
        add_changes(&database, fixture.album).await;
        let day = Duration::from_secs(86_400);
        let lease = store.tasks.take(Task::EventPublisher, ProcessId::generate(), day).await;
        let lease = lease.unwrap().unwrap();
        let prune = async |kept: &KeptChanges| prune_all(&store, &database, lease, kept).await;

        assert_eq!(prune(&KeptChanges::OF_SERVICE).await, CHANGES + 1);
        store.face_cache.refresh(now_micros()).await.unwrap();
        assert_eq!(store.face_cache.count_resident_faces(fixture.album).await, Some(1));

        let few = KeptChanges { most: 6000, ..KeptChanges::OF_SERVICE };
        let left = prune(&few).await;
        assert!((6000..6000 + CHANGES_PER_STEP).contains(&left), "{left}: there is a limit");
        store.age_events(fixture.album, few.recent).await.unwrap();
        let least = i64::from(few.least);
        assert_eq!(
            prune(&few).await,
            least + 1,
            "with the one before, by which a server that lost it is recognised"
        );
    }
}
