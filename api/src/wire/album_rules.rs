//! Parts of the configuration of an album: how its start list is used, and for how long faces and photos are kept.

use photofinish_store::model::album::{RetentionConfig, StartListConfig};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::validate::input::{Fields, Input};
use crate::validate::validators::{Boolean, Integer, Nullable, Number};

/// For how long faces and photos of an album are kept. Days are counted from when its last photo was confirmed. A week before
/// the end the event `album.expiring` tells.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetentionSettings {
    /// Then the album is deleted with its photos; null for never.
    #[schema(required, value_type = Option<f64>, minimum = 1, maximum = 3650, multiple_of = 1)]
    photos_days: Option<u32>,
    /// Then the vectors of its faces are erased and its face recognition is switched off; bibs stay. Null for never.
    #[schema(required, value_type = Option<f64>, minimum = 1, maximum = 3650, multiple_of = 1)]
    faces_days: Option<u32>,
}

impl From<RetentionConfig> for RetentionSettings {
    fn from(config: RetentionConfig) -> Self {
        Self { photos_days: config.photos_days, faces_days: config.faces_days }
    }
}

/// How the start list of an album is used. Without one it means nothing.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartListSettings {
    /// Whether bibs are judged by it.
    enabled: bool,
    /// The part of the runners who are not on it, 0 to 1. The smaller it is, the more texts become a bib of the list.
    #[schema(minimum = 0, maximum = 1)]
    off_list_share: f64,
}

impl From<StartListConfig> for StartListSettings {
    fn from(config: StartListConfig) -> Self {
        Self { enabled: config.enabled, off_list_share: config.off_list_share }
    }
}

#[derive(Default)]
pub(crate) struct RetentionChange {
    photos_days: Option<Option<u32>>,
    faces_days: Option<Option<u32>>,
}

impl Input for RetentionChange {
    const NAME: &'static str = "RetentionChange";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let days = || Nullable(Integer { min: 1, max: 3650 });
        let photos_days = fields.optional("photosDays", "Photos, and the album with them.", days());
        let faces_days = fields.optional("facesDays", "Vectors of faces.", days());
        Some(Self { photos_days, faces_days })
    }

    fn example() -> Value {
        json!({ "facesDays": 90 })
    }
}

#[derive(Default)]
pub(crate) struct StartListChange {
    enabled: Option<bool>,
    off_list_share: Option<f64>,
}

impl Input for StartListChange {
    const NAME: &'static str = "StartListChange";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let enabled = fields.optional("enabled", "Whether bibs are judged by it.", Boolean);
        let description = "The part of the runners who are not on it.";
        let share = Number { min: 0.0, max: 1.0 };
        let off_list_share = fields.optional("offListShare", description, share);
        Some(Self { enabled, off_list_share })
    }

    fn example() -> Value {
        json!({ "offListShare": 0.05 })
    }
}

impl StartListChange {
    /// Returns `base` with the changes applied.
    pub(crate) fn apply_to(&self, base: StartListConfig) -> StartListConfig {
        StartListConfig {
            enabled: self.enabled.unwrap_or(base.enabled),
            off_list_share: self.off_list_share.unwrap_or(base.off_list_share),
        }
    }
}

impl RetentionChange {
    /// Returns `base` with the changes applied.
    pub(crate) fn apply_to(&self, base: RetentionConfig) -> RetentionConfig {
        RetentionConfig {
            photos_days: self.photos_days.unwrap_or(base.photos_days),
            faces_days: self.faces_days.unwrap_or(base.faces_days),
        }
    }
}
