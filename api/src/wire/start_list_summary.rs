//! Response of `albums/startlist/get`.

use photofinish_store::model::start_list::{StartListSummary, WaveSize};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{Output, sample};

/// The start list of an album.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartList {
    /// Rises with every import of other bibs or excluded numbers, by more than one where the judging of bibs was changed in
    /// between; 0 without a list.
    #[schema(value_type = f64, minimum = 0)]
    version: i64,
    /// Bibs on the list.
    #[schema(value_type = f64, minimum = 0)]
    entries: u64,
    /// Bibs by wave.
    waves: Vec<Wave>,
    /// When it was last imported; null without a list.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    imported_at: Option<OffsetDateTime>,
    /// Ready photos whose texts are judged by it.
    #[schema(value_type = f64, minimum = 0)]
    judged: u64,
    /// Ready photos that are still to be judged.
    #[schema(value_type = f64, minimum = 0)]
    left: u64,
    /// Photos with a text of which the service did not keep what else it may say, because they were read before it did: by a
    /// list such a text is its best reading or what looks like it. `albums/reprocess` reads them again.
    #[schema(value_type = f64, minimum = 0)]
    without_lattice: u64,
}

/// The bibs of a wave.
#[derive(Serialize, ToSchema)]
pub(crate) struct Wave {
    /// Null for bibs without one.
    #[schema(required)]
    wave: Option<String>,
    #[schema(value_type = f64, minimum = 0)]
    entries: u64,
}

impl From<Option<StartListSummary>> for StartList {
    fn from(list: Option<StartListSummary>) -> Self {
        let Some(list) = list else {
            return Self {
                version: 0,
                entries: 0,
                waves: Vec::new(),
                imported_at: None,
                judged: 0,
                left: 0,
                without_lattice: 0,
            };
        };
        let waves = list.waves.into_iter().map(|wave| Wave { wave: wave.wave, entries: wave.entries });
        Self {
            version: list.version,
            entries: list.entries,
            waves: waves.collect(),
            imported_at: Some(list.imported_at),
            judged: list.judged,
            left: list.left,
            without_lattice: list.without_lattice,
        }
    }
}

impl Output for StartList {
    fn example() -> Self {
        Some(StartListSummary {
            version: 3,
            entries: 9812,
            waves: vec![WaveSize { wave: Some("B".to_owned()), entries: 9812 }],
            imported_at: sample::TIME,
            judged: 41_200,
            left: 0,
            without_lattice: 0,
        })
        .into()
    }
}
