//! Rows of start lists.

use sqlx::FromRow;

use crate::error::StoreError;
use crate::model::encoding::{from_micros, to_micros};
use crate::model::ids::AlbumId;
use crate::model::start_list::StartListEntry;
use crate::sql::row_types::to_json;
use crate::sql::statement::{ConnectionRef, query, strip_nul};
use crate::traits::Result;

#[derive(FromRow)]
pub(super) struct EntryRow {
    bib: String,
    wave: Option<String>,
    team: Option<String>,
    start_at: Option<i64>,
    excluded: i64,
}

impl TryFrom<EntryRow> for StartListEntry {
    type Error = StoreError;
    fn try_from(row: EntryRow) -> Result<Self> {
        Ok(Self {
            bib: row.bib,
            wave: row.wave,
            team: row.team,
            start_at: row.start_at.map(from_micros).transpose()?,
            excluded: row.excluded != 0,
        })
    }
}

/// The entries as a JSON list of lists.
pub(super) fn entries_json(entries: &[StartListEntry]) -> Result<String> {
    let rows: Vec<_> = entries
        .iter()
        .map(|entry| {
            let text = |text: &Option<String>| text.clone().map(strip_nul);
            let start_at = entry.start_at.map(to_micros);
            (&entry.bib, text(&entry.wave), text(&entry.team), start_at, i64::from(entry.excluded))
        })
        .collect();
    to_json(&rows)
}

/// All entries of an album, excluded numbers too.
pub(super) async fn load<'c>(
    on: impl Into<ConnectionRef<'c>>,
    operation: &'static str,
    album: AlbumId,
) -> Result<Vec<StartListEntry>> {
    let all =
        "select bib, wave, team, start_at, excluded from start_list_entry where album = $1 order by bib";
    let rows: Vec<EntryRow> = query(operation, all).bind(album).fetch_all(on).await?;
    rows.into_iter().map(TryInto::try_into).collect()
}
