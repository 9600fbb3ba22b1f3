//! Photos, what was seen in them, and the states they pass through.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::model::ids::{AlbumId, PhotoId};

/// Where a photo is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhotoState {
    /// An upload URL was given out; not confirmed.
    AwaitingUpload,
    /// Confirmed; waits for a worker.
    Queued,
    /// Leased by a worker.
    Processing,
    /// Read and searchable.
    Ready,
    /// Never to be read; the reason says why.
    Failed,
}

impl PhotoState {
    /// Every state, in order.
    pub const ALL: [Self; 5] =
        [Self::AwaitingUpload, Self::Queued, Self::Processing, Self::Ready, Self::Failed];

    /// The name on the wire and in the rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AwaitingUpload => "awaiting_upload",
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

/// Why a photo failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureReason {
    /// An image of a known format whose bytes are damaged.
    CorruptImage,
    /// Not an image, or not one that can be read here.
    UnsupportedFormat,
    /// More pixels than the limit.
    TooManyPixels,
    /// More bytes than the limit.
    TooLarge,
    /// The bytes are gone from storage.
    MissingObject,
    /// It ended its worker, or a stage panicked on it.
    ProcessingCrashed,
}

impl FailureReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::CorruptImage,
        Self::UnsupportedFormat,
        Self::TooManyPixels,
        Self::TooLarge,
        Self::MissingObject,
        Self::ProcessingCrashed,
    ];

    /// The code on the wire and in the rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CorruptImage => "CORRUPT_IMAGE",
            Self::UnsupportedFormat => "UNSUPPORTED_FORMAT",
            Self::TooManyPixels => "TOO_MANY_PIXELS",
            Self::TooLarge => "TOO_LARGE",
            Self::MissingObject => "MISSING_OBJECT",
            Self::ProcessingCrashed => "PROCESSING_CRASHED",
        }
    }
}

/// Why something seen is not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UnindexedReason {
    /// The network was not sure.
    LowConfidence,
    /// Too few pixels.
    SmallBoundingBox,
    /// Too blurred.
    LowSharpness,
    /// Turned too far away.
    ExtremePose,
    /// Text that does not match the album's pattern.
    NotABib,
    /// A bib that is not on the album's start list.
    NotOnStartList,
}

impl UnindexedReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::LowConfidence,
        Self::SmallBoundingBox,
        Self::LowSharpness,
        Self::ExtremePose,
        Self::NotABib,
        Self::NotOnStartList,
    ];

    /// The code on the wire and in the rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LowConfidence => "LOW_CONFIDENCE",
            Self::SmallBoundingBox => "SMALL_BOUNDING_BOX",
            Self::LowSharpness => "LOW_SHARPNESS",
            Self::ExtremePose => "EXTREME_POSE",
            Self::NotABib => "NOT_A_BIB",
            Self::NotOnStartList => "NOT_ON_START_LIST",
        }
    }
}

/// A place in a photo, in fractions (0 to 1) of the upright photo.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundingBox {
    /// Distance of the upper edge from the photo's.
    pub top: f64,
    /// Distance of the left edge from the photo's.
    pub left: f64,
    /// Fraction of the photo's width.
    pub width: f64,
    /// Fraction of the photo's height.
    pub height: f64,
}

/// A photo as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Photo {
    /// Its id.
    pub id: PhotoId,
    /// Its album.
    pub album: AlbumId,
    /// As the partner named it.
    pub filename: String,
    /// As the partner declared it.
    pub content_type: String,
    /// Where it is.
    pub state: PhotoState,
    /// Why it failed, exactly when it did.
    pub failure: Option<FailureReason>,
    /// Size of the upright photo in pixels, once decoded.
    pub size: Option<PhotoSize>,
    /// When it was taken (EXIF; read as UTC where it names no offset).
    pub taken_at: Option<OffsetDateTime>,
    /// Camera make and model (EXIF).
    pub camera: Option<String>,
    /// When the upload URL was given out.
    pub created_at: OffsetDateTime,
    /// When its row last changed.
    pub updated_at: OffsetDateTime,
}

/// Pixels of an upright photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhotoSize {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
}

/// A photo to expect.
#[derive(Clone, Debug)]
pub struct NewPhoto {
    /// As the partner named it.
    pub filename: String,
    /// As the partner declared it: one of the accepted media types.
    pub content_type: String,
}

/// Which photos to list.
#[derive(Clone, Debug)]
pub struct PhotoQuery {
    /// Only those after this one.
    pub after: Option<PhotoId>,
    /// At most this many.
    pub limit: u32,
    /// Only those in this state.
    pub state: Option<PhotoState>,
}

/// One page, oldest first.
#[derive(Clone, Debug)]
pub struct PhotoPage {
    /// The photos.
    pub photos: Vec<Photo>,
    /// Where the next page begins, when there is one.
    pub next: Option<PhotoId>,
    /// How many match in all.
    pub total: u64,
}

/// A face seen in a photo.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedFace {
    /// Where.
    pub bounding_box: BoundingBox,
    /// The detector's score, 0 to 1.
    pub confidence: f64,
    /// Why it cannot be searched; `None` means it can.
    pub unindexed: Option<UnindexedReason>,
    /// Its vector, exactly when it can be searched.
    pub embedding: Option<Embedding>,
}

/// A face as a unit vector, with the network that made it: vectors of two networks are never compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Name and version, for example `omz-face-reidentification-0095@1`.
    pub model: String,
    /// Unit length.
    pub vector: Vec<f32>,
}

/// A text seen in a photo.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedText {
    /// Upper-case letters and digits.
    pub text: String,
    /// Where.
    pub bounding_box: BoundingBox,
    /// The reader's score, 0 to 1.
    pub confidence: f64,
    /// What becomes of it in searches.
    pub index_state: TextIndexState,
}

/// What becomes of a text in searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextIndexState {
    /// A bib: exact and fuzzy searches find it.
    Indexed,
    /// Read at .5 to .9: only fuzzy searches find it. Shown as unindexed, `LOW_CONFIDENCE`.
    Candidate,
    /// No search finds it.
    Unindexed(UnindexedReason),
}

/// How many photos of an album are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Upload URL given out.
    pub awaiting_upload: u64,
    /// Confirmed.
    pub queued: u64,
    /// Leased.
    pub processing: u64,
    /// Read.
    pub ready: u64,
    /// Failed for good.
    pub failed: u64,
}
