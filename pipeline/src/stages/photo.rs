//! The types that travel between stages. Each says what has been done to a photo, so a wrong order of stages does not
//! compile. Small parts are owned, pixels are shared, and a photo carries its budget permit, so that dropping the photo
//! returns the bytes to the budget.

use std::sync::Arc;

use bytes::Bytes;
use photofinish_kernels::image::orient::Orientation;
use photofinish_models::traits::FaceBox;
use photofinish_store::model::photo::{DetectedFace, DetectedText, PhotoSize};
use photofinish_store::traits::{Lease, PictureSizes};
use time::OffsetDateTime;

use crate::engine::budget::BudgetPermit;
use crate::image::color_profile::ColorProfile;
use crate::image::pool::{PooledFile, PooledPicture};
use crate::image::watermark::WatermarkPicture;

/// What every photo carries from `decode` to `index`.
#[derive(Debug)]
pub(crate) struct PhotoMetadata {
    pub(crate) lease: Arc<Lease>,
    /// Size of the original, upright, pixels.
    pub(crate) size: PhotoSize,
    pub(crate) taken_at: Option<OffsetDateTime>,
    pub(crate) camera: Option<String>,
    /// What is drawn on its marked picture; `None` if it gets none.
    pub(crate) watermark: Option<Arc<WatermarkPicture>>,
}

/// A photo whose file was read.
#[derive(Debug)]
pub(crate) struct FetchedPhoto {
    pub(crate) lease: Arc<Lease>,
    pub(crate) bytes: PooledFile,
    /// Of the album.
    pub(crate) watermark: Option<Arc<WatermarkPicture>>,
    /// Of the file budget. Declared after `bytes`, so that it is returned after they are freed.
    pub(crate) _permit: BudgetPermit,
}

/// A photo whose pixels were decoded, in their stored orientation.
#[derive(Debug)]
pub(crate) struct DecodedPhoto {
    pub(crate) metadata: Arc<PhotoMetadata>,
    pub(crate) picture: PooledPicture,
    /// The transform that turns the picture upright.
    pub(crate) orientation: Orientation,
    /// Which colours the pixels stand for, if the file says so.
    pub(crate) color_profile: Option<ColorProfile>,
    /// Of the pixel budget, for these pixels and those made from them.
    pub(crate) permit: Arc<BudgetPermit>,
}

/// A photo with its previews and the frame for networks, all upright.
#[derive(Clone, Debug)]
pub(crate) struct SizedPhoto {
    pub(crate) metadata: Arc<PhotoMetadata>,
    pub(crate) frame: Arc<PooledPicture>,
    pub(crate) previews: Previews,
    /// Of the pixel budget, for the frame and the previews.
    pub(crate) permit: Arc<BudgetPermit>,
}

/// JPEG files, upright, without EXIF data, with the photo's colour profile.
#[derive(Clone, Debug)]
pub(crate) struct Previews {
    pub(crate) preview: Bytes,
    pub(crate) thumbnail: Bytes,
    /// The preview with the album's watermark, if it has one.
    pub(crate) marked: Option<Bytes>,
}

impl Previews {
    pub(crate) fn size_bytes(&self) -> usize {
        self.preview.len() + self.thumbnail.len() + self.marked.as_ref().map_or(0, Bytes::len)
    }

    /// As they are stored.
    pub(crate) fn sizes(&self) -> PictureSizes {
        PictureSizes {
            picture_bytes: (self.preview.len() + self.thumbnail.len()) as u64,
            marked_bytes: self.marked.as_ref().map(|marked| marked.len() as u64),
        }
    }
}

/// A photo whose faces were detected.
#[derive(Clone, Debug)]
pub(crate) struct DetectedPhoto {
    pub(crate) sized: SizedPhoto,
    /// In pixels of the frame. Also detected where the album wants only texts, as bibs are below faces.
    pub(crate) faces: Vec<FaceBox>,
}

/// A photo whose faces were embedded.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddedPhoto {
    pub(crate) detected: DetectedPhoto,
    /// The faces as the store keeps them, largest first; empty where the album wants no faces.
    pub(crate) faces: Vec<DetectedFace>,
}

/// A photo with all its results; its pixels are freed.
#[derive(Clone, Debug)]
pub(crate) struct ReadPhoto {
    pub(crate) metadata: Arc<PhotoMetadata>,
    pub(crate) previews: Previews,
    pub(crate) faces: Vec<DetectedFace>,
    pub(crate) texts: Vec<DetectedText>,
    /// Runners whose bibs were not read, because there are too many.
    pub(crate) skipped_runners: u32,
    /// Of the pixel budget, for the previews. Declared after them, so that it is returned after they are freed.
    pub(crate) _permit: Arc<BudgetPermit>,
}
