//! Albums on the wire.

use photofinish_store::model::album as rows;
use photofinish_store::model::ids::AlbumId;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::config::{AlbumConfig, ConfigChange};
use super::{Output, read_album_id, sample};
use crate::validate::input::{Fields, Input, nested};
use crate::validate::validators::{Integer, ListOf, Nullable, Text, text, uri};
use crate::wire::cursor;

/// One event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Album {
    id: Uuid,
    organization_id: Uuid,
    /// The id of the key that made it.
    created_by: Uuid,
    title: String,
    /// A picture for the event.
    #[schema(required, format = "uri")]
    cover_url: Option<String>,
    tags: Vec<String>,
    /// How its photos are read and searched.
    #[schema(required)]
    config: Option<AlbumConfig>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

impl From<rows::Album> for Album {
    fn from(album: rows::Album) -> Self {
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

/// An album after a change.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpdatedAlbum {
    /// The album as it is now.
    #[serde(flatten)]
    pub(crate) album: Album,
    /// Whether photos read before this change would be read differently now: `albums/reprocess` reads them again.
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
    /// Gives the next page; null on the last one.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
    /// How many match in all.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: u64,
}

impl Output for AlbumPage {
    fn example() -> Self {
        let next_cursor = Some(cursor::encode_id(sample::ALBUM.0));
        Self { albums: vec![Album::example()], next_cursor, total: 12 }
    }
}

/// What `albums/reprocess` did.
#[derive(Serialize, ToSchema)]
pub(crate) struct Reprocessing {
    /// Always true.
    pub(crate) success: bool,
    /// For a person.
    pub(crate) message: &'static str,
    /// How many photos were put back in the queue.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) queued: u64,
}

impl Output for Reprocessing {
    fn example() -> Self {
        Self { success: true, message: "Photos queued for processing", queued: 1480 }
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

const CONFIG_DESCRIPTION: &str = "How its photos are read and searched, whole or in part.";

impl Input for CreateAlbum {
    const NAME: &'static str = "CreateAlbum";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let title = fields.required("title", "The event's name.", title_text());
        let cover_url = fields.optional("coverUrl", "A picture for the event.", uri());
        let tags = fields.optional("tags", "Free labels.", tag_list());
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
}

impl Input for UpdateAlbum {
    const NAME: &'static str = "UpdateAlbum";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let title = fields.optional("title", "The new name.", title_text());
        let cover_url = fields.optional("coverUrl", "The new picture, or null for none.", Nullable(uri()));
        let tags = fields.optional("tags", "The new labels, all of them.", tag_list());
        let config = fields.optional("config", CONFIG_DESCRIPTION, nested());
        Some(Self { album: album?, title, cover_url, tags, config })
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
    pub(crate) after: Option<AlbumId>,
    pub(crate) limit: u32,
    pub(crate) title: Option<String>,
}

impl Input for ListAlbums {
    const NAME: &'static str = "ListAlbums";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let limit = fields.optional_or("limit", "Albums a page.", 50, Integer { min: 1, max: 200 });
        let after = fields.optional("cursor", "`nextCursor` of the page before.", cursor::id_cursor());
        let about = "Only albums whose title contains this, whatever its case.";
        let title = fields.optional("title", about, text(0, 500));
        let after = after.and_then(|text| cursor::decode_id(&text)).map(AlbumId);
        Some(Self { after, limit, title: title.filter(|title| !title.is_empty()) })
    }

    fn example() -> Value {
        json!({ "limit": 20, "title": "marathon" })
    }
}
