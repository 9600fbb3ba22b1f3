//! Photos and the faces and texts detected in them, as `photos/photo/*` returns them.

use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::photo::{
    self as stored, FailureReason, PhotoState, TextIndexState, UnindexedReason,
};
use photofinish_store::model::start_list::{Alternative, ExplainedText};
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;
use uuid::Uuid;

use super::{BoundingBox, Output, nullable_string_enum, read_album_id, round_percent, sample, string_enum};
use crate::validate::input::{Fields, Input};
use crate::validate::times::date_time;
use crate::validate::validators::{AnyText, Integer, OneOf, text};
use crate::wire::cursor::{PhotoPosition, photo_cursor};
use crate::wire::search::KnownEntries;

/// A photo of an album.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Photo {
    id: String,
    album_id: Uuid,
    /// The file name that the partner sent.
    filename: String,
    /// The media type that the partner declared.
    content_type: String,
    /// The state of processing.
    #[schema(schema_with = state_schema)]
    state: &'static str,
    /// Why the photo failed; null in other states.
    #[schema(required, schema_with = failure_schema)]
    failure: Option<&'static str>,
    /// When the photo was taken, from its EXIF data. A time without an offset from UTC is taken as UTC: it is what the camera's
    /// clock showed.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    taken_at: Option<OffsetDateTime>,
    /// Width of the upright photo, pixels; null until the photo was ready once, and from a failure until it is ready again.
    #[schema(required, value_type = Option<f64>)]
    width: Option<u32>,
    /// Height of the upright photo, pixels; null until the photo was ready once, and from a failure until it is ready again.
    #[schema(required, value_type = Option<f64>)]
    height: Option<u32>,
    /// Make and model of the camera, from its EXIF data.
    #[schema(required)]
    camera: Option<String>,
    /// Runners whose bibs were not read, because the photo shows more than the service reads of one photo: the smallest.
    #[schema(value_type = f64)]
    skipped_runners: u32,
    /// The preview; null until the photo was ready once, and from a failure until it is ready again. While a ready photo is
    /// processed again it is that of before.
    #[schema(required, format = "uri")]
    url: Option<String>,
    /// The thumbnail, as the preview.
    #[schema(required, format = "uri")]
    thumbnail_url: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

/// Presigned download URLs of a photo.
pub(crate) struct PictureUrls {
    pub(crate) preview: String,
    pub(crate) thumbnail: String,
}

impl Photo {
    /// `urls` is `None` until the photo has pictures.
    pub(crate) fn new(photo: stored::Photo, urls: Option<PictureUrls>) -> Self {
        let (url, thumbnail_url) = urls.map(|urls| (urls.preview, urls.thumbnail)).unzip();
        Self {
            id: photo.id.to_string(),
            album_id: photo.album.0,
            filename: photo.filename,
            content_type: photo.content_type,
            state: photo.state.as_str(),
            failure: photo.failure.map(FailureReason::as_str),
            taken_at: photo.taken_at,
            width: photo.size.map(|size| size.width),
            height: photo.size.map(|size| size.height),
            camera: photo.camera,
            skipped_runners: photo.skipped_runners,
            url,
            thumbnail_url,
            created_at: photo.created_at,
            updated_at: photo.updated_at,
        }
    }

    fn example() -> Self {
        Self {
            id: sample::PHOTO.to_string(),
            album_id: sample::ALBUM.0,
            filename: "IMG_2041.jpg".to_owned(),
            content_type: "image/jpeg".to_owned(),
            state: PhotoState::Ready.as_str(),
            failure: None,
            taken_at: Some(sample::TIME),
            width: Some(6000),
            height: Some(4000),
            camera: Some("NIKON Z 9".to_owned()),
            skipped_runners: 0,
            url: Some(sample::PREVIEW_URL.to_owned()),
            thumbnail_url: Some(sample::THUMBNAIL_URL.to_owned()),
            created_at: sample::TIME,
            updated_at: sample::TIME,
        }
    }
}

/// A photo with the faces and texts detected in it.
#[derive(Serialize, ToSchema)]
pub(crate) struct PhotoDetail {
    /// The photo.
    #[serde(flatten)]
    pub(crate) photo: Photo,
    /// Detected faces; empty until the photo was ready once, and from a failure until it is ready again. While a ready photo is
    /// processed again they are those of before.
    pub(crate) faces: Vec<SeenFace>,
    /// Texts read, as the faces.
    pub(crate) texts: Vec<SeenText>,
}

impl Output for PhotoDetail {
    fn example() -> Self {
        let bounding_box = BoundingBox::example();
        let face = SeenFace { bounding_box, confidence: 98.12, indexed: true, reason: None };
        let bounding_box = BoundingBox::example();
        let reason = Some(UnindexedReason::LowConfidence.as_str());
        let text = SeenText {
            text: "1207".to_owned(),
            read_as: Some("I207".to_owned()),
            on_start_list: Some(true),
            wave: None,
            bounding_box,
            confidence: 71.4,
            indexed: false,
            reason,
            alternatives: vec![
                AlternativeText { text: "1207".to_owned(), confidence: 71.4 },
                AlternativeText { text: "7207".to_owned(), confidence: 28.2 },
            ],
        };
        Self { photo: Photo::example(), faces: vec![face], texts: vec![text] }
    }
}

/// A face detected in a photo.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SeenFace {
    bounding_box: BoundingBox,
    /// The detector's confidence that this is a face.
    #[schema(minimum = 0, maximum = 100)]
    confidence: f64,
    /// Whether searches find it.
    indexed: bool,
    /// Why searches do not find it; null when they do.
    #[schema(required, schema_with = reason_schema)]
    reason: Option<&'static str>,
}

impl From<stored::DetectedFace> for SeenFace {
    fn from(face: stored::DetectedFace) -> Self {
        Self {
            bounding_box: face.bounding_box.into(),
            confidence: round_percent(face.confidence * 100.0),
            indexed: face.unindexed.is_none(),
            reason: face.unindexed.map(UnindexedReason::as_str),
        }
    }
}

/// A text read in a photo.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SeenText {
    /// Upper-case letters and digits.
    text: String,
    /// What the characters said, where the start list says otherwise; null where it does not.
    #[schema(required)]
    read_as: Option<String>,
    /// Whether the text is a bib of the album's start list; null if there is none.
    #[schema(required)]
    on_start_list: Option<bool>,
    /// The wave of the bib, by the start list.
    #[schema(required)]
    wave: Option<String>,
    bounding_box: BoundingBox,
    /// The confidence of the text recognition.
    #[schema(minimum = 0, maximum = 100)]
    confidence: f64,
    /// Whether exact searches find it. Texts with the reason `PARTIAL` are found by fuzzy searches, those with
    /// `LOW_CONFIDENCE` too from a `confidence` of 50 on, those with `NOT_ON_START_LIST` by fuzzy searches for just this
    /// text.
    indexed: bool,
    /// Why exact searches do not find it; null when they do.
    #[schema(required, schema_with = reason_schema)]
    reason: Option<&'static str>,
    /// What the characters may say by the start list, at most 5 texts, the most probable first; empty where no list judges
    /// the text, and for texts that were read before the service kept what else they may say.
    alternatives: Vec<AlternativeText>,
}

/// What a text may be.
#[derive(Serialize, ToSchema)]
pub(crate) struct AlternativeText {
    /// A bib of the start list, or another text of upper-case letters and digits.
    text: String,
    /// Its probability by the list. Other than that of the text itself where the reader is surer than the list, or the
    /// characters are too small to be sure of.
    #[schema(minimum = 0, maximum = 100)]
    confidence: f64,
}

impl From<Alternative> for AlternativeText {
    fn from(alternative: Alternative) -> Self {
        let Alternative { text, confidence } = alternative;
        Self { text, confidence: round_percent(100.0 * confidence) }
    }
}

impl SeenText {
    /// The text as the response has it, by the entries of the album's start list and what the list makes of each text.
    pub(crate) fn new(
        text: stored::DetectedText,
        entries: &KnownEntries,
        explained: &[ExplainedText],
    ) -> Self {
        let is_this = |other: &&ExplainedText| {
            other.text.bounding_box == text.bounding_box && other.text.as_read() == text.as_read()
        };
        // None where the photo was processed between two looks at it.
        let alternatives = explained.iter().find(is_this).map(|it| it.alternatives.clone());
        let unindexed = match text.index_state {
            TextIndexState::Indexed => None,
            TextIndexState::Candidate => Some(UnindexedReason::LowConfidence),
            TextIndexState::Unindexed(reason) => Some(reason),
        };
        let entry = entries.as_ref().map(|entries| entries.get(&text.text));
        Self {
            on_start_list: entry.map(|entry| entry.is_some()),
            wave: entry.flatten().and_then(|entry| entry.wave.clone()),
            read_as: text.read.map(|read| read.text).filter(|read| *read != text.text),
            text: text.text,
            bounding_box: text.bounding_box.into(),
            confidence: round_percent(text.confidence * 100.0),
            indexed: unindexed.is_none(),
            reason: unindexed.map(UnindexedReason::as_str),
            alternatives: alternatives.unwrap_or_default().into_iter().map(Into::into).collect(),
        }
    }
}

/// A page of photos, oldest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PhotoPage {
    pub(crate) photos: Vec<Photo>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
    /// Number of photos on all pages.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: u64,
}

impl Output for PhotoPage {
    fn example() -> Self {
        let next_cursor = Some(PhotoPosition { photo: sample::PHOTO, total: None }.to_cursor());
        Self { photos: vec![Photo::example()], next_cursor, total: 1480 }
    }
}

/// Body of every operation on one photo.
pub(crate) struct OnePhoto {
    pub(crate) album: AlbumId,
    pub(crate) photo: String,
}

impl Input for OnePhoto {
    const NAME: &'static str = "OnePhoto";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let photo = fields.required("photoId", "The photo.", AnyText);
        Some(Self { album: album?, photo: photo? })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "photoId": sample::PHOTO })
    }
}

/// Body of `photos/photo/list`.
pub(crate) struct ListPhotos {
    pub(crate) album: AlbumId,
    pub(crate) state: Option<PhotoState>,
    pub(crate) after: Option<PhotoPosition>,
    pub(crate) limit: u32,
    pub(crate) camera: Option<String>,
    pub(crate) from: Option<OffsetDateTime>,
    pub(crate) until: Option<OffsetDateTime>,
}

impl Input for ListPhotos {
    const NAME: &'static str = "ListPhotos";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let states = OneOf { choices: &PhotoState::ALL, to_name: PhotoState::as_str };
        let state = fields.optional("state", "Only photos in this state.", states);
        let limit = fields.optional_or("limit", "Photos per page.", 100, Integer { min: 1, max: 1000 });
        let after = fields.optional("cursor", "`nextCursor` of the previous page.", photo_cursor());
        let after = after.and_then(|text| PhotoPosition::from_cursor(&text));
        let camera = "Only photos of this camera: see `albums/cameras/list`.";
        let camera = fields.optional("camera", camera, text(0, 200));
        let from = fields.optional("takenFrom", "Only photos taken at this time or later.", date_time());
        let until = fields.optional("takenUntil", "Only photos taken before this time.", date_time());
        Some(Self { album: album?, state, after, limit, camera, from, until })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "state": "failed", "limit": 100 })
    }
}

fn state_schema() -> Object {
    string_enum(PhotoState::ALL.map(PhotoState::as_str))
}

fn failure_schema() -> Object {
    nullable_string_enum(FailureReason::ALL.map(FailureReason::as_str))
}

fn reason_schema() -> Object {
    nullable_string_enum(UnindexedReason::ALL.map(UnindexedReason::as_str))
}
