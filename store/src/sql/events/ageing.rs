//! Time that passes for the events of an album, for tests of its pauses.

use std::time::Duration;

use crate::model::encoding::micros_after;
use crate::model::ids::AlbumId;
use crate::sql::database::Database;
use crate::sql::statement::query;
use crate::traits::Result;

/// Makes everything that the publisher goes by lie so much further in the past: when photos of the album settled, since when
/// its changes wait, when it was told to be idle and when that is looked at next.
pub(crate) async fn age_events(database: &Database, album: AlbumId, time: Duration) -> Result<()> {
    const OPERATION: &str = "let time pass";
    let mut transaction = database.begin_write(OPERATION).await?;
    for age in [
        "update photo set settled_at = settled_at - $2 where album = $1 and settled_at is not null",
        "update album_change_feed set since = since - $2 where album = $1",
        "update event_cursor set idle_check_at = idle_check_at - $2, idle_told_at = idle_told_at - $2 \
         where album = $1",
    ] {
        query(OPERATION, age).bind(album).bind(micros_after(0, time)).execute(&mut transaction).await?;
    }
    transaction.commit(OPERATION).await
}
