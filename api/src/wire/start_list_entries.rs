//! Requests and responses of `albums/startlist/entries`.

use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::start_list::{EntryPage, EntryQuery, StartListEntry};
use photofinish_store::search::variants::normalise_bib;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{Output, read_album_id, sample};
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{Integer, formatted, text};

/// A bib on a start list.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    bib: String,
    /// The start block.
    #[schema(required)]
    wave: Option<String>,
    /// The team or relay.
    #[schema(required)]
    team: Option<String>,
    /// When the runner starts.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    start_at: Option<OffsetDateTime>,
}

impl From<StartListEntry> for Entry {
    fn from(entry: StartListEntry) -> Self {
        let StartListEntry { bib, wave, team, start_at, .. } = entry;
        Self { bib, wave, team, start_at }
    }
}

/// A page of entries, by bib.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartListEntries {
    pub(crate) entries: Vec<Entry>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
    /// Number of entries on all pages.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: u64,
}

impl From<EntryPage> for StartListEntries {
    fn from(page: EntryPage) -> Self {
        let last = page.entries.last().filter(|_| page.has_more);
        let next_cursor = last.map(|entry| hex::encode(format!("{:<CURSOR_LENGTH$}", entry.bib)));
        Self { next_cursor, total: page.total, entries: page.entries.into_iter().map(Entry::from).collect() }
    }
}

impl Output for StartListEntries {
    fn example() -> Self {
        let entry = StartListEntry { wave: Some("B".to_owned()), ..StartListEntry::of("1207".to_owned()) };
        EntryPage { entries: vec![entry], has_more: false, total: 1 }.into()
    }
}

/// Longest bib, in bytes: a cursor is a bib with spaces after it.
const CURSOR_LENGTH: usize = 12;

fn check_cursor(text: &str) -> Result<(), String> {
    let is_lower_case = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let bytes = hex::decode(text).unwrap_or_default();
    if is_lower_case && bytes.len() == CURSOR_LENGTH {
        Ok(())
    } else {
        Err("must be a cursor that an earlier answer gave".to_owned())
    }
}

/// Any bytes are a position among bibs; what is no text is the first one.
fn decode_cursor(text: &str) -> Option<String> {
    let bib = String::from_utf8(hex::decode(text).ok()?).ok()?;
    (!bib.contains('\0')).then(|| bib.trim_end().to_owned())
}

/// Body of `albums/startlist/entries`.
pub(crate) struct ListEntries {
    pub(crate) album: AlbumId,
    pub(crate) query: EntryQuery,
}

impl Input for ListEntries {
    const NAME: &'static str = "ListStartListEntries";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let prefix = fields.optional("prefix", "Only bibs that begin so.", text(0, 100));
        let limit = fields.optional_or("limit", "Entries per page.", 100, Integer { min: 1, max: 1000 });
        let cursor = formatted(2 * CURSOR_LENGTH, "^[0-9a-f]{24}$", check_cursor);
        let after = fields.optional("cursor", "`nextCursor` of the previous page.", cursor);
        let prefix = normalise_bib(&prefix.unwrap_or_default());
        let after = after.and_then(|cursor| decode_cursor(&cursor));
        Some(Self { album: album?, query: EntryQuery { prefix, after, limit } })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "prefix": "12" })
    }
}
