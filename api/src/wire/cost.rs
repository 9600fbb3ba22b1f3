//! Requests and responses of `usage/costs`.

use photofinish_store::model::cost::{
    self as stored, CostQuery, CostWeights, PhotoCost, Spent, StoredObjects,
};
use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::key::KeyMode;
use photofinish_store::model::photo::Photo;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Output, sample};
use crate::context::CostPrices;
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{ListOf, OneOf, uuid};
use crate::wire::credit::read_open_days;

/// What rows of costs are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CostKey {
    Stage,
    Day,
    Album,
}

impl CostKey {
    const ALL: [Self; 3] = [Self::Stage, Self::Day, Self::Album];

    fn as_str(self) -> &'static str {
        match self {
            Self::Stage => "stage",
            Self::Day => "day",
            Self::Album => "album",
        }
    }
}

/// Body of `usage/costs`.
pub(crate) struct GetCosts {
    /// Without its limit.
    pub(crate) query: CostQuery,
}

impl Input for GetCosts {
    const NAME: &'static str = "GetCosts";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let days = read_open_days(fields);
        let album = fields.optional("albumId", "Only this album; also one that was deleted.", uuid());
        let key = OneOf { choices: &CostKey::ALL, to_name: CostKey::as_str };
        let list = ListOf { item: key, min: 1, max: CostKey::ALL.len() };
        let by = fields.optional("by", "What each row is of; `stage` if missing.", list);
        let by = by.unwrap_or_else(|| vec![CostKey::Stage]);
        let (from, to) = days?;
        let query = CostQuery {
            from,
            to,
            album: album.map(AlbumId),
            by_day: by.contains(&CostKey::Day),
            by_album: by.contains(&CostKey::Album),
            by_stage: by.contains(&CostKey::Stage),
            photos_only: false,
            limit: 0,
        };
        Some(Self { query })
    }

    fn example() -> Value {
        json!({ "from": "2026-10-01", "to": "2026-10-31", "albumId": sample::ALBUM, "by": ["stage"] })
    }
}

/// What was spent.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Costs {
    /// CPU time.
    #[schema(minimum = 0)]
    cpu_seconds: f64,
    /// Time of calls of a device that stages waited for; 0 where the CPU does everything.
    #[schema(minimum = 0)]
    gpu_seconds: f64,
    #[schema(minimum = 0)]
    bytes_read: f64,
    #[schema(minimum = 0)]
    bytes_written: f64,
    /// By the prices of the operator; null if there are none.
    #[schema(required)]
    money: Option<f64>,
}

impl Costs {
    fn new(spent: &Spent, photos: f64, prices: Option<CostPrices>) -> Self {
        let per = |value: f64| value / photos;
        let micros = |value: f64| (value * 1e6).round() / 1e6;
        Self {
            cpu_seconds: micros(per(spent.cpu.as_secs_f64())),
            gpu_seconds: micros(per(spent.device.as_secs_f64())),
            bytes_read: per(spent.bytes_read as f64).round(),
            bytes_written: per(spent.bytes_written as f64).round(),
            money: prices.map(|prices| per(prices.of_time(spent.cpu, spent.device))),
        }
    }
}

/// What something cost.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CostRow {
    /// With `by` `day`.
    #[schema(nullable = false, value_type = String, format = "date")]
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    /// With `by` `album`; also albums that were deleted.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    album_id: Option<Uuid>,
    /// With `by` `stage`: `fetch`, `decode`, `resize`, `detect`, `embed`, `read`, `index` of photos, `overhead` for what
    /// these stages' threads do between photos, `mark` of watermarks drawn later, `probe` of selfies and `face_search` of
    /// searches with them; may grow.
    #[schema(nullable = false, example = "read")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<String>,
    /// With `by` `stage` those that the stage worked on (of `probe` selfies, of `face_search` searches), else those that
    /// became ready or failed; again whenever they are processed again.
    #[schema(value_type = f64, minimum = 0)]
    photos: u64,
    #[serde(flatten)]
    costs: Costs,
}

/// What is stored now, whatever days are asked for.
#[derive(Serialize, ToSchema)]
pub(crate) struct StorageReport {
    /// Confirmed originals, and the previews, thumbnails and previews with a watermark that were made of them. Without
    /// selfies, which are deleted soon, and without pictures made by versions before this was counted.
    #[schema(value_type = f64, minimum = 0)]
    objects: u64,
    #[schema(value_type = f64, minimum = 0)]
    bytes: u64,
    /// For a month, by the prices of the operator; null if there are none.
    #[schema(required)]
    money: Option<f64>,
}

impl StorageReport {
    pub(crate) fn new(stored: StoredObjects, prices: Option<CostPrices>) -> Self {
        let StoredObjects { objects, bytes } = stored;
        Self { objects, bytes, money: prices.map(|prices| prices.of_month(bytes)) }
    }
}

/// What processing photos has cost.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CostReport {
    /// `live` or `test`: the mode of the key.
    #[schema(example = "live")]
    mode: &'static str,
    rows: Vec<CostRow>,
    /// Photos that became ready or failed.
    #[schema(value_type = f64, minimum = 0)]
    photos: u64,
    /// What photos cost, without searches, divided by these photos; null if there are none.
    #[schema(required)]
    per_photo: Option<Costs>,
    storage: StorageReport,
}

impl CostReport {
    pub(crate) fn new(
        mode: KeyMode,
        rows: Vec<stored::CostRow>,
        all: Option<&stored::CostRow>,
        stored: StoredObjects,
        prices: Option<CostPrices>,
    ) -> Self {
        let to_row = |row: stored::CostRow| CostRow {
            day: row.day.map(|day| day.to_string()),
            album_id: row.album.map(|album| album.0),
            stage: row.stage,
            photos: row.photos,
            costs: Costs::new(&row.spent, 1.0, prices),
        };
        let photos = all.map_or(0, |all| all.photos);
        let all = all.filter(|all| all.photos > 0);
        Self {
            mode: mode.as_str(),
            rows: rows.into_iter().map(to_row).collect(),
            photos,
            per_photo: all.map(|all| Costs::new(&all.spent, all.photos as f64, prices)),
            storage: StorageReport::new(stored, prices),
        }
    }
}

impl Output for CostReport {
    fn example() -> Self {
        let costs = Costs {
            cpu_seconds: 246.5,
            gpu_seconds: 0.0,
            bytes_read: 0.0,
            bytes_written: 0.0,
            money: Some(0.0027),
        };
        let row = CostRow { day: None, album_id: None, stage: Some("read".to_owned()), photos: 1480, costs };
        let per_photo = Costs {
            cpu_seconds: 0.31,
            gpu_seconds: 0.0,
            bytes_read: 8_123_456.0,
            bytes_written: 512_345.0,
            money: Some(0.000_003_4),
        };
        let storage = StorageReport { objects: 4440, bytes: 12_781_000_000, money: Some(0.255_62) };
        Self {
            mode: KeyMode::Live.as_str(),
            rows: vec![row],
            photos: 1480,
            per_photo: Some(per_photo),
            storage,
        }
    }
}

/// A photo and what it has cost.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DearPhoto {
    photo_id: Uuid,
    filename: String,
    /// Null while it is not ready.
    #[schema(required)]
    thumbnail_url: Option<String>,
    #[serde(flatten)]
    costs: Costs,
}

/// The dearest photos of an album.
#[derive(Serialize, ToSchema)]
pub(crate) struct DearestPhotos {
    /// The dearest first.
    photos: Vec<DearPhoto>,
    /// How many of the newest photos were looked at.
    #[schema(value_type = f64, minimum = 0)]
    looked: u64,
    /// How many the album has.
    #[schema(value_type = f64, minimum = 0)]
    total: u64,
}

impl DearestPhotos {
    /// Of this many are the dearest found.
    pub(crate) const NEWEST: u32 = 20_000;
    /// How many are shown.
    pub(crate) const SHOWN: u32 = 20;

    pub(crate) fn new(photos: Vec<DearPhoto>, total: u64) -> Self {
        Self { photos, looked: total.min(Self::NEWEST.into()), total }
    }

    /// By prices if there are any, else by time.
    pub(crate) fn weights(prices: Option<CostPrices>) -> CostWeights {
        match prices {
            Some(prices) if prices.cpu_hour + prices.gpu_hour > 0.0 => {
                CostWeights { cpu: prices.cpu_hour, device: prices.gpu_hour }
            }
            _ => CostWeights { cpu: 1.0, device: 1.0 },
        }
    }
}

impl DearPhoto {
    pub(crate) fn new(
        photo: Photo,
        thumbnail_url: Option<String>,
        cost: &PhotoCost,
        prices: Option<CostPrices>,
    ) -> Self {
        let costs = Costs::new(&cost.spent, 1.0, prices);
        Self { photo_id: photo.id.0, filename: photo.filename, thumbnail_url, costs }
    }
}

impl Output for DearestPhotos {
    fn example() -> Self {
        Self { photos: Vec::new(), looked: 1480, total: 1480 }
    }
}
