//! Searches on the wire.

use photofinish_store::model::ids::AlbumId;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{BoundingBox, Output, read_album_id, sample};
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{AnyText, Boolean, Integer, Number, text};
use crate::wire::cursor::{self, HitPosition};

/// Why a face hit is one.
pub(crate) const FACE_MATCH: &str = "face match";
/// Why a bib hit is one.
pub(crate) const READ_HERE: &str = "read here";

/// Where a selfie's bytes go.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeTicket {
    /// Takes one HTTP PUT of the selfie's bytes, without `x-api-key`.
    #[schema(format = "uri")]
    pub(crate) upload_url: String,
    /// The selfie, for `photos/search/face/list`.
    pub(crate) image_id: String,
    /// When the URL ceases to work.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires_at: OffsetDateTime,
    /// When the selfie is forgotten.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) image_expires_at: OffsetDateTime,
}

impl Output for ProbeTicket {
    fn example() -> Self {
        Self {
            upload_url: sample::UPLOAD_URL.to_owned(),
            image_id: sample::PROBE.to_string(),
            expires_at: sample::TIME,
            image_expires_at: sample::TIME,
        }
    }
}

/// One page of the hits of a search; becomes [`FaceHits`] or [`TextHits`].
pub(crate) struct Hits<H> {
    pub(crate) photos: Vec<H>,
    pub(crate) total: usize,
    pub(crate) next_cursor: Option<String>,
}

impl From<Hits<FaceHit>> for FaceHits {
    fn from(hits: Hits<FaceHit>) -> Self {
        Self { photos: hits.photos, total: hits.total, next_cursor: hits.next_cursor }
    }
}

impl From<Hits<TextHit>> for TextHits {
    fn from(hits: Hits<TextHit>) -> Self {
        Self { photos: hits.photos, total: hits.total, next_cursor: hits.next_cursor }
    }
}

/// Photos in which the face was found, best first, one hit a photo.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FaceHits {
    pub(crate) photos: Vec<FaceHit>,
    /// How many hits there are in all.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: usize,
    /// Gives the next page; null on the last one.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// A photo in which the face was found.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FaceHit {
    pub(crate) id: String,
    /// The preview.
    #[schema(format = "uri")]
    pub(crate) url: String,
    #[schema(format = "uri")]
    pub(crate) thumbnail_url: String,
    /// Of hits at 90, nine in ten are right.
    #[schema(minimum = 0, maximum = 100)]
    pub(crate) confidence: f64,
    /// The face.
    pub(crate) bounding_box: BoundingBox,
    /// Why this is a hit.
    #[schema(example = "face match")]
    pub(crate) why: &'static str,
    /// When the photo was taken, by its EXIF data.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) taken_at: Option<OffsetDateTime>,
}

impl Output for FaceHits {
    fn example() -> Self {
        let hit = FaceHit {
            id: sample::PHOTO.to_string(),
            url: sample::PREVIEW_URL.to_owned(),
            thumbnail_url: sample::THUMBNAIL_URL.to_owned(),
            confidence: 97.3,
            bounding_box: BoundingBox::example(),
            why: FACE_MATCH,
            taken_at: Some(sample::TIME),
        };
        Self { photos: vec![hit], total: 1, next_cursor: None }
    }
}

/// Photos in which the bib was read: exact readings first, one hit a photo.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TextHits {
    pub(crate) photos: Vec<TextHit>,
    /// How many hits there are in all.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: usize,
    /// Gives the next page; null on the last one.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// A photo in which the bib was read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TextHit {
    pub(crate) id: String,
    /// The preview.
    #[schema(format = "uri")]
    pub(crate) url: String,
    #[schema(format = "uri")]
    pub(crate) thumbnail_url: String,
    /// What was read.
    #[schema(example = "1207")]
    pub(crate) matched_text: String,
    /// Of hits at 90, nine in ten are right.
    #[schema(minimum = 0, maximum = 100)]
    pub(crate) confidence: f64,
    /// The bib.
    pub(crate) bounding_box: BoundingBox,
    /// Why this is a hit.
    #[schema(example = "read here")]
    pub(crate) why: &'static str,
    /// When the photo was taken, by its EXIF data.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) taken_at: Option<OffsetDateTime>,
}

impl Output for TextHits {
    fn example() -> Self {
        let hit = TextHit {
            id: sample::PHOTO.to_string(),
            url: sample::PREVIEW_URL.to_owned(),
            thumbnail_url: sample::THUMBNAIL_URL.to_owned(),
            matched_text: "1207".to_owned(),
            confidence: 96.2,
            bounding_box: BoundingBox::example(),
            why: READ_HERE,
            taken_at: Some(sample::TIME),
        };
        Self { photos: vec![hit], total: 1, next_cursor: None }
    }
}

/// Which hits of a search to answer.
pub(crate) struct Paging {
    pub(crate) limit: usize,
    pub(crate) after: Option<HitPosition>,
    /// 0 to 100; 0 unless named.
    pub(crate) min_confidence: f64,
}

impl Paging {
    fn read(fields: &mut Fields<'_>) -> Self {
        let limit = fields.optional_or("limit", "Hits a page.", 100, Integer { min: 1, max: 1000 });
        let after = fields.optional("cursor", "`nextCursor` of the page before.", cursor::hit_cursor());
        let about = "Only hits of this confidence or more. The album's threshold holds all the same.";
        let min_confidence = fields.optional("minConfidence", about, Number { min: 0.0, max: 100.0 });
        Self {
            limit: limit as usize,
            after: after.and_then(|text| HitPosition::from_cursor(&text)),
            min_confidence: min_confidence.unwrap_or_default(),
        }
    }
}

/// Body of `photos/search/face/list`.
pub(crate) struct SearchFace {
    pub(crate) album: AlbumId,
    pub(crate) image: String,
    pub(crate) paging: Paging,
}

impl Input for SearchFace {
    const NAME: &'static str = "SearchFace";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let image = fields.required("imageId", "The selfie.", AnyText);
        let paging = Paging::read(fields);
        Some(Self { album: album?, image: image?, paging })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "imageId": sample::PROBE })
    }
}

/// Body of `photos/search/text/list`.
pub(crate) struct SearchText {
    pub(crate) album: AlbumId,
    pub(crate) text: String,
    pub(crate) exact: bool,
    pub(crate) paging: Paging,
}

impl Input for SearchText {
    const NAME: &'static str = "SearchText";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let about = "The bib. Case, spaces and punctuation do not matter.";
        let text = fields.required("text", about, text(1, 100));
        let exact = fields.optional_or("exact", "Only readings of exactly this bib.", false, Boolean);
        let paging = Paging::read(fields);
        Some(Self { album: album?, text: text?, exact, paging })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "text": "1207" })
    }
}
