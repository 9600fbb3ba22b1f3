//! What is kept of a face besides its vector.

use super::bibs::BibId;
use crate::model::ids::{FaceId, PhotoId};
use crate::model::photo::BoundingBox;

/// A face without its vector: 80 bytes in addition to the 264 of a vector of 256.
#[derive(Clone, Copy)]
pub(super) struct FaceEntry {
    pub(super) id: FaceId,
    pub(super) photo: PhotoId,
    pub(super) bounding_box: BoundingBox,
    /// See [`crate::search::faces::fingerprint`].
    pub(super) fingerprint: u64,
    /// Another row of the same photo. The rows of a photo form a ring.
    pub(super) next_row: u32,
    pub(super) worn: Option<EntryBib>,
}

/// The bib that a face wears.
#[derive(Clone, Copy)]
pub(super) struct EntryBib {
    pub(super) id: BibId,
    /// When its photo was taken, hours since 1970; [`UNKNOWN_HOUR`] if that is not known.
    hour: i32,
}

/// No photo was taken 245,000 years ago.
const UNKNOWN_HOUR: i32 = i32::MIN;

impl EntryBib {
    pub(super) fn new(id: BibId, taken_hour: Option<i32>) -> Self {
        Self { id, hour: taken_hour.unwrap_or(UNKNOWN_HOUR) }
    }

    pub(super) fn taken_hour(self) -> Option<i32> {
        (self.hour != UNKNOWN_HOUR).then_some(self.hour)
    }
}
