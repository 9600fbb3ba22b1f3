//! Requests of `albums/startlist/import` and `check`, and their responses.

use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::start_list::{self as stored, CheckedStartList, ImportMode, ImportedStartList};
use regex::Regex;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{Output, read_album_id, round_percent, sample};
use crate::start_list::csv::Columns;
use crate::start_list::{BibRange, MAX_LABEL, RawEntry, RefusedEntry, SentStartList};
use crate::validate::input::{BodySize, Fields, Input, nested};
use crate::validate::issues::{PathSegment, code};
use crate::validate::validators::{AnyText, ListOf, OneOf, text};

/// Refused rows that a response shows.
const MAX_REFUSED: usize = 100;

const MODES: [ImportMode; 2] = [ImportMode::Replace, ImportMode::Merge];

fn mode_name(mode: ImportMode) -> &'static str {
    match mode {
        ImportMode::Replace => "replace",
        ImportMode::Merge => "merge",
    }
}

/// Body of `albums/startlist/import` and `albums/startlist/check`.
pub(crate) struct ImportStartList {
    pub(crate) album: AlbumId,
    pub(crate) mode: ImportMode,
    pub(crate) list: SentStartList,
}

impl Input for ImportStartList {
    const NAME: &'static str = "ImportStartList";
    const SIZE: BodySize = BodySize::Batch;

    fn units(&self) -> u32 {
        self.list.units()
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let description =
            "`replace`, the default, removes the entries that are not in this request; `merge` keeps them.";
        let modes = OneOf { choices: &MODES, to_name: mode_name };
        let mode = fields.optional("mode", description, modes).unwrap_or(ImportMode::Replace);
        let description = "A CSV file: fields separated by `,`, `;` or tabs, with a header. Takes the place of `entries`. \
            Contains no U+0000, as files in UTF-16 do: save them as UTF-8.";
        let csv = fields.optional("csv", description, AnyText);
        let description = "The names of the columns of the CSV file that are read, for names that the service does not guess.";
        let columns = fields.optional("columns", description, nested::<Columns>());
        let entries = ListOf { item: nested::<RawEntry>(), min: 0, max: 100_000 };
        let entries = fields.optional("entries", "The bibs of the event.", entries);
        let ranges = ListOf { item: nested::<BibRange>(), min: 0, max: 1000 };
        let ranges = fields.optional("ranges", "Ranges of bibs.", ranges);
        let exclude = ListOf { item: text(1, 100), min: 0, max: 100_000 };
        let exclude = fields.optional("exclude", "Numbers that nobody wears.", exclude);
        // A member that is invalid is there.
        let has_two = fields.count_present(&["csv", "entries"]) == 2;
        let has_none = fields.count_present(&["csv", "entries", "ranges", "exclude"]) == 0;
        fields.check_together(|report| {
            if has_two {
                let csv = PathSegment::Field("csv");
                report.within(csv, |report| report.add(code::INVALID_VALUE, "excludes `entries`"));
            }
            if has_none {
                report.add(code::REQUIRED, "`csv`, `entries`, `ranges` or `exclude` is required");
            }
        });
        let mut entries = entries.unwrap_or_default();
        for (at, entry) in entries.iter_mut().enumerate() {
            entry.line = at + 1;
        }
        let list = SentStartList {
            csv,
            columns: columns.unwrap_or_default(),
            entries,
            ranges: ranges.unwrap_or_default(),
            exclude: exclude.unwrap_or_default(),
        };
        Some(Self { album: album?, mode, list })
    }

    fn example() -> Value {
        json!({
            "albumId": sample::ALBUM,
            "csv": "Startnummer;Startblock\n1207;B\n1208;C\n",
            "ranges": [{ "from": "2000", "to": "2999", "wave": "D" }],
            "exclude": ["2013"],
        })
    }
}

impl Input for Columns {
    const NAME: &'static str = "StartListColumns";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let bib = fields.optional("bib", "The column of bibs.", text(1, 200));
        let wave = fields.optional("wave", "The column of waves.", text(1, 200));
        let team = fields.optional("team", "The column of teams.", text(1, 200));
        let start_at = fields.optional(
            "startAt",
            "The column of start times; of one that is guessed, what is no time is left out.",
            text(1, 200),
        );
        Some(Self { bib, wave, team, start_at })
    }

    fn example() -> Value {
        json!({ "bib": "Startnummer" })
    }
}

impl Input for RawEntry {
    const NAME: &'static str = "NewStartListEntry";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let bib = fields.required(
            "bib",
            "As printed. Spaces and punctuation are ignored, and so is the fraction of `123.0`.",
            text(1, 100),
        );
        let wave = fields.optional("wave", "The start block.", text(0, MAX_LABEL));
        let team = fields.optional("team", "The team or relay.", text(0, MAX_LABEL));
        let start_at = fields.optional("startAt", "When the runner starts, by RFC 3339.", text(0, 100));
        Some(Self { line: 0, bib: bib?, wave, team, start_at })
    }

    fn example() -> Value {
        json!({ "bib": "1207", "wave": "B" })
    }
}

impl Input for BibRange {
    const NAME: &'static str = "BibRange";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let from = fields.required("from", "The first bib: letters, if any, and digits.", text(1, 100));
        let to = fields.required("to", "The last bib.", text(1, 100));
        let wave = fields.optional("wave", "The start block.", text(0, MAX_LABEL));
        let team = fields.optional("team", "The team or relay.", text(0, MAX_LABEL));
        match BibRange::new(&from?, &to?) {
            Ok(range) => Some(range.with_labels(wave, team)),
            Err(message) => {
                fields.check_together(|report| {
                    let to = PathSegment::Field("to");
                    report.within(to, |report| report.add(code::INVALID_VALUE, message));
                });
                None
            }
        }
    }

    fn example() -> Value {
        json!({ "from": "2000", "to": "2999" })
    }
}

/// A row that was not taken.
#[derive(Serialize, ToSchema)]
pub(crate) struct RefusedRow {
    /// Line of the CSV file, or number of the entry, from 1.
    #[schema(value_type = f64, minimum = 0)]
    line: usize,
    /// `not_a_bib`, `not_a_time`, `duplicate` or `too_long`; may grow.
    #[schema(example = "not_a_bib")]
    code: &'static str,
    /// For people.
    message: String,
}

/// Photos that are judged again.
#[derive(Serialize, ToSchema)]
pub(crate) struct JudgingPhotos {
    #[schema(value_type = f64, minimum = 0)]
    photos: u64,
}

/// What is odd about a list that is imported all the same.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct ListWarning {
    /// `pattern_matches_no_entry`; may grow.
    #[schema(example = "pattern_matches_no_entry")]
    code: &'static str,
    /// For people.
    message: String,
}

impl ListWarning {
    /// The warnings of a list, by the pattern of bibs of its album: the list wins over the pattern.
    pub(crate) fn find(bibs: &mut dyn Iterator<Item = &str>, pattern: &str) -> Vec<Self> {
        let Ok(regex) = Regex::new(&format!("^(?:{pattern})$")) else { return Vec::new() };
        let mut bibs = bibs.peekable();
        if bibs.peek().is_none() || bibs.any(|bib| regex.is_match(bib)) {
            return Vec::new();
        }
        let message =
            format!("no bib of the list matches the album's bibPattern {pattern}; the list is used");
        vec![Self { code: "pattern_matches_no_entry", message }]
    }
}

/// What an import did.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImportedList {
    /// Rises with every change of the bibs of the list, of the numbers it excludes, and of how it is used.
    #[schema(value_type = f64, minimum = 0)]
    version: i64,
    /// Bibs on the list.
    #[schema(value_type = f64, minimum = 0)]
    entries: u64,
    /// Bibs that were not on it before.
    #[schema(value_type = f64, minimum = 0)]
    added: u64,
    /// Bibs that are no longer on it.
    #[schema(value_type = f64, minimum = 0)]
    removed: u64,
    /// The first 100 rows that were not taken.
    refused: Vec<RefusedRow>,
    /// Rows that were not taken.
    #[schema(value_type = f64, minimum = 0)]
    refused_count: usize,
    /// What follows from it: photos are not read again. None where it has the bibs and excluded numbers of before.
    judging: JudgingPhotos,
    /// What is odd about the list.
    warnings: Vec<ListWarning>,
}

impl ImportedList {
    pub(crate) fn new(
        imported: ImportedStartList,
        refused: Vec<RefusedEntry>,
        warnings: Vec<ListWarning>,
    ) -> Self {
        let refused_count = refused.len();
        let to_row = |RefusedEntry { line, code, message }| RefusedRow { line, code, message };
        Self {
            version: imported.version,
            entries: imported.entries,
            added: imported.added,
            removed: imported.removed,
            refused: refused.into_iter().take(MAX_REFUSED).map(to_row).collect(),
            refused_count,
            judging: JudgingPhotos { photos: imported.photos },
            warnings,
        }
    }
}

impl Output for ImportedList {
    fn example() -> Self {
        let imported =
            ImportedStartList { version: 3, entries: 9812, added: 9812, removed: 0, photos: 41_200 };
        let message = "'DNS' is no bib".to_owned();
        Self::new(imported, vec![RefusedEntry { line: 17, code: "not_a_bib", message }], Vec::new())
    }
}

/// What an import would change.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckedList {
    /// Photos by which this was found out: 5,000 at most.
    #[schema(value_type = f64, minimum = 0)]
    photos: u64,
    /// Texts in them that exact searches find now.
    #[schema(value_type = f64, minimum = 0)]
    indexed_now: u64,
    /// Texts that exact searches would find.
    #[schema(value_type = f64, minimum = 0)]
    indexed_then: u64,
    /// Texts that would be another bib, or be found by other searches.
    #[schema(value_type = f64, minimum = 0)]
    changed: u64,
    /// Some of them.
    examples: Vec<ChangedText>,
    /// Rows that would not be taken.
    #[schema(value_type = f64, minimum = 0)]
    refused_count: usize,
    /// What is odd about the list.
    warnings: Vec<ListWarning>,
}

/// A text that an import would change.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangedText {
    photo_id: String,
    /// The text now.
    before: String,
    /// The bib that exact searches would find; null for none.
    #[schema(required)]
    after: Option<String>,
    /// How sure that is.
    #[schema(minimum = 0, maximum = 100)]
    confidence: f64,
}

impl CheckedList {
    pub(crate) fn new(checked: CheckedStartList, refused_count: usize, warnings: Vec<ListWarning>) -> Self {
        let to_text = |text: stored::JudgedText| ChangedText {
            photo_id: text.photo.to_string(),
            before: text.before,
            after: text.after,
            confidence: round_percent(100.0 * text.confidence),
        };
        Self {
            photos: checked.photos,
            indexed_now: checked.indexed_now,
            indexed_then: checked.indexed_then,
            changed: checked.changed,
            examples: checked.examples.into_iter().map(to_text).collect(),
            refused_count,
            warnings,
        }
    }
}

impl Output for CheckedList {
    fn example() -> Self {
        let (before, after) = ("7207".to_owned(), Some("1207".to_owned()));
        let example = stored::JudgedText { photo: sample::PHOTO, before, after, confidence: 0.971 };
        let checked = CheckedStartList {
            photos: 1477,
            indexed_now: 2113,
            indexed_then: 2190,
            changed: 161,
            examples: vec![example],
        };
        Self::new(checked, 0, Vec::new())
    }
}
