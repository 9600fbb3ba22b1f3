//! Checks that the kept counts of photos by state are those of their rows. Triggers keep them, whoever writes the photos.

use std::collections::BTreeMap;

use crate::model::ids::AlbumId;
use crate::model::photo::CountMismatch;
use crate::sql::database::{Database, Transaction};
use crate::sql::statement::query;
use crate::traits::Result;

const OPERATION: &str = "check the counts of photos";

const KEPT: &str = "select album, state, cast(sum(count) as bigint) from photo_count group by album, state \
     having sum(count) <> 0";

const COUNTED: &str = "select album, state, count(*) from photo group by album, state";

type Counts = BTreeMap<(AlbumId, String), i64>;

/// Returns the counts that are wrong. Reads the states of all photos, from one snapshot.
pub(crate) async fn find_mismatches(database: &Database) -> Result<Vec<CountMismatch>> {
    let mut snapshot = database.begin_snapshot(OPERATION).await?;
    snapshot.disable_statement_timeout(OPERATION).await?;
    let kept = load(&mut snapshot, KEPT).await?;
    let mut counted = load(&mut snapshot, COUNTED).await?;
    let mut mismatches = Vec::new();
    for (key, kept) in kept {
        let counted = counted.remove(&key).unwrap_or_default();
        mismatches.push((key, kept, counted));
    }
    mismatches.extend(counted.into_iter().map(|(key, counted)| (key, 0, counted)));
    let is_wrong = |(_, kept, counted): &(_, i64, i64)| kept != counted;
    let to_mismatch = |((album, state), kept, counted)| CountMismatch { album, state, kept, counted };
    Ok(mismatches.into_iter().filter(is_wrong).map(to_mismatch).collect())
}

async fn load(snapshot: &mut Transaction, statement: &'static str) -> Result<Counts> {
    let rows: Vec<(AlbumId, String, i64)> = query(OPERATION, statement).fetch_all(snapshot).await?;
    Ok(rows.into_iter().map(|(album, state, count)| ((album, state), count)).collect())
}
