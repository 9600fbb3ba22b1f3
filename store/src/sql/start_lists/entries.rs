//! Rows of start lists.

use sqlx::FromRow;

use crate::bibs::start_list::{StartList, zero_spellings};
use crate::error::StoreError;
use crate::model::album::AlbumConfig;
use crate::model::encoding::{from_micros, to_micros};
use crate::model::ids::AlbumId;
use crate::model::start_list::StartListEntry;
use crate::sql::row_types::{from_json, to_json};
use crate::sql::statement::{ConnectionRef, Statement, query, strip_nul};
use crate::traits::Result;

macro_rules! select_spellings {
    ($is_one_of:literal) => {
        concat!(
            "select bib, excluded, (select config from album where id = $1) from start_list_entry \
             where album = $1 and bib ",
            $is_one_of
        )
    };
}

/// Of the whole list these few entries alone: every search by a bib asks for them.
pub(crate) const FIND_SPELLINGS: Statement = Statement::PerDialect {
    sqlite: select_spellings!("in (select value from json_each($2))"),
    postgres: select_spellings!("= any($2)"),
};

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

/// Returns all texts that an album's list takes for the same bib as this one, itself among them: see [`StartList::find`]. The text
/// alone where the list has no such bib or is not used.
pub(in crate::sql) async fn find_spellings<'c>(
    on: impl Into<ConnectionRef<'c>>,
    operation: &'static str,
    album: AlbumId,
    text: &str,
) -> Result<Vec<String>> {
    let spellings = zero_spellings(text);
    let rows: Vec<(String, i64, String)> =
        query(operation, FIND_SPELLINGS).bind(album).bind(spellings.clone()).fetch_all(on).await?;
    let alone = || vec![text.to_owned()];
    let Some((_, _, config)) = rows.first() else { return Ok(alone()) };
    // Without its pattern, which says nothing of spellings and takes longer to compile than all else here.
    let config = AlbumConfig { bib_pattern: String::new(), ..from_json(config)? };
    let to_entry = |(bib, excluded, _): (String, i64, String)| StartListEntry {
        excluded: excluded != 0,
        ..StartListEntry::of(bib)
    };
    let entries: Vec<StartListEntry> = rows.into_iter().map(to_entry).collect();
    let list = StartList::new(&entries, &config);
    let Some((list, bib)) = list.as_ref().and_then(|list| Some((list, list.find(text)?))) else {
        return Ok(alone());
    };
    Ok(spellings.into_iter().filter(|text| list.spells(text, bib)).collect())
}
