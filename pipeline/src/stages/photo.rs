//! What travels. The type says what has been done to a photo: a wrong order of stages does not compile. Cheap parts
//! are owned, pixels are shared, and what a photo holds of a budget is in it, so that dropping it gives it back.

use std::sync::Arc;

use bytes::Bytes;
use photofinish_kernels::orient::Orientation;
use photofinish_models::traits::FaceBox;
use photofinish_store::model::photo::{DetectedFace, DetectedText, PhotoSize};
use photofinish_store::traits::Lease;
use time::OffsetDateTime;

use crate::engine::budget::BudgetPermit;
use crate::image::pool::PooledPicture;

/// What every photo carries from here to the end.
#[derive(Debug)]
pub(crate) struct PhotoMetadata {
    pub(crate) lease: Arc<Lease>,
    /// Of the upright photo as it was taken.
    pub(crate) size: PhotoSize,
    pub(crate) taken_at: Option<OffsetDateTime>,
    pub(crate) camera: Option<String>,
}

/// A photo whose bytes are here.
#[derive(Debug)]
pub(crate) struct FetchedPhoto {
    pub(crate) lease: Arc<Lease>,
    pub(crate) bytes: Bytes,
    /// Of budget A. Behind `bytes`, so that it is given back after they are freed.
    pub(crate) _permit: BudgetPermit,
}

/// A photo whose pixels are here, as they were stored.
#[derive(Debug)]
pub(crate) struct DecodedPhoto {
    pub(crate) metadata: Arc<PhotoMetadata>,
    pub(crate) picture: PooledPicture,
    /// What makes it upright.
    pub(crate) orientation: Orientation,
    /// Of budget B, for these pixels and those that are made of them.
    pub(crate) permit: Arc<BudgetPermit>,
}

/// A photo that people can look at, upright, with the frame that networks look at.
#[derive(Clone, Debug)]
pub(crate) struct SizedPhoto {
    pub(crate) metadata: Arc<PhotoMetadata>,
    pub(crate) frame: Arc<PooledPicture>,
    pub(crate) previews: Previews,
    /// Of budget B, for the frame and the previews.
    pub(crate) permit: Arc<BudgetPermit>,
}

/// JPEG files, upright, without notes of the camera.
#[derive(Clone, Debug)]
pub(crate) struct Previews {
    pub(crate) preview: Bytes,
    pub(crate) thumbnail: Bytes,
}

impl Previews {
    pub(crate) fn size_bytes(&self) -> usize {
        self.preview.len() + self.thumbnail.len()
    }
}

/// A photo whose faces are found.
#[derive(Clone, Debug)]
pub(crate) struct DetectedPhoto {
    pub(crate) sized: SizedPhoto,
    /// In pixels of the frame; also where only texts are wanted, for bibs are under faces.
    pub(crate) faces: Vec<FaceBox>,
}

/// A photo whose faces are vectors.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddedPhoto {
    pub(crate) detected: DetectedPhoto,
    /// What the store is told, largest first; empty where the album wants no faces.
    pub(crate) seen_faces: Vec<DetectedFace>,
}

/// A photo of which everything is known; its pixels are gone.
#[derive(Clone, Debug)]
pub(crate) struct ReadPhoto {
    pub(crate) metadata: Arc<PhotoMetadata>,
    pub(crate) previews: Previews,
    pub(crate) faces: Vec<DetectedFace>,
    pub(crate) texts: Vec<DetectedText>,
    /// Of budget B, for the previews. Behind them, so that it is given back after they are freed.
    pub(crate) _permit: Arc<BudgetPermit>,
}
