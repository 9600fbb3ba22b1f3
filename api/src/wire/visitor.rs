//! What visitors of a gallery send and get: as partners, but with words in place of confidences.

use photofinish_store::model::gallery::{OpenGallery, ReportKind};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::Photo;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;
use uuid::Uuid;

use super::gallery::downloads_schema;
use super::{Output, nullable_string_enum, sample};
use crate::validate::bibs::typed_bib;
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{AnyText, Boolean, Integer, OneOf, text, uuid};
use crate::wire::photo::PictureUrls;

/// The version of the words that visitors agree to before a selfie is compared. Raised when they change.
pub(crate) const CONSENT_VERSION: u32 = 1;

/// A gallery as visitors see it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublicGallery {
    title: String,
    #[schema(required)]
    intro: Option<String>,
    bib_search: bool,
    selfie_search: bool,
    browse: bool,
    #[schema(schema_with = downloads_schema)]
    downloads: String,
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
    #[schema(required)]
    contact: Option<String>,
    #[schema(required)]
    privacy_url: Option<String>,
    consent_version: u32,
    /// How long a selfie and its description are kept at most, seconds.
    selfie_seconds: f64,
    /// Photos that can be found.
    #[schema(value_type = f64, minimum = 0)]
    photos: u64,
}

impl PublicGallery {
    pub(crate) fn new(open: OpenGallery, selfie_seconds: f64, photos: u64) -> Self {
        let OpenGallery { gallery, album } = open;
        let settings = gallery.settings;
        Self {
            title: album.title,
            intro: settings.intro,
            bib_search: settings.bib_search && album.config.text.enabled,
            selfie_search: settings.selfie_search && album.config.face.enabled,
            browse: settings.browse,
            downloads: settings.downloads.as_str().to_owned(),
            expires_at: gallery.expires_at,
            contact: settings.contact,
            privacy_url: settings.privacy_url,
            consent_version: CONSENT_VERSION,
            selfie_seconds,
            photos,
        }
    }
}

impl Output for PublicGallery {
    fn example() -> Self {
        Self {
            title: "Lake Marathon 2026".to_owned(),
            intro: None,
            bib_search: true,
            selfie_search: true,
            browse: false,
            downloads: "preview".to_owned(),
            expires_at: Some(sample::TIME),
            contact: Some("privacy@race.example".to_owned()),
            privacy_url: None,
            consent_version: CONSENT_VERSION,
            selfie_seconds: 3600.0,
            photos: 1477,
        }
    }
}

/// A photo of a gallery.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublicPhoto {
    pub(crate) id: Uuid,
    /// The preview.
    url: String,
    thumbnail_url: String,
    width: u32,
    height: u32,
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    taken_at: Option<OffsetDateTime>,
    /// Why it is there; null where all photos are shown.
    #[schema(required, schema_with = why_schema)]
    why: Option<&'static str>,
    /// How sure that is; null where all photos are shown.
    #[schema(required, schema_with = certainty_schema)]
    certainty: Option<&'static str>,
    /// The bib's wave, by the start list.
    #[schema(required)]
    wave: Option<String>,
}

/// Why a photo is shown.
#[derive(Clone, Default)]
pub(crate) struct Reason {
    pub(crate) why: Option<&'static str>,
    pub(crate) confidence: Option<f64>,
    pub(crate) wave: Option<String>,
}

fn why_schema() -> Object {
    nullable_string_enum(["bib", "face", "face and bib"])
}

fn certainty_schema() -> Object {
    nullable_string_enum(["sure", "likely", "maybe"])
}

impl PublicPhoto {
    pub(crate) fn new(photo: &Photo, urls: PictureUrls, reason: Reason) -> Self {
        let (width, height) = photo.size.map_or((3, 2), |size| (size.width, size.height));
        Self {
            id: photo.id.0,
            url: urls.preview,
            thumbnail_url: urls.thumbnail,
            width,
            height,
            taken_at: photo.taken_at,
            why: reason.why,
            certainty: reason.confidence.map(certainty),
            wave: reason.wave,
        }
    }
}

/// Says in a word what a calibrated confidence means.
fn certainty(confidence: f64) -> &'static str {
    match confidence {
        90.0.. => "sure",
        70.0.. => "likely",
        _ => "maybe",
    }
}

/// A page of photos.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublicPhotos {
    pub(crate) photos: Vec<PublicPhoto>,
    /// Of this page: with it the page comes again, with new URLs, and counts as no other search. Null for a
    /// first page that nobody counts.
    #[schema(required)]
    pub(crate) cursor: Option<String>,
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: u64,
}

impl Output for PublicPhotos {
    fn example() -> Self {
        let photo = PublicPhoto {
            id: sample::PHOTO.0,
            url: sample::PREVIEW_URL.to_owned(),
            thumbnail_url: sample::THUMBNAIL_URL.to_owned(),
            width: 6000,
            height: 4000,
            taken_at: Some(sample::TIME),
            why: Some("bib"),
            certainty: Some(certainty(97.0)),
            wave: None,
        };
        Self { photos: vec![photo], cursor: None, next_cursor: None, total: 1 }
    }
}

/// Where a photo can be downloaded for some minutes.
#[derive(Serialize, ToSchema)]
pub(crate) struct PublicDownload {
    pub(crate) url: String,
    pub(crate) filename: String,
}

impl Output for PublicDownload {
    fn example() -> Self {
        Self { url: sample::PREVIEW_URL.to_owned(), filename: "IMG_2041.jpg".to_owned() }
    }
}

/// What erasing a face does, or did.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublicErasure {
    /// Faces in photos.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) faces: u64,
    /// Sent back to confirm; null after that.
    #[schema(required)]
    pub(crate) confirm: Option<String>,
    /// The receipt's id; null before, and where the organizer decides.
    #[schema(required)]
    pub(crate) receipt_id: Option<Uuid>,
    /// Whether the organizer decides: then a confirmation is passed on to them, and nothing is erased yet.
    pub(crate) is_request: bool,
}

impl Output for PublicErasure {
    fn example() -> Self {
        Self { faces: 14, confirm: None, receipt_id: Some(sample::ERASURE.0), is_request: false }
    }
}

/// Body of `gallery/search/text` and `gallery/erase/request`.
pub(crate) struct SearchGallery {
    pub(crate) text: String,
    pub(crate) cursor: Option<String>,
}

impl Input for SearchGallery {
    const NAME: &'static str = "SearchGallery";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let text = fields.required("text", "A bib.", typed_bib(32));
        let cursor =
            "`nextCursor` of the previous page, or `cursor` of one of the search that is to come again.";
        let cursor = fields.optional("cursor", cursor, AnyText);
        Some(Self { text: text?, cursor })
    }

    fn example() -> Value {
        json!({ "text": "1207" })
    }
}

/// Body of `gallery/search/face/signed`.
pub(crate) struct AgreeToSelfie {
    pub(crate) consent: bool,
    pub(crate) version: u32,
    pub(crate) language: String,
}

impl Input for AgreeToSelfie {
    const NAME: &'static str = "AgreeToSelfie";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let consent = fields.required("consent", "Whether the visitor agrees.", Boolean);
        let version = Integer { min: 1, max: 1_000_000 };
        let version = fields.required("consentVersion", "Of the words that were shown.", version);
        let language = fields.required("language", "Of the words that were shown.", text(2, 20));
        Some(Self { consent: consent?, version: version?, language: language? })
    }

    fn example() -> Value {
        json!({ "consent": true, "consentVersion": CONSENT_VERSION, "language": "de" })
    }
}

/// A selfie, and where its hits go on.
pub(crate) struct OneSelfie {
    pub(crate) image: String,
    pub(crate) cursor: Option<String>,
    pub(crate) confirm: Option<String>,
}

impl Input for OneSelfie {
    const NAME: &'static str = "OneSelfie";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let image = fields.required("imageId", "The selfie.", AnyText);
        let cursor = fields.optional("cursor", "`nextCursor` of the previous page.", AnyText);
        let confirm = fields.optional("confirm", "What was shown before an erasure.", text(1, 200));
        Some(Self { image: image?, cursor, confirm })
    }

    fn example() -> Value {
        json!({ "imageId": sample::PROBE })
    }
}

/// Body of `gallery/photos/list`.
pub(crate) struct BrowseGallery {
    pub(crate) cursor: Option<String>,
}

impl Input for BrowseGallery {
    const NAME: &'static str = "BrowseGallery";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self { cursor: fields.optional("cursor", "`nextCursor` of the previous page.", AnyText) })
    }

    fn example() -> Value {
        json!({})
    }
}

/// Body of `gallery/download`.
pub(crate) struct OnePublicPhoto {
    pub(crate) photo: PhotoId,
}

impl Input for OnePublicPhoto {
    const NAME: &'static str = "OnePublicPhoto";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self { photo: fields.required("photoId", "The photo.", uuid())? })
    }

    fn example() -> Value {
        json!({ "photoId": sample::PHOTO })
    }
}

/// Body of `gallery/report`.
pub(crate) struct ReportPhoto {
    pub(crate) photo: PhotoId,
    pub(crate) kind: ReportKind,
    pub(crate) note: String,
}

impl Input for ReportPhoto {
    const NAME: &'static str = "ReportPhoto";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let photo = fields.required("photoId", "The photo.", uuid());
        let kinds = OneOf { choices: &ReportKind::OF_PHOTO, to_name: ReportKind::as_str };
        let kind = fields.required("kind", "What is wrong with it.", kinds);
        let note = fields.optional("note", "In your words.", text(0, 1000));
        Some(Self { photo: photo?, kind: kind?, note: note.unwrap_or_default() })
    }

    fn example() -> Value {
        json!({ "photoId": sample::PHOTO, "kind": "not_me" })
    }
}
