//! Selfies: where they belong, and what examining them gave.

use time::OffsetDateTime;

use crate::model::ids::{AlbumId, OrganizationId, ProbeId};
use crate::model::photo::Embedding;

/// A runner's selfie, used to search an album.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The `imageId` of the wire.
    pub id: ProbeId,
    /// The album that it searches.
    pub album: AlbumId,
    /// The owner of the album; part of the object's key.
    pub organization: OrganizationId,
    /// From when on it is `NotFound`.
    pub expires_at: OffsetDateTime,
    /// What was made of it; `None` until its bytes were examined.
    pub outcome: Option<ProbeOutcome>,
    /// Whether searching with it was charged.
    pub is_charged: bool,
}

/// What examining a selfie's bytes gave. It does not change: a later search gets the same.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeOutcome {
    /// The embedding of its largest face.
    Embedded(Embedding),
    /// It cannot be searched with.
    Refused(ProbeRefusal),
}

/// Why a selfie cannot be searched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeRefusal {
    /// It shows no face.
    NoFace,
    /// It is not an image, is damaged, or exceeds the limits of pixels or time.
    Unreadable,
    /// The file is too large.
    TooLarge,
}

impl ProbeRefusal {
    /// All refusals.
    pub const ALL: [Self; 3] = [Self::NoFace, Self::Unreadable, Self::TooLarge];

    /// Its name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoFace => "NO_FACE",
            Self::Unreadable => "UNREADABLE",
            Self::TooLarge => "TOO_LARGE",
        }
    }
}

/// The place of a selfie among the expired ones, longest expired first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredPosition {
    /// When it expired.
    pub expires_at: OffsetDateTime,
    /// Orders those that expired together.
    pub id: ProbeId,
}
