//! Downloads of many photos, and which cameras took the photos of an album.

use photofinish_store::model::download::DownloadFile;
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::photo::CameraCount as StoredCamera;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{Output, read_album_id, sample};
use crate::validate::bibs::typed_bib;
use crate::validate::input::{BodySize, Fields, Input, batch_units};
use crate::validate::issues::code;
use crate::validate::validators::{AnyText, ListOf, OneOf, uuid};

/// Most photos of a download.
pub(crate) const MAX_PHOTOS: usize = 2000;

/// Where photos can be downloaded as a ZIP file.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DownloadTicket {
    /// Answers GET with the file, more than once and without a key: the URL is secret.
    #[schema(format = "uri")]
    pub(crate) url: String,
    /// When the URL expires.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires_at: OffsetDateTime,
    /// Photos in the file.
    #[schema(value_type = f64, minimum = 1, maximum = 2000)]
    pub(crate) files: usize,
    /// Of the photos together.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) bytes: u64,
}

impl Output for DownloadTicket {
    fn example() -> Self {
        Self {
            url: "https://photos.example/downloads/3kTMd9eJQ2aBc8dEfGhIjKlMnOpQrStUvWxYz01234".to_owned(),
            expires_at: sample::TIME,
            files: 14,
            bytes: 9_461_760,
        }
    }
}

/// Which photos are downloaded: one of these.
pub(crate) enum Selection {
    Photos(Vec<PhotoId>),
    Bib(String),
    Selfie(String),
}

impl Selection {
    /// What it costs of a limit. Of how many photos a search is, only its handler knows.
    fn units(&self) -> u32 {
        match self {
            Self::Photos(photos) => batch_units(photos.len()),
            Self::Bib(_) | Self::Selfie(_) => 1,
        }
    }
}

/// What a request says about which photos are downloaded.
struct Selections {
    photos: Option<Vec<PhotoId>>,
    bib: Option<String>,
    selfie: Option<String>,
}

impl Selections {
    /// Returns the one that there is, and none with an issue if there is not exactly one of the fields with these names.
    fn only_one(self, fields: &mut Fields<'_>, names: [&str; 3]) -> Option<Selection> {
        let present = fields.count_present(&names);
        fields.check_together(|report| {
            let code = if present == 0 { code::REQUIRED } else { code::INVALID_VALUE };
            // One that is invalid is there, and has an issue of its own.
            if present != 1 {
                let quoted = names.map(|name| format!("`{name}`")).join(", ");
                report.add(code, format!("{quoted}: exactly one is required"));
            }
        });
        match self {
            Self { photos: Some(photos), bib: None, selfie: None } => Some(Selection::Photos(photos)),
            Self { photos: None, bib: Some(bib), selfie: None } => Some(Selection::Bib(bib)),
            Self { photos: None, bib: None, selfie: Some(selfie) } => Some(Selection::Selfie(selfie)),
            _ => None,
        }
    }
}

/// Body of `photos/download/create`.
pub(crate) struct CreateDownload {
    pub(crate) album: AlbumId,
    pub(crate) selection: Selection,
    pub(crate) file: DownloadFile,
}

impl Input for CreateDownload {
    const NAME: &'static str = "CreateDownload";
    const SIZE: BodySize = BodySize::Ids;

    fn units(&self) -> u32 {
        self.selection.units()
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let ids = ListOf { item: uuid(), min: 1, max: MAX_PHOTOS };
        let photos =
            fields.optional("photoIds", "These photos. Exactly one of `photoIds`, `bib` and `imageId`.", ids);
        let bib = fields.optional("bib", "The photos that a search for this bib finds.", typed_bib(32));
        let description = "The photos that a search with this selfie finds.";
        let selfie = fields.optional("imageId", description, AnyText);
        let files = OneOf { choices: &DownloadFile::ALL, to_name: DownloadFile::as_str };
        let description =
            "`preview`, `marked` (with the album's watermark) or `original`; `preview` if missing.";
        let file = fields.optional("size", description, files);
        let selection = Selections { photos, bib, selfie }.only_one(fields, ["photoIds", "bib", "imageId"]);
        Some(Self { album: album?, selection: selection?, file: file.unwrap_or_default() })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "bib": "1207" })
    }
}

/// Body of `gallery/download/create`.
pub(crate) struct CreateGalleryDownload {
    pub(crate) selection: Selection,
}

impl Input for CreateGalleryDownload {
    const NAME: &'static str = "CreateGalleryDownload";
    const SIZE: BodySize = BodySize::Ids;

    fn units(&self) -> u32 {
        self.selection.units()
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let ids = ListOf { item: uuid(), min: 1, max: MAX_PHOTOS };
        let photos = fields.optional("photoIds", "These photos.", ids);
        let bib = fields.optional("text", "The photos of this bib.", typed_bib(32));
        let selfie = fields.optional("imageId", "The photos of this selfie.", AnyText);
        let selection = Selections { photos, bib, selfie }.only_one(fields, ["photoIds", "text", "imageId"]);
        Some(Self { selection: selection? })
    }

    fn example() -> Value {
        json!({ "text": "1207" })
    }
}

/// A camera.
#[derive(Serialize, ToSchema)]
pub(crate) struct CameraCount {
    /// Make and model, from EXIF data; null for photos that do not say.
    #[schema(required)]
    camera: Option<String>,
    /// How many photos of the album it took.
    #[schema(value_type = f64, minimum = 1)]
    photos: u64,
}

impl From<StoredCamera> for CameraCount {
    fn from(stored: StoredCamera) -> Self {
        Self { camera: stored.camera, photos: stored.photos }
    }
}

/// The cameras of an album, at most 1,000.
#[derive(Serialize, ToSchema)]
pub(crate) struct Cameras {
    pub(crate) cameras: Vec<CameraCount>,
}

impl Output for Cameras {
    fn example() -> Self {
        Self { cameras: vec![CameraCount { camera: Some("Canon EOS R5".to_owned()), photos: 1204 }] }
    }
}
