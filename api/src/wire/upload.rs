//! Requests and responses for uploading photos: tickets and confirmations.

use photofinish_store::model::ids::AlbumId;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{EntryError, Output, read_album_id, sample};
use crate::errors::ApiError;
use crate::validate::input::{BodySize, Fields, Input, batch_units, nested};
use crate::validate::validators::{AnyText, ListOf, text};

/// Maximum number of entries of a batch.
pub(crate) const BATCH_LIMIT: usize = 1000;

/// The URL to which a photo is uploaded.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PhotoTicket {
    /// Accepts an HTTP PUT of the bytes, with the declared content type and without `x-api-key`.
    #[schema(format = "uri")]
    pub(crate) upload_url: String,
    /// The id of the photo.
    pub(crate) photo_id: String,
    /// When the URL expires.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires_at: OffsetDateTime,
}

impl Output for PhotoTicket {
    fn example() -> Self {
        let (upload_url, photo_id) = (sample::UPLOAD_URL.to_owned(), sample::PHOTO.to_string());
        Self { upload_url, photo_id, expires_at: sample::TIME }
    }
}

/// Body of `photos/photo/signed`, and an entry of its batch.
pub(crate) struct SignPhoto {
    pub(crate) album: AlbumId,
    pub(crate) file: PhotoFile,
}

/// A file to be uploaded.
#[derive(Clone)]
pub(crate) struct PhotoFile {
    pub(crate) filename: String,
    pub(crate) content_type: String,
}

impl Input for SignPhoto {
    const NAME: &'static str = "SignPhoto";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let file = PhotoFile::read(fields);
        Some(Self { album: album?, file: file? })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "filename": "IMG_2041.jpg", "contentType": "image/jpeg" })
    }
}

impl Input for PhotoFile {
    const NAME: &'static str = "PhotoFile";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let filename = fields.required("filename", "The file name.", text(1, 1024));
        // Browsers send an empty one of files that they do not know: that is no reason to refuse a whole batch.
        let description = "The media type of the image; 415 if it is not accepted, as an empty one.";
        let content_type = fields.required("contentType", description, text(0, 255));
        Some(Self { filename: filename?, content_type: content_type? })
    }

    fn example() -> Value {
        json!({ "filename": "IMG_2041.jpg", "contentType": "image/jpeg" })
    }
}

/// Body of `photos/photo/signed/batch`.
pub(crate) struct SignPhotos {
    pub(crate) album: AlbumId,
    pub(crate) files: Vec<PhotoFile>,
}

impl Input for SignPhotos {
    const NAME: &'static str = "SignPhotos";
    const SIZE: BodySize = BodySize::Batch;

    fn units(&self) -> u32 {
        batch_units(self.files.len())
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let entries = ListOf { item: nested(), min: 1, max: BATCH_LIMIT };
        let files = fields.required("entries", "The files to upload.", entries);
        Some(Self { album: album?, files: files? })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "entries": [PhotoFile::example()] })
    }
}

/// The results, in the order of the entries.
#[derive(Serialize, ToSchema)]
pub(crate) struct PhotoTickets {
    pub(crate) results: Vec<TicketResult>,
}

/// A ticket, or the reason why there is none.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TicketResult {
    /// Whether a ticket was issued.
    pub(crate) success: bool,
    /// The file name of the entry.
    pub(crate) filename: String,
    #[schema(nullable = false, format = "uri")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upload_url: Option<String>,
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) photo_id: Option<String>,
    #[schema(nullable = false)]
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<OffsetDateTime>,
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<EntryError>,
}

impl TicketResult {
    pub(crate) fn new(filename: String, outcome: Result<PhotoTicket, ApiError>) -> Self {
        let (ticket, error) = match outcome {
            Ok(ticket) => (Some(ticket), None),
            Err(error) => (None, Some(EntryError::from(&error))),
        };
        let expires_at = ticket.as_ref().map(|ticket| ticket.expires_at);
        let (upload_url, photo_id) = ticket.map(|ticket| (ticket.upload_url, ticket.photo_id)).unzip();
        Self { success: error.is_none(), filename, upload_url, photo_id, expires_at, error }
    }
}

impl Output for PhotoTickets {
    fn example() -> Self {
        Self { results: vec![TicketResult::new("IMG_2041.jpg".to_owned(), Ok(PhotoTicket::example()))] }
    }
}

/// Body of `photos/photo/success/batch`.
pub(crate) struct ConfirmPhotos {
    pub(crate) album: AlbumId,
    pub(crate) photos: Vec<String>,
}

impl Input for ConfirmPhotos {
    const NAME: &'static str = "ConfirmPhotos";
    const SIZE: BodySize = BodySize::Batch;

    fn units(&self) -> u32 {
        batch_units(self.photos.len())
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let ids = ListOf { item: AnyText, min: 1, max: BATCH_LIMIT };
        let photos = fields.required("photoIds", "The photos that were uploaded.", ids);
        Some(Self { album: album?, photos: photos? })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "photoIds": [sample::PHOTO] })
    }
}

/// The results, in the order of the request.
#[derive(Serialize, ToSchema)]
pub(crate) struct Confirmations {
    pub(crate) results: Vec<Confirmation>,
}

/// The result of confirming one photo.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Confirmation {
    /// The id in the request.
    pub(crate) photo_id: String,
    /// Whether the upload is confirmed.
    pub(crate) success: bool,
    /// For people.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<&'static str>,
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<EntryError>,
}

impl Confirmation {
    pub(crate) fn new(photo_id: String, outcome: Result<&'static str, ApiError>) -> Self {
        match outcome {
            Ok(message) => Self { photo_id, success: true, message: Some(message), error: None },
            Err(error) => {
                Self { photo_id, success: false, message: None, error: Some(EntryError::from(&error)) }
            }
        }
    }
}

impl Output for Confirmations {
    fn example() -> Self {
        Self {
            results: vec![Confirmation::new(sample::PHOTO.to_string(), Ok("Photo queued for processing"))],
        }
    }
}
