//! Requests and responses of `albums/*`.

use photofinish_store::model::album as stored;
use photofinish_store::model::bib_format::{BibShape, LearnedFormat};
use photofinish_store::model::erasure;
use photofinish_store::model::ids::AlbumId;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;
use uuid::Uuid;

use super::config::{AlbumConfig, ConfigChange};
use super::{Output, read_album_id, sample, string_enum};
use crate::validate::input::{Fields, Input, nested};
use crate::validate::validators::{Integer, ListOf, Nullable, OneOf, Text, text, web_uri};
use crate::wire::cursor::{AlbumPosition, album_cursor};

/// An album: the photos of one event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Album {
    id: Uuid,
    organization_id: Uuid,
    /// The id of the API key that created the album.
    created_by: Uuid,
    title: String,
    /// A cover picture.
    #[schema(required, format = "uri")]
    cover_url: Option<String>,
    tags: Vec<String>,
    /// How photos are processed and searched.
    #[schema(required)]
    config: Option<AlbumConfig>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

impl From<stored::Album> for Album {
    fn from(album: stored::Album) -> Self {
        Self {
            id: album.id.0,
            organization_id: album.tenant.organization.0,
            created_by: album.created_by.0,
            title: album.title,
            cover_url: album.cover_url,
            tags: album.tags,
            config: Some(album.config.into()),
            created_at: album.created_at,
            updated_at: album.updated_at,
        }
    }
}

impl Output for Album {
    fn example() -> Self {
        Self {
            id: sample::ALBUM.0,
            organization_id: sample::ORGANIZATION.0,
            created_by: sample::KEY.0,
            title: "Lake Marathon 2026".to_owned(),
            cover_url: Some("https://lake-marathon.example/cover.jpg".to_owned()),
            tags: vec!["marathon".to_owned()],
            config: Some(AlbumConfig::example()),
            created_at: sample::TIME,
            updated_at: sample::TIME,
        }
    }
}

/// An album with the format of its bibs.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AlbumDetail {
    #[serde(flatten)]
    pub(crate) album: Album,
    /// What the bibs of the album look like, as far as they were read; `config.bibFormat` says whether that is used.
    pub(crate) bib_format: ShownFormat,
    /// What its retention is going to erase and when, soonest first; empty where everything is kept for ever.
    pub(crate) expiring: Vec<ExpiringPart>,
}

/// A part of an album that is going to be erased because of its age.
#[derive(Serialize, ToSchema)]
pub(crate) struct ExpiringPart {
    /// `photos`, and the album with them, or the vectors of `faces`.
    #[schema(schema_with = expiring_schema)]
    what: &'static str,
    /// Not before. Later if photos are confirmed or being processed until then.
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
}

fn expiring_schema() -> Object {
    string_enum(erasure::ExpiringPart::ALL.map(erasure::ExpiringPart::as_str))
}

impl ExpiringPart {
    pub(crate) fn new(part: erasure::ExpiringPart, at: OffsetDateTime) -> Self {
        Self { what: part.as_str(), at }
    }
}

/// The format that the bibs of an album show.
#[derive(Serialize, ToSchema)]
pub(crate) struct ShownFormat {
    /// Shapes as in `config.bibFormat`, most frequent first; null while there are too few bibs, and where they have no
    /// format.
    #[schema(required, example = "9999|999")]
    learned: Option<String>,
    /// The part of the different bibs that have one of the shapes.
    #[schema(minimum = 0, maximum = 1)]
    share: f64,
    /// Different bibs that were surely read.
    #[schema(value_type = f64, minimum = 0)]
    readings: u64,
}

impl From<LearnedFormat> for ShownFormat {
    fn from(format: LearnedFormat) -> Self {
        let shapes: Vec<&str> = format.shapes.iter().map(BibShape::as_str).collect();
        Self {
            learned: (!shapes.is_empty()).then(|| shapes.join("|")),
            share: (format.share * 1000.0).round() / 1000.0,
            readings: format.readings,
        }
    }
}

impl Output for AlbumDetail {
    fn example() -> Self {
        let shapes = vec![BibShape::of("1207"), BibShape::of("120")];
        let format = LearnedFormat { shapes, share: 0.97, readings: 412, ..LearnedFormat::default() };
        let in_a_year = sample::TIME + time::Duration::days(365);
        let expiring = vec![ExpiringPart::new(erasure::ExpiringPart::Photos, in_a_year)];
        Self { album: Album::example(), bib_format: format.into(), expiring }
    }
}

/// An album after an update.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpdatedAlbum {
    /// The updated album.
    #[serde(flatten)]
    pub(crate) album: Album,
    /// Whether photos processed before this update would now have other results; `albums/reprocess` processes them again.
    pub(crate) reprocessing_needed: bool,
}

impl Output for UpdatedAlbum {
    fn example() -> Self {
        Self { album: Album::example(), reprocessing_needed: true }
    }
}

/// A page of albums, newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AlbumPage {
    pub(crate) albums: Vec<Album>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
    /// Number of albums on all pages, counted when the first page was made.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: u64,
}

impl Output for AlbumPage {
    fn example() -> Self {
        let position = AlbumPosition { album: sample::ALBUM, total: 12 };
        Self { albums: vec![Album::example()], next_cursor: Some(position.to_cursor()), total: 12 }
    }
}

/// The result of `albums/reprocess`.
#[derive(Serialize, ToSchema)]
pub(crate) struct Reprocessing {
    /// Always true.
    pub(crate) success: bool,
    /// For people.
    pub(crate) message: &'static str,
    /// Number of photos that were queued, without those that are being processed.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) queued: u64,
    /// Number of photos that were not, because they were never ready and the balance does not cover them.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) declined: u64,
}

impl Output for Reprocessing {
    fn example() -> Self {
        Self { success: true, message: "Photos queued for processing", queued: 1480, declined: 0 }
    }
}

/// Body of `albums/create`.
pub(crate) struct CreateAlbum {
    pub(crate) title: String,
    pub(crate) cover_url: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) config: ConfigChange,
}

fn title_text() -> Text {
    text(1, 500)
}

fn tag_list() -> ListOf<Text> {
    ListOf { item: text(1, 100), min: 0, max: 100 }
}

const CONFIG_DESCRIPTION: &str = "How photos are processed and searched; may be partial.";

impl Input for CreateAlbum {
    const NAME: &'static str = "CreateAlbum";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let title = fields.required("title", "The name of the event.", title_text());
        let cover_url = fields.optional("coverUrl", "A cover picture, at an http or https URL.", web_uri());
        let tags = fields.optional("tags", "Labels of your choice.", tag_list());
        let config = fields.optional("config", CONFIG_DESCRIPTION, nested::<ConfigChange>());
        if let Some(config) = &config {
            fields.check_together(|report| config.check_for_new_album(report));
        }
        Some(Self {
            title: title?,
            cover_url,
            tags: tags.unwrap_or_default(),
            config: config.unwrap_or_default(),
        })
    }

    fn example() -> Value {
        json!({ "title": "Lake Marathon 2026", "coverUrl": "https://lake-marathon.example/cover.jpg" })
    }
}

/// Body of `albums/update`.
pub(crate) struct UpdateAlbum {
    pub(crate) album: AlbumId,
    pub(crate) title: Option<String>,
    pub(crate) cover_url: Option<Option<String>>,
    pub(crate) tags: Option<Vec<String>>,
    pub(crate) config: Option<ConfigChange>,
    pub(crate) acknowledges_biometrics: bool,
}

/// What a change may acknowledge.
#[derive(Clone, Copy)]
enum Acknowledgement {
    /// That vectors of faces are computed.
    Biometric,
}

impl Acknowledgement {
    fn as_str(self) -> &'static str {
        match self {
            Self::Biometric => "biometric",
        }
    }
}

impl Input for UpdateAlbum {
    const NAME: &'static str = "UpdateAlbum";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let title = fields.optional("title", "The new name.", title_text());
        let cover_url =
            fields.optional("coverUrl", "The new cover picture, or null to remove it.", Nullable(web_uri()));
        let tags = fields.optional("tags", "The new labels; they replace all previous ones.", tag_list());
        let config = fields.optional("config", CONFIG_DESCRIPTION, nested());
        let acknowledge = fields.optional(
            "acknowledge",
            "`biometric`: that vectors of faces are computed. Required to switch `face.enabled` on while the gallery of the album is \
             open.",
            OneOf { choices: &[Acknowledgement::Biometric], to_name: Acknowledgement::as_str },
        );
        let acknowledges_biometrics = acknowledge.is_some();
        Some(Self { album: album?, title, cover_url, tags, config, acknowledges_biometrics })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "config": { "face": { "confidenceThreshold": 80 } } })
    }
}

/// Body of every operation on one album.
pub(crate) struct OneAlbum {
    pub(crate) album: AlbumId,
}

impl Input for OneAlbum {
    const NAME: &'static str = "OneAlbum";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        Some(Self { album: album? })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM })
    }
}

/// Body of `albums/list`.
pub(crate) struct ListAlbums {
    pub(crate) after: Option<AlbumPosition>,
    pub(crate) limit: u32,
    pub(crate) title: Option<String>,
}

impl Input for ListAlbums {
    const NAME: &'static str = "ListAlbums";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let limit = fields.optional_or("limit", "Albums per page.", 50, Integer { min: 1, max: 200 });
        let after = fields.optional("cursor", "`nextCursor` of the previous page.", album_cursor());
        let description = "Only albums whose title contains this text, ignoring case.";
        let title = fields.optional("title", description, text(0, 500));
        let after = after.and_then(|text| AlbumPosition::from_cursor(&text));
        Some(Self { after, limit, title: title.filter(|title| !title.is_empty()) })
    }

    fn example() -> Value {
        json!({ "limit": 20, "title": "marathon" })
    }
}
