//! Albums, their configuration and their owners. Not the wire types, which the API defines.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::{Map, Value};
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
#[derive(Clone, Debug, PartialEq)]
pub struct AlbumConfig {
    /// Face recognition.
    pub face: Recognition,
    /// Bib recognition.
    pub text: Recognition,
    /// Longest side of the preview, pixels, 64 to 8192.
    pub preview_max_dimension: u32,
    /// Whether its owner gets previews with its watermark, if it has one.
    pub preview_watermarked: bool,
    /// Longest side of the thumbnail, pixels, 64 to 8192.
    pub thumbnail_max_dimension: u32,
    /// The largest that it was before it was lowered, pixels; `None` if it never was. Photos have the thumbnails that they were
    /// given until they are read again, which no row says of each: so this stays for as long as the album does.
    pub former_thumbnail_max_dimension: Option<u32>,
    /// The regular expression that a whole bib of this event matches, in upper-case letters and digits.
    pub bib_pattern: String,
    /// How the start list is used, once there is one.
    pub start_list: StartListConfig,
    /// The format by which bibs are judged where no start list does.
    pub bib_format: BibFormatConfig,
    /// For how long its faces and photos are kept.
    pub retention: RetentionConfig,
    /// Members that this version does not know: a newer one wrote them, and may run beside this one. Those of a part, such as
    /// `face`, are in an object of its name.
    pub rest: Map<String, Value>,
}

impl AlbumConfig {
    /// Whether texts are judged the same by both. A start list judges by the pattern too: what matches it and was read as no
    /// bib is none for another reason, which the list does not know.
    pub fn judges_as(&self, other: &Self) -> bool {
        self.start_list == other.start_list
            && self.bib_format == other.bib_format
            && self.bib_pattern == other.bib_pattern
    }

    /// The longest side that any thumbnail of the album may have, pixels.
    pub fn largest_thumbnail(&self) -> u32 {
        self.thumbnail_max_dimension.max(self.former_thumbnail_max_dimension.unwrap_or(0))
    }

    /// Remembers the size of the thumbnails that photos were given under the configuration before, if it is larger.
    pub fn remember_thumbnails(&mut self, before: &Self) {
        let largest = before.largest_thumbnail();
        if largest > self.thumbnail_max_dimension {
            self.former_thumbnail_max_dimension = Some(largest);
        }
    }
}

/// The members of a configuration that this version knows, as they are stored.
#[derive(Serialize, Deserialize)]
#[serde(remote = "AlbumConfig")]
struct KnownMembers {
    face: Recognition,
    text: Recognition,
    preview_max_dimension: u32,
    #[serde(default)]
    preview_watermarked: bool,
    thumbnail_max_dimension: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former_thumbnail_max_dimension: Option<u32>,
    bib_pattern: String,
    #[serde(default)]
    start_list: StartListConfig,
    #[serde(default)]
    bib_format: BibFormatConfig,
    #[serde(default)]
    retention: RetentionConfig,
    #[serde(skip)]
    rest: Map<String, Value>,
}

impl Serialize for AlbumConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let known = KnownMembers::serialize(self, serde_json::value::Serializer);
        let mut whole = known.map_err(<S::Error as ser::Error>::custom)?;
        if let Value::Object(whole) = &mut whole {
            add_unknown(whole, &self.rest);
        }
        whole.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for AlbumConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut stored = Value::deserialize(deserializer)?;
        let config = KnownMembers::deserialize(&stored);
        let mut config = config.map_err(<D::Error as de::Error>::custom)?;
        let known = KnownMembers::serialize(&config, serde_json::value::Serializer);
        let known = known.map_err(<D::Error as de::Error>::custom)?;
        if let (Value::Object(stored), Value::Object(known)) = (&mut stored, &known) {
            remove_known(stored, known);
            config.rest = std::mem::take(stored);
        }
        Ok(config)
    }
}

/// Adds the members that this version does not know. A part that is gone, as a grid may be, gets none.
fn add_unknown(whole: &mut Map<String, Value>, unknown: &Map<String, Value>) {
    for (name, unknown) in unknown {
        let member = whole.entry(name.as_str()).or_insert_with(|| unknown.clone());
        if let (Value::Object(member), Value::Object(unknown)) = (member, unknown) {
            add_unknown(member, unknown);
        }
    }
}

/// Leaves of what is stored the members that this version does not know.
fn remove_known(stored: &mut Map<String, Value>, known: &Map<String, Value>) {
    stored.retain(|name, member| match (known.get(name), member) {
        (None, _) => true,
        (Some(Value::Object(known)), Value::Object(member)) => {
            remove_known(member, known);
            !member.is_empty()
        }
        (Some(_), _) => false,
    });
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
    /// Whether a caller chose the threshold: one that nobody chose follows the default. `None` is what a version wrote that
    /// did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_chosen: Option<bool>,
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

    #[test]
    fn the_largest_thumbnails_are_remembered_when_smaller_ones_are_asked_for() {
        let resize = |before: &AlbumConfig, pixels| {
            let mut after = AlbumConfig { thumbnail_max_dimension: pixels, ..before.clone() };
            after.remember_thumbnails(before);
            let stored = serde_json::to_value(&after).unwrap();
            assert_eq!(serde_json::from_value::<AlbumConfig>(stored).unwrap(), after);
            after
        };
        let small = crate::conformance::album_config();
        assert_eq!((small.largest_thumbnail(), resize(&small, 512)), (512, small.clone()));
        let large = resize(&small, 2048);
        assert_eq!(large.largest_thumbnail(), 2048);
        let again = resize(&resize(&large, 256), 1024);
        assert_eq!((again.thumbnail_max_dimension, again.largest_thumbnail()), (1024, 2048));
        assert_eq!(resize(&again, 4096).largest_thumbnail(), 4096);
    }

    #[test]
    fn whether_a_threshold_was_chosen_is_stored_once_it_is_known() {
        let unknown = json!({ "enabled": true, "confidence_threshold": 50.0, "mode": "photo", "grid": null });
        let mut recognition: Recognition = serde_json::from_value(unknown.clone()).unwrap();
        assert_eq!(recognition.threshold_chosen, None);
        assert_eq!(serde_json::to_value(&recognition).unwrap(), unknown);
        recognition.threshold_chosen = Some(false);
        let stored = serde_json::to_value(&recognition).unwrap();
        assert_eq!(serde_json::from_value::<Recognition>(stored).unwrap(), recognition);
    }

    #[test]
    fn parts_of_a_configuration_keep_what_this_version_does_not_know() {
        let grid =
            json!({ "rows": 2, "columns": 3, "cell_width": 640, "cell_height": 640, "of_tomorrow": 1 });
        let recognition = json!({
            "enabled": true, "confidence_threshold": 50.0, "mode": "photo", "grid": grid, "of_tomorrow": "a model",
        });
        let mut stored = json!({
            "face": recognition,
            "text": recognition,
            "preview_max_dimension": 2048,
            "preview_watermarked": false,
            "thumbnail_max_dimension": 512,
            "bib_pattern": DEFAULT_BIB_PATTERN,
            "start_list": { "enabled": true, "off_list_share": 0.05, "of_tomorrow": { "waves": [1, 2] } },
            "bib_format": "auto",
            "retention": { "photos_days": null, "faces_days": 30, "of_tomorrow": null },
        });
        let text = serde_json::to_string(&stored).unwrap();
        let mut config: AlbumConfig = serde_json::from_str(&text).unwrap();
        assert_eq!(config.rest["start_list"], json!({ "of_tomorrow": { "waves": [1, 2] } }));
        assert_eq!(serde_json::to_value(&config).unwrap(), stored);
        (config.face.enabled, config.text.grid) = (false, None);
        (stored["face"]["enabled"], stored["text"]["grid"]) = (json!(false), Value::Null);
        assert_eq!(serde_json::to_value(&config).unwrap(), stored, "a part that is gone keeps nothing");
    }
}
