//! Start lists: the bibs of an event.

use time::OffsetDateTime;

use crate::model::ids::{KeyId, PhotoId};
use crate::model::photo::DetectedText;

/// A bib of an event. There is no field for a name: lists of names are personal data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartListEntry {
    /// 1 to 12 upper-case letters and digits, as printed.
    pub bib: String,
    /// The start block.
    pub wave: Option<String>,
    /// The team or relay.
    pub team: Option<String>,
    /// When the runner starts.
    pub start_at: Option<OffsetDateTime>,
    /// A number that nobody wears.
    pub excluded: bool,
}

impl StartListEntry {
    /// An entry of which only the bib is known.
    pub fn of(bib: String) -> Self {
        Self { bib, wave: None, team: None, start_at: None, excluded: false }
    }
}

/// What an import does with the entries that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportMode {
    /// Removes those that are not imported.
    Replace,
    /// Keeps them.
    Merge,
}

/// A list to import.
#[derive(Clone, Debug)]
pub struct StartListImport {
    /// What becomes of the entries that are there.
    pub mode: ImportMode,
    /// Each bib once.
    pub entries: Vec<StartListEntry>,
    /// The key that imports it.
    pub imported_by: KeyId,
    /// Most bibs that the album may have then, and most excluded numbers.
    pub max_entries: u64,
}

/// What an import did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportedStartList {
    /// The version of the album's rules from now on.
    pub version: i64,
    /// Bibs on the list.
    pub entries: u64,
    /// Bibs that were not on it before.
    pub added: u64,
    /// Bibs that are no longer on it.
    pub removed: u64,
    /// Ready photos, which are judged again; 0 where the import changed nothing by which they are judged.
    pub photos: u64,
}

/// What an import would do, by a part of the photos.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckedStartList {
    /// Photos that were judged.
    pub photos: u64,
    /// Their texts that exact searches find now.
    pub indexed_now: u64,
    /// Those that exact searches would find.
    pub indexed_then: u64,
    /// Texts that would be another bib, or be found by other searches.
    pub changed: u64,
    /// Some of those.
    pub examples: Vec<JudgedText>,
}

/// A text that a list would change.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedText {
    /// Its photo.
    pub photo: PhotoId,
    /// The bib that it is now.
    pub before: String,
    /// The bib that exact searches would find; `None` for none.
    pub after: Option<String>,
    /// How sure that is, 0 to 1.
    pub confidence: f64,
}

/// What a text of a photo may be by a start list.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// A bib of the list, or another text of capital letters and digits.
    pub text: String,
    /// Its probability by the list, 0 to 1. The confidence of the text itself may be another one: a list never lowers that
    /// of a bib which the reader was sure of, and never raises that of characters which are too small.
    pub confidence: f64,
}

/// A text with what else it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedText {
    /// The text, with its lattice.
    pub text: DetectedText,
    /// The most probable first, the text itself among them; empty where the list does not judge by a lattice.
    pub alternatives: Vec<Alternative>,
}

/// A start list, without its entries.
#[derive(Clone, Debug, PartialEq)]
pub struct StartListSummary {
    /// The version of the album's rules with which it was imported.
    pub version: i64,
    /// Bibs on the list.
    pub entries: u64,
    /// How many there are of each wave, by name; those without one first.
    pub waves: Vec<WaveSize>,
    /// When it was last imported.
    pub imported_at: OffsetDateTime,
    /// Ready photos that are judged by it.
    pub judged: u64,
    /// Ready photos that are still to be judged.
    pub left: u64,
    /// Photos that were read before lattices were stored, or that have a text from then: that text is judged by its best
    /// reading alone.
    pub without_lattice: u64,
}

/// A wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveSize {
    /// Its name.
    pub wave: Option<String>,
    /// Bibs.
    pub entries: u64,
}

/// Which entries to list.
#[derive(Clone, Debug, Default)]
pub struct EntryQuery {
    /// Only those whose bib begins so.
    pub prefix: String,
    /// Only those after this bib.
    pub after: Option<String>,
    /// At most this many.
    pub limit: u32,
}

/// A page of entries, by bib.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryPage {
    /// The entries.
    pub entries: Vec<StartListEntry>,
    /// Whether there are more.
    pub has_more: bool,
    /// How many match in all.
    pub total: u64,
}

/// What one step of judging did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JudgedPhotos {
    /// Photos that were judged.
    pub photos: u64,
    /// Those of which a text is something else now.
    pub changed: u64,
    /// Whether there may be more to do.
    pub has_more: bool,
}
