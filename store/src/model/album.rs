//! Albums, their configuration and their owners. Not the wire types, which the API defines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use crate::model::bib_format::BibFormatConfig;
use crate::model::ids::{AlbumId, KeyId, OrganizationId};
use crate::model::key::KeyMode;

/// The scope of a call: the albums of one organization that were created with keys of one mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant {
    /// The organization.
    pub organization: OrganizationId,
    /// Albums created with a test key are visible to test keys only.
    pub mode: KeyMode,
}

/// An album: the photos of one event.
#[derive(Clone, Debug, PartialEq)]
pub struct Album {
    /// Its id.
    pub id: AlbumId,
    /// Its owner.
    pub tenant: Tenant,
    /// The key that created it.
    pub created_by: KeyId,
    /// At least one character.
    pub title: String,
    /// URL of a cover picture.
    pub cover_url: Option<String>,
    /// Free-form labels.
    pub tags: Vec<String>,
    /// How its photos are processed and searched.
    pub config: AlbumConfig,
    /// The version of its watermark; 0 without one.
    pub watermark_version: i64,
    /// Microsecond precision.
    pub created_at: OffsetDateTime,
    /// Microsecond precision.
    pub updated_at: OffsetDateTime,
}

/// How the photos of an album are processed and searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlbumConfig {
    /// Face recognition.
    pub face: Recognition,
    /// Bib recognition.
    pub text: Recognition,
    /// Longest side of the preview, pixels, 64 to 8192.
    pub preview_max_dimension: u32,
    /// Whether its owner gets previews with its watermark, if it has one.
    #[serde(default)]
    pub preview_watermarked: bool,
    /// Longest side of the thumbnail, pixels, 64 to 8192.
    pub thumbnail_max_dimension: u32,
    /// The regular expression that a whole bib of this event matches, in upper-case letters and digits.
    pub bib_pattern: String,
    /// How the start list is used, once there is one.
    #[serde(default)]
    pub start_list: StartListConfig,
    /// The format by which bibs are judged where no start list does.
    #[serde(default)]
    pub bib_format: BibFormatConfig,
    /// For how long its faces and photos are kept.
    #[serde(default)]
    pub retention: RetentionConfig,
    /// Members that this version does not know: a newer one wrote them, and may run beside this one.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// For how many days something of an album is kept after its last photo was confirmed; `None` for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetentionConfig {
    /// Its photos, and the album with them.
    pub photos_days: Option<u32>,
    /// The vectors of its faces. Bibs stay.
    pub faces_days: Option<u32>,
}

impl RetentionConfig {
    /// The shorter of both, for each.
    pub fn at_most(self, limit: Self) -> Self {
        let shorter = |days: Option<u32>, limit: Option<u32>| match (days, limit) {
            (Some(days), Some(limit)) => Some(days.min(limit)),
            (days, limit) => days.or(limit),
        };
        Self {
            photos_days: shorter(self.photos_days, limit.photos_days),
            faces_days: shorter(self.faces_days, limit.faces_days),
        }
    }
}

/// How the start list of an album is used. Without a list it means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartListConfig {
    /// Whether bibs are judged by it.
    pub enabled: bool,
    /// The part of the runners who are not on it, 0 to 1.
    pub off_list_share: f64,
}

impl Default for StartListConfig {
    /// A twentieth off the list: more than there are, it costs no reading, and less invents bibs (`docs/READING.md`).
    fn default() -> Self {
        Self { enabled: true, off_list_share: 0.05 }
    }
}

/// The bib pattern of an album that is created without one.
pub const DEFAULT_BIB_PATTERN: &str = "^[A-Z]{0,2}[0-9]{2,5}[A-Z]?$";

/// Settings of one kind of recognition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recognition {
    /// Whether it runs, and whether it can be searched.
    pub enabled: bool,
    /// Hits below this confidence (0 to 100) are not returned.
    pub confidence_threshold: f64,
    /// The whole photo, or cells of it.
    pub mode: RecognitionMode,
    /// The cells of `RecognitionMode::Grid`.
    pub grid: Option<Grid>,
}

/// What a neural network processes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecognitionMode {
    /// The whole photo.
    Photo,
    /// Overlapping cells of the photo, each scaled to at most the cell's size; the results are merged.
    Grid,
}

/// How to divide a photo into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// 1 to 16.
    pub rows: u32,
    /// 1 to 16.
    pub columns: u32,
    /// Maximum width of a cell as the network processes it, pixels, 64 or more.
    pub cell_width: u32,
    /// Maximum height of a cell as the network processes it, pixels, 64 or more.
    pub cell_height: u32,
}

/// An album to create.
#[derive(Clone, Debug)]
pub struct NewAlbum {
    /// Its owner.
    pub tenant: Tenant,
    /// The key that creates it.
    pub created_by: KeyId,
    /// At least one character.
    pub title: String,
    /// URL of a cover picture.
    pub cover_url: Option<String>,
    /// Free-form labels.
    pub tags: Vec<String>,
    /// How its photos are processed and searched.
    pub config: AlbumConfig,
}

/// Fields to change; `None` leaves a field as it is.
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
    /// Whether the configuration changes how texts are judged by the start list or the format.
    pub judge_again: bool,
    /// Changes the album only if this is still its `updated_at`; otherwise the update is a `Conflict`. For changes that
    /// were derived from the album as it was then.
    pub unchanged_since: Option<OffsetDateTime>,
}

/// Which albums to list.
#[derive(Clone, Debug)]
pub struct AlbumQuery {
    /// Only albums after (older than) this one.
    pub after: Option<AlbumId>,
    /// At most this many.
    pub limit: u32,
    /// Only albums whose title contains this text, ignoring case.
    pub title: Option<String>,
}

/// One page, newest first.
#[derive(Clone, Debug)]
pub struct AlbumPage {
    /// The albums.
    pub albums: Vec<Album>,
    /// Where the next page begins, when there is one.
    pub next: Option<AlbumId>,
    /// How many match in all; `None` on later pages, for which nobody counts.
    pub total: Option<u64>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_keeps_what_this_version_does_not_know() {
        let recognition =
            json!({ "enabled": true, "confidence_threshold": 50.0, "mode": "photo", "grid": null });
        let mut stored = json!({
            "face": recognition,
            "text": recognition,
            "preview_max_dimension": 2048,
            "thumbnail_max_dimension": 512,
            "bib_pattern": DEFAULT_BIB_PATTERN,
            "of_tomorrow": { "faces": 30 },
        });
        let config: AlbumConfig = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(config.start_list, StartListConfig::default(), "an older version wrote none");
        assert_eq!(config.bib_format, BibFormatConfig::Auto, "an older version wrote none");
        stored["preview_watermarked"] = json!(false);
        stored["start_list"] = json!({ "enabled": true, "off_list_share": 0.05 });
        stored["bib_format"] = json!("auto");
        stored["retention"] = json!({ "photos_days": null, "faces_days": null });
        assert_eq!(serde_json::to_value(&config).unwrap(), stored);
    }
}
