//! Watermarks of albums: a picture that is drawn over previews for galleries.

use bytes::Bytes;

use crate::model::cost::Spent;
use crate::model::ids::{AlbumId, OrganizationId, PhotoId};

/// Where a watermark is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatermarkPosition {
    /// Again and again, over the whole picture.
    #[default]
    Tile,
    /// Once, in the middle.
    Center,
    /// Once, in a corner.
    TopLeft,
    /// Once, in a corner.
    TopRight,
    /// Once, in a corner.
    BottomLeft,
    /// Once, in a corner.
    BottomRight,
}

impl WatermarkPosition {
    /// Every position.
    pub const ALL: [Self; 6] =
        [Self::Tile, Self::Center, Self::TopLeft, Self::TopRight, Self::BottomLeft, Self::BottomRight];

    /// Its name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tile => "tile",
            Self::Center => "center",
            Self::TopLeft => "top_left",
            Self::TopRight => "top_right",
            Self::BottomLeft => "bottom_left",
            Self::BottomRight => "bottom_right",
        }
    }
}

/// How a watermark is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatermarkPlacement {
    /// Where.
    pub position: WatermarkPosition,
    /// How much it covers, 0 to 1: multiplied with its own alpha.
    pub opacity: f64,
    /// Its width as a part of the picture's, 0.05 to 1.
    pub scale: f64,
}

impl Default for WatermarkPlacement {
    fn default() -> Self {
        Self { position: WatermarkPosition::default(), opacity: 0.35, scale: 0.25 }
    }
}

/// The watermark of an album.
#[derive(Clone, Debug, PartialEq)]
pub struct Watermark {
    /// Grows with each change; no two watermarks of an album have the same.
    pub version: i64,
    /// A PNG file.
    pub picture: Bytes,
    /// How it is drawn.
    pub placement: WatermarkPlacement,
}

/// A watermark to set.
#[derive(Clone, Debug)]
pub struct WatermarkChange {
    /// A PNG file; `None` keeps the picture that it has.
    pub picture: Option<Bytes>,
    /// How it is drawn.
    pub placement: WatermarkPlacement,
}

/// An album whose photos may not all show its watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlbumToMark {
    /// The album.
    pub album: AlbumId,
    /// Its owner.
    pub organization: OrganizationId,
    /// Until which notice of such photos this one counts: later ones are another task.
    pub asked: i64,
}

/// A photo on whose preview a watermark was drawn after it was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkedPhoto {
    /// The photo.
    pub photo: PhotoId,
    /// What that cost; what was written is its marked picture.
    pub spent: Spent,
}
