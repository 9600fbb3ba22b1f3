//! Albums, their configuration and their owners. No wire types: the API has its own.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::model::ids::{AlbumId, KeyId, OrganizationId};
use crate::model::key::KeyMode;

/// Whose objects a call sees: those of one organization made with keys of one mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tenant {
    /// The organization.
    pub organization: OrganizationId,
    /// Objects made with a test key are seen by test keys alone.
    pub mode: KeyMode,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Album {
    /// Its id.
    pub id: AlbumId,
    /// Its owner.
    pub tenant: Tenant,
    /// The key that made it.
    pub created_by: KeyId,
    /// At least one character.
    pub title: String,
    /// A picture for the event.
    pub cover_url: Option<String>,
    /// Free labels.
    pub tags: Vec<String>,
    /// How its photos are read and searched.
    pub config: AlbumConfig,
    /// Microsecond precision.
    pub created_at: OffsetDateTime,
    /// Microsecond precision.
    pub updated_at: OffsetDateTime,
}

/// How an album's photos are read and searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlbumConfig {
    /// Faces.
    pub face: Recognition,
    /// Bibs.
    pub text: Recognition,
    /// Longest side of the preview, pixels, 64 to 8192.
    pub preview_max_dimension: u32,
    /// Longest side of the thumbnail, pixels, 64 to 8192.
    pub thumbnail_max_dimension: u32,
    /// The regular expression that a bib of this event matches as a whole, on upper-case letters and digits.
    pub bib_pattern: String,
}

/// The bib pattern of an album that names none.
pub const DEFAULT_BIB_PATTERN: &str = "^[A-Z]{0,2}[0-9]{2,5}[A-Z]?$";

/// Settings of one kind of recognition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recognition {
    /// Whether it runs, and whether it can be searched.
    pub enabled: bool,
    /// Hits below this confidence (0 to 100) are not answered.
    pub confidence_threshold: f64,
    /// The whole photo, or cells of it.
    pub mode: RecognitionMode,
    /// The cells of `RecognitionMode::Grid`.
    pub grid: Option<Grid>,
}

/// What the network sees at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecognitionMode {
    /// The whole photo.
    Photo,
    /// Overlapping cells of it, each at up to the cell's size, merged after.
    Grid,
}

/// Cells of a photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// 1 to 16.
    pub rows: u32,
    /// 1 to 16.
    pub columns: u32,
    /// Pixels the network sees of a cell at most, 64 or more.
    pub cell_width: u32,
    /// Pixels the network sees of a cell at most, 64 or more.
    pub cell_height: u32,
}

/// What a new album starts with.
#[derive(Clone, Debug)]
pub struct NewAlbum {
    /// Its owner.
    pub tenant: Tenant,
    /// The key that makes it.
    pub created_by: KeyId,
    /// At least one character.
    pub title: String,
    /// A picture for the event.
    pub cover_url: Option<String>,
    /// Free labels.
    pub tags: Vec<String>,
    /// How its photos are read and searched.
    pub config: AlbumConfig,
}

/// Fields to change; `None` leaves one as it is, but for the last.
#[derive(Clone, Debug, Default)]
pub struct AlbumChange {
    /// The new title.
    pub title: Option<String>,
    /// The new cover, or its removal.
    pub cover_url: Option<Option<String>>,
    /// The new labels.
    pub tags: Option<Vec<String>>,
    /// The new configuration, whole.
    pub config: Option<AlbumConfig>,
    /// Changes nothing, with a `Conflict`, unless this is the album's `updated_at`: for what was made out of the album as
    /// it was then.
    pub unchanged_since: Option<OffsetDateTime>,
}

/// Which albums to list.
#[derive(Clone, Debug)]
pub struct AlbumQuery {
    /// Only those after (older than) this one.
    pub after: Option<AlbumId>,
    /// At most this many.
    pub limit: u32,
    /// Only those whose title contains this, whatever its case.
    pub title: Option<String>,
}

/// One page, newest first.
#[derive(Clone, Debug)]
pub struct AlbumPage {
    /// The albums.
    pub albums: Vec<Album>,
    /// Where the next page begins, when there is one.
    pub next: Option<AlbumId>,
    /// How many match in all.
    pub total: u64,
}
