//! Requests and responses of `photos/search/*`.

use std::collections::HashMap;

use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::start_list::StartListEntry;
use photofinish_store::search::variants::normalise_bib;
use photofinish_store::traits::TextQuery;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{BoundingBox, Output, read_album_id, sample};
use crate::validate::bibs::typed_bib;
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{AnyText, Boolean, Integer, Number};
use crate::wire::cursor::{self, HitCursor};

/// `why` of a face hit that the face alone makes.
pub(crate) const FACE_MATCH: &str = "face match";
/// `why` of a face hit that needs, beside a similar face, the bib of the hits that are sure by their face.
pub(crate) const SAME_BIB: &str = "same bib as your sure photos";
/// `why` of a bib hit.
pub(crate) const READ_HERE: &str = "read here";

/// The URL to which a selfie is uploaded.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeTicket {
    /// Accepts an HTTP PUT of the selfie's bytes, without `x-api-key`.
    #[schema(format = "uri")]
    pub(crate) upload_url: String,
    /// The id of the selfie, for `photos/search/face/list`.
    pub(crate) image_id: String,
    /// When the URL expires.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires_at: OffsetDateTime,
    /// When the selfie is deleted.
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

/// Body of `photos/search/face/signed`.
pub(crate) struct SignSelfie {
    pub(crate) album: AlbumId,
    /// Whether its person is going to be erased.
    pub(crate) for_erasure: bool,
}

impl Input for SignSelfie {
    const NAME: &'static str = "SignSelfie";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let description = "For `faces/erase`: also in an album whose faces were switched off, as long as it keeps vectors of \
            them. Takes a key that may erase; until the faces are switched on, searches with the selfie stay refused.";
        let for_erasure = fields.optional_or("forErasure", description, false, Boolean);
        Some(Self { album: album?, for_erasure })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM })
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

/// The entries of the bibs that a response names; `None` for an album without a start list.
pub(crate) type KnownEntries = Option<HashMap<String, StartListEntry>>;

impl TextHits {
    /// Adds what the start list says of the texts.
    pub(crate) fn with_entries(mut self, entries: &KnownEntries) -> Self {
        for hit in &mut self.photos {
            let entry = entries.as_ref().and_then(|entries| entries.get(&hit.matched_text));
            hit.on_start_list = entries.as_ref().map(|_| entry.is_some());
            hit.wave = entry.and_then(|entry| entry.wave.clone());
            hit.team = entry.and_then(|entry| entry.team.clone());
        }
        self
    }
}

impl From<Hits<TextHit>> for TextHits {
    fn from(hits: Hits<TextHit>) -> Self {
        Self { photos: hits.photos, total: hits.total, next_cursor: hits.next_cursor }
    }
}

/// Photos in which the face was found, best match first, one hit per photo.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FaceHits {
    pub(crate) photos: Vec<FaceHit>,
    /// Number of hits on all pages.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: usize,
    /// The cursor of the next page; null on the last page.
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
    /// Calibrated: of hits at 90, nine in ten are right.
    #[schema(minimum = 0, maximum = 100)]
    pub(crate) confidence: f64,
    /// Where the face is.
    pub(crate) bounding_box: BoundingBox,
    /// Why this photo is a hit: `face match`, or `same bib as your sure photos` for a face that is not surely the
    /// person's by itself, above the bib that was read below the person's sure hits.
    #[schema(example = "face match")]
    pub(crate) why: &'static str,
    /// When the photo was taken, from its EXIF data: see `takenAt` of a photo.
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

/// Photos in which the bib was read, exact matches first, one hit per photo.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TextHits {
    pub(crate) photos: Vec<TextHit>,
    /// Number of hits on all pages.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: usize,
    /// The cursor of the next page; null on the last page.
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
    /// The text that was read.
    #[schema(example = "1207")]
    pub(crate) matched_text: String,
    /// Calibrated: of hits at 90, nine in ten are right.
    #[schema(minimum = 0, maximum = 100)]
    pub(crate) confidence: f64,
    /// Where the bib is.
    pub(crate) bounding_box: BoundingBox,
    /// Why this photo is a hit.
    #[schema(example = "read here")]
    pub(crate) why: &'static str,
    /// Whether the text is a bib of the album's start list; null if there is none.
    #[schema(required)]
    pub(crate) on_start_list: Option<bool>,
    /// The wave of the bib, by the start list.
    #[schema(required)]
    pub(crate) wave: Option<String>,
    /// The team of the bib, by the start list.
    #[schema(required)]
    pub(crate) team: Option<String>,
    /// When the photo was taken, from its EXIF data: see `takenAt` of a photo.
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
            on_start_list: Some(true),
            wave: Some("B".to_owned()),
            team: None,
            taken_at: Some(sample::TIME),
        };
        Self { photos: vec![hit], total: 1, next_cursor: None }
    }
}

/// Which hits of a search to return.
pub(crate) struct Paging {
    pub(crate) limit: usize,
    pub(crate) after: Option<HitCursor>,
    /// 0 to 100; takes the place of the album's threshold.
    pub(crate) min_confidence: Option<f64>,
}

impl Paging {
    fn read(fields: &mut Fields<'_>) -> Self {
        let limit = fields.optional_or("limit", "Hits per page.", 100, Integer { min: 1, max: 1000 });
        let after = fields.optional("cursor", "`nextCursor` of the previous page.", cursor::hit_cursor());
        let description = "Only hits that show this confidence or more, in place of the album's `confidenceThreshold`: a \
            lower value also returns weaker hits.";
        let min_confidence = fields.optional("minConfidence", description, Number { min: 0.0, max: 100.0 });
        Self { limit: limit as usize, after: after.and_then(|text| HitCursor::parse(&text)), min_confidence }
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
        let image = fields.required("imageId", "The `imageId` of the selfie.", AnyText);
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

impl SearchText {
    /// What is looked for.
    pub(crate) fn query(&self) -> TextQuery {
        TextQuery { text: normalise_bib(&self.text), exact: self.exact }
    }
}

impl Input for SearchText {
    const NAME: &'static str = "SearchText";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let description = "The bib: one letter or digit at least. Case, spaces and punctuation are ignored.";
        let text = fields.required("text", description, typed_bib(100));
        let exact = fields.optional_or("exact", "Only exact matches.", false, Boolean);
        let paging = Paging::read(fields);
        Some(Self { album: album?, text: text?, exact, paging })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "text": "1207" })
    }
}
