//! Galleries, as organizers see them.

use photofinish_store::model::gallery::{
    Downloads, Gallery as Stored, GallerySettings, Removal, ReportKind, StoredReport,
};
use photofinish_store::model::ids::{AlbumId, ReportId};
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;
use uuid::Uuid;

use super::{BoundingBox, Output, read_album_id, sample, string_enum};
use crate::validate::input::{Fields, Input};
use crate::validate::times::date_time;
use crate::validate::validators::{Boolean, Integer, Nullable, OneOf, text, uuid, web_uri};

/// Where the page of a gallery is, and a QR code of that.
pub(crate) struct GalleryUrls {
    pub(crate) page: String,
    pub(crate) qr_code: String,
}

/// The public page of an album.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gallery {
    album_id: Uuid,
    /// Whether visitors see it.
    enabled: bool,
    /// Its address: whoever has it may look. Null before it was first enabled.
    #[schema(required, format = "uri")]
    url: Option<String>,
    /// A QR code of the address (SVG). Null before it was first enabled.
    #[schema(required, format = "uri")]
    qr_url: Option<String>,
    /// Whether visitors find photos by bib.
    bib_search: bool,
    /// Whether visitors find photos by selfie, after their consent.
    selfie_search: bool,
    /// Whether visitors see all photos.
    browse: bool,
    /// What visitors may download.
    #[schema(schema_with = downloads_schema)]
    downloads: String,
    /// Whether visitors see and download pictures with the album's watermark alone, if it has one.
    watermark: bool,
    /// What happens when a visitor asks to be removed.
    #[schema(schema_with = removal_schema)]
    removal: String,
    /// From when on it says that it is over.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
    /// Searches of one visitor on a day.
    #[schema(value_type = f64, minimum = 1, maximum = 10000)]
    searches_per_visitor: u32,
    /// Whom visitors write to.
    #[schema(required)]
    contact: Option<String>,
    /// Where the organizer says what happens with personal data.
    #[schema(required, format = "uri")]
    privacy_url: Option<String>,
    /// Words of the organizer above the photos.
    #[schema(required)]
    intro: Option<String>,
    /// How often it was opened.
    #[schema(value_type = f64, minimum = 0)]
    opened: u64,
    /// How often it was searched.
    #[schema(value_type = f64, minimum = 0)]
    searches: u64,
}

/// Returns the schema of what visitors may download.
pub(super) fn downloads_schema() -> Object {
    string_enum(Downloads::ALL.map(Downloads::as_str))
}

fn removal_schema() -> Object {
    string_enum(Removal::ALL.map(Removal::as_str))
}

impl Gallery {
    /// A gallery with its address.
    pub(crate) fn new(stored: Stored, urls: GalleryUrls) -> Self {
        let Stored { album, enabled, settings, expires_at, opened, searches, .. } = stored;
        let gallery = Self::of_settings(album, settings);
        let GalleryUrls { page, qr_code } = urls;
        Self { enabled, url: Some(page), qr_url: Some(qr_code), expires_at, opened, searches, ..gallery }
    }

    /// The gallery of an album that has had none.
    pub(crate) fn of_settings(album: AlbumId, settings: GallerySettings) -> Self {
        Self {
            album_id: album.0,
            enabled: false,
            url: None,
            qr_url: None,
            bib_search: settings.bib_search,
            selfie_search: settings.selfie_search,
            browse: settings.browse,
            downloads: settings.downloads.as_str().to_owned(),
            watermark: settings.watermark,
            removal: settings.removal.as_str().to_owned(),
            expires_at: None,
            searches_per_visitor: settings.searches_per_visitor,
            contact: settings.contact,
            privacy_url: settings.privacy_url,
            intro: settings.intro,
            opened: 0,
            searches: 0,
        }
    }
}

impl Output for Gallery {
    fn example() -> Self {
        Self {
            enabled: true,
            url: Some("https://photos.example/g/4fQ2aBc8dEfGhIjKlMnOpQ".to_owned()),
            qr_url: Some("https://photos.example/g/4fQ2aBc8dEfGhIjKlMnOpQ/qr.svg".to_owned()),
            expires_at: Some(sample::TIME),
            contact: Some("privacy@race.example".to_owned()),
            opened: 812,
            searches: 2954,
            ..Self::of_settings(sample::ALBUM, GallerySettings::default())
        }
    }
}

/// What a visitor said of a photo.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GalleryReport {
    id: Uuid,
    photo_id: Uuid,
    /// The faces in it that the visitor asks to be removed; of other reports none.
    faces: Vec<BoundingBox>,
    /// The bib by which a visitor without a selfie asks to be removed; null in other reports. Anybody knows a bib: look whose it
    /// is before `people/erase` with it.
    #[schema(required)]
    bib: Option<String>,
    /// `not_me`: the visitor is not in it; `report`: it should not be there; `removal`: the visitor is in it and asks to be
    /// removed, which is said of all their photos at one time; may grow.
    kind: &'static str,
    /// In the visitor's words; may be empty.
    note: String,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<StoredReport> for GalleryReport {
    fn from(stored: StoredReport) -> Self {
        let (bib, note) = match stored.bib() {
            Some(bib) => (Some(bib.to_owned()), String::new()),
            None => (None, stored.note),
        };
        Self {
            id: stored.id.0,
            photo_id: stored.photo.0,
            faces: stored.faces.into_iter().map(BoundingBox::from).collect(),
            bib,
            kind: stored.kind.as_str(),
            note,
            created_at: stored.created_at,
        }
    }
}

/// The newest reports of visitors, at most 1,000.
#[derive(Serialize, ToSchema)]
pub(crate) struct GalleryReports {
    pub(crate) reports: Vec<GalleryReport>,
}

impl Output for GalleryReports {
    fn example() -> Self {
        let report = GalleryReport {
            id: sample::REPORT.0,
            faces: Vec::new(),
            bib: None,
            photo_id: sample::PHOTO.0,
            kind: ReportKind::NotMe.as_str(),
            note: String::new(),
            created_at: sample::TIME,
        };
        Self { reports: vec![report] }
    }
}

/// Body of `albums/gallery/reports/dismiss`.
pub(crate) struct OneReport {
    pub(crate) album: AlbumId,
    pub(crate) report: ReportId,
}

impl Input for OneReport {
    const NAME: &'static str = "OneReport";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let description = "The `id` of a report; of a request to be removed that of any of its photos.";
        let report = fields.required("reportId", description, uuid());
        Some(Self { album: album?, report: ReportId(report?) })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "reportId": sample::REPORT })
    }
}

/// Body of `albums/gallery/update`.
pub(crate) struct UpdateGallery {
    pub(crate) album: AlbumId,
    pub(crate) enabled: Option<bool>,
    pub(crate) new_link: bool,
    pub(crate) bib_search: Option<bool>,
    pub(crate) selfie_search: Option<bool>,
    pub(crate) browse: Option<bool>,
    pub(crate) downloads: Option<Downloads>,
    pub(crate) watermark: Option<bool>,
    pub(crate) removal: Option<Removal>,
    pub(crate) expires_at: Option<Option<OffsetDateTime>>,
    pub(crate) searches_per_visitor: Option<u32>,
    pub(crate) contact: Option<Option<String>>,
    pub(crate) privacy_url: Option<Option<String>>,
    pub(crate) intro: Option<Option<String>>,
}

impl Input for UpdateGallery {
    const NAME: &'static str = "UpdateGallery";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let enabled = fields.optional("enabled", "Whether visitors see it.", Boolean);
        let new_link = "True to make another address; the one before ends.";
        let new_link = fields.optional("newLink", new_link, Boolean);
        let bib_search = fields.optional("bibSearch", "Whether visitors find photos by bib.", Boolean);
        let selfie_search = "Whether visitors find photos by selfie. Needs `contact` and `privacyUrl`: 422 with \
            `data.declineCode` `GALLERY_CONTACT_MISSING` without them, `FACE_SEARCH_DISABLED` where the album has no faces.";
        let selfie_search = fields.optional("selfieSearch", selfie_search, Boolean);
        let browse = fields.optional("browse", "Whether visitors see all photos.", Boolean);
        let choices = OneOf { choices: &Downloads::ALL, to_name: Downloads::as_str };
        let downloads = fields.optional("downloads", "What visitors may download.", choices);
        let watermark = "Whether visitors see pictures with the album's watermark alone, if it has one; then they download no \
            originals either.";
        let watermark = fields.optional("watermark", watermark, Boolean);
        let choices = OneOf { choices: &Removal::ALL, to_name: Removal::as_str };
        let removal = "What happens when a visitor asks to be removed: `request` tells you in which photos the selfie's face is \
            (`albums/gallery/reports`), and you decide; `immediate` erases these faces at once, on the word of whoever has a \
            photo of them. `request` if never set.";
        let removal = fields.optional("removal", removal, choices);
        let expires_at = "From when on it says that it is over; null for never. If missing, 90 days after it is enabled without an \
            end, or with one that is over.";
        let expires_at = fields.optional("expiresAt", expires_at, Nullable(date_time()));
        let searches = "Searches of one visitor on a day; a network has ten times as many.";
        let searches = fields.optional("searchesPerVisitor", searches, Integer { min: 1, max: 10_000 });
        let contact = fields.optional("contact", "Whom visitors write to.", Nullable(text(1, 200)));
        let privacy_url = "Where you say what happens with personal data.";
        let privacy_url = fields.optional("privacyUrl", privacy_url, Nullable(web_uri()));
        let intro = "Words above the photos; text, never HTML.";
        let intro = fields.optional("intro", intro, Nullable(text(0, 2000)));
        Some(Self {
            album: album?,
            enabled,
            new_link: new_link.unwrap_or(false),
            bib_search,
            selfie_search,
            browse,
            downloads,
            watermark,
            removal,
            expires_at,
            searches_per_visitor: searches,
            contact,
            privacy_url,
            intro,
        })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "enabled": true })
    }
}
