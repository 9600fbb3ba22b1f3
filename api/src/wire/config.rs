//! The configuration of an album: complete in responses, partial in requests.

use photofinish_store::model::album::{
    self as stored, Recognition, RecognitionMode, RetentionConfig, StartListConfig,
};
use photofinish_store::model::bib_format::BibFormatConfig;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::album_rules::{RetentionChange, RetentionSettings, StartListChange, StartListSettings};
use crate::validate::input::{Fields, Input, nested};
use crate::validate::issues::{Issue, IssueReport, PathSegment, code};
use crate::validate::validators::{Boolean, Integer, Nullable, Number, OneOf, bib_format, bib_pattern};

/// How the photos of an album are processed and searched.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AlbumConfig {
    /// Face recognition.
    face: RecognitionSettings,
    /// Bib recognition.
    text: RecognitionSettings,
    /// The picture at a hit's `url`.
    preview: ImageSettings,
    /// The picture at a hit's `thumbnailUrl`.
    thumbnail: ImageSettings,
    /// A regular expression that a complete bib of this event matches, after it is converted to upper-case letters and
    /// digits; in the dialect of the Rust crate `regex`.
    bib_pattern: String,
    /// How the start list is used, once there is one.
    start_list: StartListSettings,
    /// The format by which bibs are judged where no start list does: `auto`, the one that the album shows; `off`, none;
    /// or shapes, `A` for a letter and `9` for a digit, separated by `|`.
    #[schema(example = "AA99999|999")]
    bib_format: String,
    /// For how long faces and photos are kept.
    retention: RetentionSettings,
}

/// Settings of face or bib recognition.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecognitionSettings {
    /// Hits below this confidence are not returned.
    #[schema(minimum = 0, maximum = 100)]
    confidence_threshold: f64,
    /// Whether photos are processed and can be searched this way.
    enabled: bool,
    /// The grid of mode `grid`.
    #[schema(required)]
    grid: Option<Grid>,
    /// `photo` processes the photo as a whole; `grid` processes overlapping cells of it, for group photos and small bibs.
    #[schema(schema_with = mode_schema)]
    mode: &'static str,
}

/// A division of a photo into overlapping cells, as an upper bound: the service merges cells that would be too small to
/// show more, or too many.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Grid {
    #[schema(value_type = f64, minimum = 1, maximum = 16, multiple_of = 1)]
    rows: u32,
    #[schema(value_type = f64, minimum = 1, maximum = 16, multiple_of = 1)]
    columns: u32,
    /// Maximum size of a cell after scaling, pixels.
    #[schema(value_type = f64, minimum = 64, maximum = 8192, multiple_of = 1)]
    cell_width: u32,
    /// Maximum size of a cell after scaling, pixels.
    #[schema(value_type = f64, minimum = 64, maximum = 8192, multiple_of = 1)]
    cell_height: u32,
}

/// The size of a generated picture.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImageSettings {
    /// Length of the longer side, pixels; photos are never enlarged.
    #[schema(value_type = f64, minimum = 64, maximum = 8192, multiple_of = 1)]
    max_dimension: u32,
    /// Of the preview alone: whether `url` is the picture with the album's watermark, if it has one.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    watermarked: Option<bool>,
}

const MODES: [RecognitionMode; 2] = [RecognitionMode::Photo, RecognitionMode::Grid];

fn mode_name(mode: RecognitionMode) -> &'static str {
    match mode {
        RecognitionMode::Photo => "photo",
        RecognitionMode::Grid => "grid",
    }
}

fn mode_schema() -> utoipa::openapi::schema::Object {
    super::string_enum(MODES.map(mode_name))
}

impl From<stored::AlbumConfig> for AlbumConfig {
    fn from(config: stored::AlbumConfig) -> Self {
        Self {
            face: config.face.into(),
            text: config.text.into(),
            preview: ImageSettings {
                max_dimension: config.preview_max_dimension,
                watermarked: Some(config.preview_watermarked),
            },
            thumbnail: ImageSettings { max_dimension: config.thumbnail_max_dimension, watermarked: None },
            bib_pattern: config.bib_pattern,
            start_list: config.start_list.into(),
            bib_format: config.bib_format.to_string(),
            retention: config.retention.into(),
        }
    }
}

impl From<Recognition> for RecognitionSettings {
    fn from(recognition: Recognition) -> Self {
        let grid = recognition.grid.map(|grid| Grid {
            rows: grid.rows,
            columns: grid.columns,
            cell_width: grid.cell_width,
            cell_height: grid.cell_height,
        });
        Self {
            confidence_threshold: recognition.confidence_threshold,
            enabled: recognition.enabled,
            grid,
            mode: mode_name(recognition.mode),
        }
    }
}

impl AlbumConfig {
    pub(crate) fn example() -> Self {
        let recognition = |confidence_threshold| RecognitionSettings {
            confidence_threshold,
            enabled: true,
            grid: None,
            mode: "photo",
        };
        Self {
            face: recognition(50.0),
            text: recognition(0.0),
            preview: ImageSettings { max_dimension: 2048, watermarked: Some(false) },
            thumbnail: ImageSettings { max_dimension: 512, watermarked: None },
            bib_pattern: stored::DEFAULT_BIB_PATTERN.to_owned(),
            start_list: StartListConfig::default().into(),
            bib_format: BibFormatConfig::default().to_string(),
            retention: RetentionConfig::default().into(),
        }
    }
}

/// A partial configuration.
#[derive(Default)]
pub(crate) struct ConfigChange {
    face: RecognitionChange,
    text: RecognitionChange,
    preview: PreviewChange,
    thumbnail: ImageChange,
    bib_pattern: Option<String>,
    start_list: StartListChange,
    bib_format: Option<BibFormatConfig>,
    retention: RetentionChange,
}

#[derive(Default)]
struct RecognitionChange {
    confidence_threshold: Option<f64>,
    enabled: Option<bool>,
    grid: Option<Option<Grid>>,
    mode: Option<RecognitionMode>,
}

#[derive(Default)]
struct PreviewChange {
    max_dimension: Option<u32>,
    watermarked: Option<bool>,
}

#[derive(Default)]
struct ImageChange {
    max_dimension: Option<u32>,
}

impl Input for ConfigChange {
    const NAME: &'static str = "AlbumConfigChange";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let description = "Face recognition. A `confidenceThreshold` that was never set is the default of the service, which \
            is higher for an album that reads no bibs; one that was set stays, whatever it is.";
        let face = fields.optional("face", description, nested());
        let text = fields.optional("text", "Bib recognition.", nested());
        let preview = fields.optional("preview", "The picture at a hit's `url`.", nested());
        let thumbnail = fields.optional("thumbnail", "The picture at a hit's `thumbnailUrl`.", nested());
        let description = "A regular expression that a complete bib matches, after it is converted to upper-case letters \
            and digits; in the dialect of the Rust crate `regex`.";
        let bib_pattern = fields.optional("bibPattern", description, bib_pattern());
        let start_list =
            fields.optional("startList", "How the start list is used.", nested::<StartListChange>());
        let description = "`auto`, `off`, or shapes: `A` for a letter, `9` for a digit, separated by `|`.";
        let bib_format = fields.optional("bibFormat", description, bib_format());
        let description = "For how long faces and photos are kept.";
        let retention = fields.optional("retention", description, nested::<RetentionChange>());
        Some(Self {
            retention: retention.unwrap_or_default(),
            start_list: start_list.unwrap_or_default(),
            bib_format: bib_format.and_then(|format| format.parse().ok()),
            face: face.unwrap_or_default(),
            text: text.unwrap_or_default(),
            preview: preview.unwrap_or_default(),
            thumbnail: thumbnail.unwrap_or_default(),
            bib_pattern,
        })
    }

    fn example() -> Value {
        json!({ "face": { "confidenceThreshold": 80 }, "text": { "enabled": false } })
    }
}

impl Input for RecognitionChange {
    const NAME: &'static str = "RecognitionChange";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let description = "Hits below this confidence are not returned.";
        let threshold = Number { min: 0.0, max: 100.0 };
        let confidence_threshold = fields.optional("confidenceThreshold", description, threshold);
        let enabled =
            fields.optional("enabled", "Whether photos are processed and can be searched this way.", Boolean);
        let grid = fields.optional("grid", "The grid of mode `grid`.", Nullable(nested::<Grid>()));
        let description = "`grid` requires a grid, in this request or in the album.";
        let mode = fields.optional("mode", description, OneOf { choices: &MODES, to_name: mode_name });
        Some(Self { confidence_threshold, enabled, grid, mode })
    }

    fn example() -> Value {
        json!({ "confidenceThreshold": 80 })
    }
}

impl Input for PreviewChange {
    const NAME: &'static str = "PreviewChange";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let description = "Length of the longer side, pixels; photos are never enlarged.";
        let max_dimension = fields.optional("maxDimension", description, Integer { min: 64, max: 8192 });
        let description = "Whether `url` is the picture with the album's watermark, if it has one.";
        let watermarked = fields.optional("watermarked", description, Boolean);
        Some(Self { max_dimension, watermarked })
    }

    fn example() -> Value {
        json!({ "maxDimension": 1024 })
    }
}

impl Input for ImageChange {
    const NAME: &'static str = "ImageChange";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let description = "Length of the longer side, pixels; photos are never enlarged.";
        let max_dimension = fields.optional("maxDimension", description, Integer { min: 64, max: 8192 });
        Some(Self { max_dimension })
    }

    fn example() -> Value {
        json!({ "maxDimension": 1024 })
    }
}

impl Input for Grid {
    const NAME: &'static str = "GridChange";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let (count, pixels) = (|| Integer { min: 1, max: 16 }, || Integer { min: 64, max: 8192 });
        let description =
            "Maximum size of a cell after scaling, pixels; below 640 as 640, above 2048 as 2048.";
        let rows = fields.required("rows", "Number of rows of cells.", count());
        let columns = fields.required("columns", "Number of columns of cells.", count());
        let cell_width = fields.required("cellWidth", description, pixels());
        let cell_height = fields.required("cellHeight", description, pixels());
        Some(Self { rows: rows?, columns: columns?, cell_width: cell_width?, cell_height: cell_height? })
    }

    fn example() -> Value {
        json!({ "rows": 2, "columns": 3, "cellWidth": 1024, "cellHeight": 1024 })
    }
}

/// The default face thresholds, 0 to 100.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaceThresholds {
    pub(crate) with_bibs: f64,
    pub(crate) without_bibs: f64,
}

impl FaceThresholds {
    fn default_for(self, text: &Recognition) -> f64 {
        if text.enabled { self.with_bibs } else { self.without_bibs }
    }
}

impl ConfigChange {
    /// Returns `base` with the changes applied. A face threshold that nobody chose is the default for what is then read
    /// when the reading of bibs is switched on or off.
    ///
    /// # Errors
    /// The issues of fields that are valid alone but not together.
    pub(crate) fn apply_to(
        &self,
        base: &stored::AlbumConfig,
        defaults: FaceThresholds,
    ) -> Result<stored::AlbumConfig, Vec<Issue>> {
        let mut config = stored::AlbumConfig {
            face: self.face.apply_to(&base.face),
            text: self.text.apply_to(&base.text),
            preview_max_dimension: self.preview.max_dimension.unwrap_or(base.preview_max_dimension),
            preview_watermarked: self.preview.watermarked.unwrap_or(base.preview_watermarked),
            thumbnail_max_dimension: self.thumbnail.max_dimension.unwrap_or(base.thumbnail_max_dimension),
            former_thumbnail_max_dimension: base.former_thumbnail_max_dimension,
            bib_pattern: self.bib_pattern.as_ref().unwrap_or(&base.bib_pattern).clone(),
            start_list: self.start_list.apply_to(base.start_list),
            bib_format: self.bib_format.as_ref().unwrap_or(&base.bib_format).clone(),
            retention: self.retention.apply_to(base.retention),
            rest: base.rest.clone(),
        };
        // Where nobody recorded it, what differs from the default was chosen.
        let differs = || base.face.confidence_threshold != defaults.default_for(&base.text);
        let is_chosen = config.face.threshold_chosen.unwrap_or_else(differs);
        config.face.threshold_chosen = Some(is_chosen);
        if !is_chosen && config.text.enabled != base.text.enabled {
            config.face.confidence_threshold = defaults.default_for(&config.text);
        }
        let mut report = IssueReport::default();
        let lacks = |it: &Recognition| it.mode == RecognitionMode::Grid && it.grid.is_none();
        report_missing_grids(&mut report, [("face", lacks(&config.face)), ("text", lacks(&config.text))]);
        let issues = report.into_issues();
        if issues.is_empty() { Ok(config) } else { Err(issues) }
    }

    /// Checks the configuration of a new album, which has no other grids than those given here.
    pub(crate) fn check_for_new_album(&self, report: &mut IssueReport) {
        let lacks =
            |it: &RecognitionChange| it.mode == Some(RecognitionMode::Grid) && it.grid.flatten().is_none();
        report_missing_grids(report, [("face", lacks(&self.face)), ("text", lacks(&self.text))]);
    }
}

fn report_missing_grids(report: &mut IssueReport, lacking: [(&'static str, bool); 2]) {
    for (name, _) in lacking.into_iter().filter(|(_, lacks)| *lacks) {
        report.within(PathSegment::Field("config"), |report| {
            report.within(PathSegment::Field(name), |report| {
                report.within(PathSegment::Field("grid"), |report| {
                    report.add(code::REQUIRED, "mode grid takes a grid");
                });
            });
        });
    }
}

impl RecognitionChange {
    fn apply_to(&self, base: &Recognition) -> Recognition {
        let grid = self.grid.map(|grid| {
            grid.map(|grid| stored::Grid {
                rows: grid.rows,
                columns: grid.columns,
                cell_width: grid.cell_width,
                cell_height: grid.cell_height,
            })
        });
        Recognition {
            enabled: self.enabled.unwrap_or(base.enabled),
            confidence_threshold: self.confidence_threshold.unwrap_or(base.confidence_threshold),
            threshold_chosen: self.confidence_threshold.map(|_| true).or(base.threshold_chosen),
            mode: self.mode.unwrap_or(base.mode),
            grid: grid.unwrap_or(base.grid),
        }
    }
}

/// Returns whether photos processed with `before` would have other results or pictures with `after`. Thresholds do not
/// matter: searches apply them.
pub(crate) fn needs_reprocessing(before: &stored::AlbumConfig, after: &stored::AlbumConfig) -> bool {
    let recognition = |before: &Recognition, after: &Recognition| {
        // Results of a disabled recognition are kept; they are only not searched.
        let switched_on = after.enabled && !before.enabled;
        let grid = |it: &Recognition| (it.mode == RecognitionMode::Grid).then_some(it.grid);
        switched_on || (after.enabled && grid(before) != grid(after))
    };
    recognition(&before.face, &after.face)
        || recognition(&before.text, &after.text)
        || before.preview_max_dimension != after.preview_max_dimension
        || before.thumbnail_max_dimension != after.thumbnail_max_dimension
        || before.bib_pattern != after.bib_pattern
}
