//! The JSON bodies of requests (parsed by [`crate::validate::input`]) and responses.
//!
//! They are separate from the store's types on purpose: the contract does not change when a column does.

pub(crate) mod album;
mod album_rules;
pub(crate) mod config;
pub(crate) mod console;
pub(crate) mod cost;
pub(crate) mod credit;
pub(crate) mod cursor;
pub(crate) mod delivery;
pub(crate) mod download;
pub(crate) mod erasure;
pub(crate) mod erasure_requests;
pub(crate) mod event;
pub(crate) mod gallery;
pub(crate) mod photo;
pub(crate) mod progress;
pub(crate) mod search;
pub(crate) mod start_list;
pub(crate) mod start_list_entries;
pub(crate) mod start_list_summary;
pub(crate) mod upload;
pub(crate) mod visitor;
pub(crate) mod watermark;
pub(crate) mod webhook;

use photofinish_store::model::ids::{
    AlbumId, DeliveryId, ErasureId, EventId, KeyId, OrganizationId, PhotoId, ProbeId, ReportId, WebhookId,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};
use uuid::{Uuid, uuid};

use crate::errors::ApiError;
use crate::validate::input::Fields;
use crate::validate::validators::{self, typed_schema};

/// The body of a successful response.
pub(crate) trait Output: Serialize + ToSchema {
    /// Returns the example in the document.
    fn example() -> Self;
}

/// Confirms that an operation succeeded.
#[derive(Serialize, ToSchema)]
pub(crate) struct Acknowledgement {
    /// Always true; a failure is an error response.
    #[schema(example = true)]
    success: bool,
    /// What was done, for people.
    message: &'static str,
}

impl Acknowledgement {
    pub(crate) fn new(message: &'static str) -> Self {
        Self { success: true, message }
    }
}

impl Output for Acknowledgement {
    fn example() -> Self {
        Self::new("Done")
    }
}

/// Why one entry of a batch failed.
#[derive(Serialize, ToSchema)]
pub(crate) struct EntryError {
    /// As in the error table.
    #[schema(example = "NOT_FOUND")]
    pub(crate) code: String,
    /// As in the error table.
    #[schema(value_type = f64, example = 404)]
    pub(crate) status: u16,
    /// For people.
    #[schema(example = "Not Found")]
    pub(crate) message: String,
    /// As in an error body.
    #[schema(value_type = Object)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Value>,
}

impl From<&ApiError> for EntryError {
    fn from(error: &ApiError) -> Self {
        Self {
            code: error.kind().code().to_owned(),
            status: error.kind().status(),
            message: error.message().to_owned(),
            data: error.data().cloned(),
        }
    }
}

/// A rectangle in fractions (0 to 1) of the upright photo.
#[derive(Serialize, ToSchema)]
pub(crate) struct BoundingBox {
    /// Distance of the top edge from the top of the photo.
    #[schema(minimum = 0, maximum = 1)]
    top: f64,
    /// Distance of the left edge from the left of the photo.
    #[schema(minimum = 0, maximum = 1)]
    left: f64,
    /// Width, as a fraction of the photo's width.
    #[schema(minimum = 0, maximum = 1)]
    width: f64,
    /// Height, as a fraction of the photo's height.
    #[schema(minimum = 0, maximum = 1)]
    height: f64,
}

impl BoundingBox {
    pub(crate) fn example() -> Self {
        Self { top: 0.21, left: 0.4, width: 0.08, height: 0.11 }
    }
}

impl From<photofinish_store::model::photo::BoundingBox> for BoundingBox {
    fn from(stored: photofinish_store::model::photo::BoundingBox) -> Self {
        // Six decimals are finer than a hundredth of a pixel.
        let round = |fraction: f64| (fraction.clamp(0.0, 1.0) * 1e6).round() / 1e6;
        Self {
            top: round(stored.top),
            left: round(stored.left),
            width: round(stored.width),
            height: round(stored.height),
        }
    }
}

/// Rounds a confidence to two decimals, after limiting it to 0 to 100.
pub(crate) fn round_percent(confidence: f64) -> f64 {
    (confidence.clamp(0.0, 100.0) * 100.0).round() / 100.0
}

/// Reads the field `albumId`.
pub(crate) fn read_album_id(fields: &mut Fields<'_>) -> Option<AlbumId> {
    fields.required("albumId", "The album.", validators::uuid())
}

/// Returns the schema of a string that is one of `names`.
pub(crate) fn string_enum<const N: usize>(names: [&'static str; N]) -> Object {
    typed_schema(Type::String).enum_values(Some(names)).build()
}

/// Returns the schema of a string that is one of `names`, or null.
pub(crate) fn nullable_string_enum<const N: usize>(names: [&'static str; N]) -> Object {
    let values = names.into_iter().map(Value::from).chain([Value::Null]);
    let kinds = SchemaType::Array(vec![Type::String, Type::Null]);
    ObjectBuilder::new().schema_type(kinds).enum_values(Some(values)).build()
}

/// Ids, times and URLs that all examples use.
pub(crate) mod sample {
    use super::{
        AlbumId, DeliveryId, ErasureId, EventId, KeyId, OrganizationId, PhotoId, ProbeId, ReportId, Uuid,
        WebhookId, uuid,
    };
    use time::OffsetDateTime;
    use time::macros::datetime;

    const ALBUM_UUID: Uuid = uuid!("01932c07-93a1-7c40-8b1f-2d5e6f708192");
    const PHOTO_UUID: Uuid = uuid!("01932c09-10b2-7d51-9c2a-3e6f708192a3");
    const PROBE_UUID: Uuid = uuid!("01932c0a-21c3-7e62-8d3b-4f708192a3b4");
    const ORGANIZATION_UUID: Uuid = uuid!("01932bff-71e0-7a10-9f00-0a1b2c3d4e5f");
    const KEY_UUID: Uuid = uuid!("01932bff-82f1-7b21-8e11-1b2c3d4e5f60");

    const EVENT_UUID: Uuid = uuid!("01932c0b-32d4-7f73-9e4c-508192a3b4c5");

    const WEBHOOK_UUID: Uuid = uuid!("01932c0c-43e5-7084-8f5d-6192a3b4c5d6");
    const DELIVERY_UUID: Uuid = uuid!("01932c0d-54f6-7195-906e-72a3b4c5d6e7");

    const ERASURE_UUID: Uuid = uuid!("01932c0e-65f7-72a6-8a7f-83b4c5d6e7f8");
    const REPORT_UUID: Uuid = uuid!("01932c0f-7608-73b7-8b80-94c5d6e7f809");

    pub(crate) const ALBUM: AlbumId = AlbumId(ALBUM_UUID);
    pub(crate) const PHOTO: PhotoId = PhotoId(PHOTO_UUID);
    pub(crate) const PROBE: ProbeId = ProbeId(PROBE_UUID);
    pub(crate) const ORGANIZATION: OrganizationId = OrganizationId(ORGANIZATION_UUID);
    pub(crate) const KEY: KeyId = KeyId(KEY_UUID);
    pub(crate) const EVENT: EventId = EventId(EVENT_UUID);
    pub(crate) const WEBHOOK: WebhookId = WebhookId(WEBHOOK_UUID);
    pub(crate) const DELIVERY: DeliveryId = DeliveryId(DELIVERY_UUID);
    pub(crate) const ERASURE: ErasureId = ErasureId(ERASURE_UUID);
    pub(crate) const REPORT: ReportId = ReportId(REPORT_UUID);
    pub(crate) const TIME: OffsetDateTime = datetime!(2026-10-04 09:41:07 UTC);
    pub(crate) const UPLOAD_URL: &str = "https://photos.example/storage/o/a/p?signature=3f9c";
    pub(crate) const PREVIEW_URL: &str = "https://photos.example/storage/preview.jpg?signature=77ab";
    pub(crate) const THUMBNAIL_URL: &str = "https://photos.example/storage/thumbnail.jpg?signature=90de";
}
