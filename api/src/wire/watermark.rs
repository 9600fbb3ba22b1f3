//! Watermarks, as organizers see them.

use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::watermark::{WatermarkPlacement, WatermarkPosition};
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;
use uuid::Uuid;

use super::{Output, read_album_id, sample, string_enum};
use crate::validate::input::{Fields, Input, nested};
use crate::validate::validators::{AnyText, Nullable, Number, OneOf};

/// The watermark of an album, and which photos show it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Watermark {
    pub(crate) album_id: Uuid,
    /// Null without one.
    #[schema(required)]
    pub(crate) watermark: Option<WatermarkSettings>,
    /// Photos whose marked picture shows it.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) photos_marked: u64,
    /// Photos that were processed without it, and are marked in the background.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) photos_left: u64,
    /// The newest marked picture.
    #[schema(required, format = "uri")]
    pub(crate) sample_url: Option<String>,
}

impl Output for Watermark {
    fn example() -> Self {
        Self {
            album_id: sample::ALBUM.0,
            watermark: Some(WatermarkPlacement::default().into()),
            photos_marked: 1477,
            photos_left: 0,
            sample_url: Some(sample::PREVIEW_URL.to_owned()),
        }
    }
}

/// How a watermark is drawn.
#[derive(Serialize, ToSchema)]
pub(crate) struct WatermarkSettings {
    /// Where; `tile` is again and again, over the whole picture.
    #[schema(schema_with = position_schema)]
    position: &'static str,
    /// How much it covers; multiplied with the picture's own alpha.
    #[schema(minimum = 0, maximum = 1)]
    opacity: f64,
    /// Its width as a part of the picture's.
    #[schema(minimum = 0.05, maximum = 1)]
    scale: f64,
}

impl From<WatermarkPlacement> for WatermarkSettings {
    fn from(placement: WatermarkPlacement) -> Self {
        let WatermarkPlacement { position, opacity, scale } = placement;
        Self { position: position_name(position), opacity, scale }
    }
}

fn position_name(position: WatermarkPosition) -> &'static str {
    match position {
        WatermarkPosition::Tile => "tile",
        WatermarkPosition::Center => "center",
        WatermarkPosition::TopLeft => "topLeft",
        WatermarkPosition::TopRight => "topRight",
        WatermarkPosition::BottomLeft => "bottomLeft",
        WatermarkPosition::BottomRight => "bottomRight",
    }
}

fn position_schema() -> Object {
    string_enum(WatermarkPosition::ALL.map(position_name))
}

/// The URL to which the picture of a watermark is uploaded.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WatermarkTicket {
    /// Accepts an HTTP PUT of a PNG with the content type `image/png` and without `x-api-key`.
    #[schema(format = "uri")]
    pub(crate) upload_url: String,
    /// For `albums/watermark/set`.
    pub(crate) image_id: Uuid,
    /// When the URL expires.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires_at: OffsetDateTime,
}

impl Output for WatermarkTicket {
    fn example() -> Self {
        Self {
            upload_url: sample::UPLOAD_URL.to_owned(),
            image_id: sample::PROBE.0,
            expires_at: sample::TIME,
        }
    }
}

/// Body of `albums/watermark/set`.
pub(crate) struct SetWatermark {
    pub(crate) album: AlbumId,
    /// `None` removes it.
    pub(crate) watermark: Option<NewWatermark>,
}

/// A watermark to set.
pub(crate) struct NewWatermark {
    pub(crate) image: Option<String>,
    pub(crate) position: Option<WatermarkPosition>,
    pub(crate) opacity: Option<f64>,
    pub(crate) scale: Option<f64>,
}

impl Input for SetWatermark {
    const NAME: &'static str = "SetWatermark";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let description = "The watermark; null removes it.";
        let watermark = fields.required("watermark", description, Nullable(nested::<NewWatermark>()));
        Some(Self { album: album?, watermark: watermark? })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "watermark": NewWatermark::example() })
    }
}

impl Input for NewWatermark {
    const NAME: &'static str = "NewWatermark";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let image = "The PNG that was uploaded; missing keeps the one before.";
        let image = fields.optional("imageId", image, AnyText);
        let positions = OneOf { choices: &WatermarkPosition::ALL, to_name: position_name };
        let description = "Where it is drawn; missing keeps what it was, at first `tile`.";
        let position = fields.optional("position", description, positions);
        let description = "How much it covers; missing keeps what it was, at first 0.35.";
        let opacity = fields.optional("opacity", description, Number { min: 0.0, max: 1.0 });
        let description = "Its width as a part of the picture's; missing keeps what it was, at first 0.25.";
        let scale = fields.optional("scale", description, Number { min: 0.05, max: 1.0 });
        Some(Self { image, position, opacity, scale })
    }

    fn example() -> Value {
        json!({ "imageId": sample::PROBE, "position": "tile", "opacity": 0.35, "scale": 0.25 })
    }
}
