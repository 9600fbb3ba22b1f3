//! What is kept of a face besides its vector.

use crate::model::ids::{FaceId, PhotoId};
use crate::model::photo::BoundingBox;

/// A face without its vector: 72 bytes in addition to the 264 of a vector of 256.
#[derive(Clone, Copy)]
pub(super) struct FaceEntry {
    pub(super) id: FaceId,
    pub(super) photo: PhotoId,
    pub(super) bounding_box: BoundingBox,
    /// See [`crate::search::faces::fingerprint`].
    pub(super) fingerprint: u64,
    /// Another row of the same photo. The rows of a photo form a ring.
    pub(super) next_row: u32,
}
