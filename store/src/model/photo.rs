//! Photos, their states, and the faces and texts detected in them.

use photofinish_kernels::lattice::Lattice;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

pub use crate::model::bounding_box::BoundingBox;
use crate::model::ids::{AlbumId, PhotoId};

/// The state of a photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhotoState {
    /// Created, with an upload URL; the upload is not confirmed yet.
    AwaitingUpload,
    /// Confirmed; waits for a worker.
    Queued,
    /// Leased by a worker.
    Processing,
    /// Processed and searchable.
    Ready,
    /// Not processed; the failure reason says why.
    Failed,
}

impl PhotoState {
    /// Every state, in order.
    pub const ALL: [Self; 5] =
        [Self::AwaitingUpload, Self::Queued, Self::Processing, Self::Ready, Self::Failed];

    /// The name on the wire and in the database.
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

/// Why a photo failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureReason {
    /// An image of a known format whose bytes are damaged.
    CorruptImage,
    /// Not an image, or one of an unsupported format.
    UnsupportedFormat,
    /// More pixels than the limit.
    TooManyPixels,
    /// More bytes than the limit.
    TooLarge,
    /// Its object is missing in the storage, or cannot be read although the storage works.
    MissingObject,
    /// It crashed its workers, or made a stage panic.
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

    /// The code on the wire and in the database.
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

/// Why a detected face or text cannot be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UnindexedReason {
    /// The confidence of the network is too low.
    LowConfidence,
    /// Too few pixels.
    SmallBoundingBox,
    /// Too blurred.
    LowSharpness,
    /// The face is turned too far away.
    ExtremePose,
    /// Text that does not match the album's pattern.
    NotABib,
    /// A bib that is not on the album's start list. Fuzzy searches for just that bib find it.
    NotOnStartList,
    /// A part of a bib, by the format of the event's bibs. Fuzzy searches find it.
    Partial,
    /// Erased because the runner asked for it: a face has no vector any more, a text does not say what was read.
    Erased,
}

impl UnindexedReason {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::LowConfidence,
        Self::SmallBoundingBox,
        Self::LowSharpness,
        Self::ExtremePose,
        Self::NotABib,
        Self::NotOnStartList,
        Self::Partial,
        Self::Erased,
    ];

    /// The code on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LowConfidence => "LOW_CONFIDENCE",
            Self::SmallBoundingBox => "SMALL_BOUNDING_BOX",
            Self::LowSharpness => "LOW_SHARPNESS",
            Self::ExtremePose => "EXTREME_POSE",
            Self::NotABib => "NOT_A_BIB",
            Self::NotOnStartList => "NOT_ON_START_LIST",
            Self::Partial => "PARTIAL",
            Self::Erased => "ERASED",
        }
    }
}

/// A stored photo.
#[derive(Clone, Debug, PartialEq)]
pub struct Photo {
    /// Its id.
    pub id: PhotoId,
    /// Its album.
    pub album: AlbumId,
    /// The file name that the partner declared.
    pub filename: String,
    /// The media type that the partner declared.
    pub content_type: String,
    /// Its state.
    pub state: PhotoState,
    /// Why it failed; set exactly in state `Failed`.
    pub failure: Option<FailureReason>,
    /// Size of the upright photo in pixels, as of the last time that it became ready; `None` before, and once it has failed.
    pub size: Option<PhotoSize>,
    /// When it was taken (EXIF; read as UTC where it names no offset).
    pub taken_at: Option<OffsetDateTime>,
    /// Camera make and model (EXIF).
    pub camera: Option<String>,
    /// Runners whose bibs were not read, because the photo has more than the service reads of one: the smallest.
    pub skipped_runners: u32,
    /// Whether it has a marked picture. That may show an earlier watermark of the album for a while.
    pub is_marked: bool,
    /// When it was created.
    pub created_at: OffsetDateTime,
    /// When its row last changed.
    pub updated_at: OffsetDateTime,
}

impl Photo {
    /// Whether it has pictures: those of a photo that is processed again stay until new ones replace them, as what searches find
    /// of it does. Those of a photo that has failed may be gone.
    #[must_use]
    pub const fn has_pictures(&self) -> bool {
        match self.state {
            PhotoState::Ready => true,
            // Known from the last time that it became ready, unless it has failed since.
            PhotoState::Queued | PhotoState::Processing => self.size.is_some(),
            PhotoState::AwaitingUpload | PhotoState::Failed => false,
        }
    }
}

/// The size of an upright photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhotoSize {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
}

/// A photo to create.
#[derive(Clone, Debug)]
pub struct NewPhoto {
    /// The file name that the partner declared.
    pub filename: String,
    /// The media type that the partner declared, one of the accepted ones.
    pub content_type: String,
}

/// Which photos to list.
#[derive(Clone, Debug)]
pub struct PhotoQuery {
    /// Only photos after (newer than) this one.
    pub after: Option<PhotoId>,
    /// At most this many.
    pub limit: u32,
    /// Only photos in this state.
    pub state: Option<PhotoState>,
}

/// Which photos to list, by what their files say of how they were taken.
#[derive(Clone, Debug)]
pub struct TakenQuery {
    /// By state, and which page.
    pub page: PhotoQuery,
    /// Only photos of the camera of this name.
    pub camera: Option<String>,
    /// Only photos that were taken at this time or later.
    pub from: Option<OffsetDateTime>,
    /// Only photos that were taken before this time.
    pub until: Option<OffsetDateTime>,
    /// How many there are on all pages, where an earlier page has counted them: counting reads every photo of the album.
    pub known_total: Option<u64>,
}

/// A camera, and how many photos of an album it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraCount {
    /// Make and model; `None` for photos that do not say.
    pub camera: Option<String>,
    /// In any state.
    pub photos: u64,
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

/// A face detected in a photo.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedFace {
    /// Where.
    pub bounding_box: BoundingBox,
    /// The detector's score, 0 to 1.
    pub confidence: f64,
    /// Why it cannot be searched; `None` means it can.
    pub unindexed: Option<UnindexedReason>,
    /// Its embedding; set exactly when it can be searched.
    pub embedding: Option<Embedding>,
}

/// A face as a unit vector, with the network that computed it: vectors of different networks are never compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Name and version, for example `omz-face-reidentification-0095@1`.
    pub model: String,
    /// Unit length.
    pub vector: Vec<f32>,
}

/// A text detected in a photo.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedText {
    /// Upper-case letters and digits.
    pub text: String,
    /// Where.
    pub bounding_box: BoundingBox,
    /// The score of the reader, or of the rules of the album where they say otherwise; 0 to 1.
    pub confidence: f64,
    /// The highest score that any rule may give it; 1 for no limit. The reader sets it where characters are too small to
    /// tell a number from its neighbours.
    pub max_confidence: f64,
    /// Which searches find it.
    pub index_state: TextIndexState,
    /// What the reader itself said, where the rules of the album say otherwise.
    pub read: Option<ReadText>,
    /// What else the reader thought it may say. Not loaded by searches.
    pub lattice: Option<TextLattice>,
}

/// A text as the reader read it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadText {
    /// Upper-case letters and digits.
    pub text: String,
    /// The reader's score, 0 to 1.
    pub confidence: f64,
    /// Which searches would find it.
    pub index_state: TextIndexState,
}

/// The lattice of a reading.
#[derive(Clone, Debug, PartialEq)]
pub struct TextLattice {
    /// Name and version of the networks that made it.
    pub recogniser: String,
    /// The probable characters.
    pub lattice: Lattice,
}

impl DetectedText {
    /// The text as the reader read it.
    pub fn as_read(&self) -> ReadText {
        let Self { text, confidence, index_state, .. } = self;
        let read = || ReadText { text: text.clone(), confidence: *confidence, index_state: *index_state };
        self.read.clone().unwrap_or_else(read)
    }
}

/// Which searches find a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextIndexState {
    /// A bib that exact and fuzzy searches find.
    Indexed,
    /// A bib with a score of 0.5 to 0.9, which only fuzzy searches find. Shown as unindexed, `LOW_CONFIDENCE`.
    Candidate,
    /// No search finds it, except for bibs that are [`UnindexedReason::NotOnStartList`] or
    /// [`UnindexedReason::Partial`].
    Unindexed(UnindexedReason),
}

/// A kept count of photos that is not the number of their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountMismatch {
    /// The album.
    pub album: AlbumId,
    /// The state of the photos.
    pub state: String,
    /// What was kept.
    pub kept: i64,
    /// What there is.
    pub counted: i64,
}

/// How many photos of an album are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Waiting for their upload.
    pub awaiting_upload: u64,
    /// Waiting for a worker.
    pub queued: u64,
    /// Leased by a worker.
    pub processing: u64,
    /// Processed.
    pub ready: u64,
    /// Failed.
    pub failed: u64,
}

impl StateCounts {
    /// The photos of one state.
    pub fn get(&self, state: PhotoState) -> u64 {
        match state {
            PhotoState::AwaitingUpload => self.awaiting_upload,
            PhotoState::Queued => self.queued,
            PhotoState::Processing => self.processing,
            PhotoState::Ready => self.ready,
            PhotoState::Failed => self.failed,
        }
    }

    /// The photos of one state, to be changed.
    pub fn get_mut(&mut self, state: PhotoState) -> &mut u64 {
        match state {
            PhotoState::AwaitingUpload => &mut self.awaiting_upload,
            PhotoState::Queued => &mut self.queued,
            PhotoState::Processing => &mut self.processing,
            PhotoState::Ready => &mut self.ready,
            PhotoState::Failed => &mut self.failed,
        }
    }

    /// The photos of all states.
    pub fn total(&self) -> u64 {
        PhotoState::ALL.into_iter().map(|state| self.get(state)).sum()
    }
}
