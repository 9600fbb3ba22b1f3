//! The stage `resize`: turns a photo upright and makes of it what people look at, preview and thumbnail as JPEG files
//! without the camera's notes, and the frame that networks look at. Nothing is enlarged.
//!
//! Each size is made of the next larger one: the thumbnail of the preview costs a fifth of one of the photo
//! (measured; `bench reading` prints it).

use std::sync::Arc;

use bytes::Bytes;
use photofinish_kernels::frame::{Frame, Picture, Size};
use photofinish_kernels::orient::{Orientation, apply_orientation};
use photofinish_kernels::resize::{Filter, ResizeTarget, Resizer};
use photofinish_store::model::photo::FailureReason;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

use crate::engine::fault::{Outage, Poison};
use crate::engine::stage::{BatchResults, Stage};
use crate::image::pool::{PixelPool, PooledPicture};
use crate::stages::decode::to_upright;
use crate::stages::photo::{DecodedPhoto, Previews, SizedPhoto};
use crate::stages::sizes::OutputSizes;

/// JPEG quality of previews and thumbnails: 650 KB at 2048 pixels.
const PREVIEW_QUALITY: i32 = 80;

/// The stage `resize`.
pub(crate) struct Resize {
    resizer: UprightResizer,
    compressor: Compressor,
}

impl Resize {
    /// # Errors
    /// When there is no memory for libjpeg-turbo.
    pub(crate) fn new(pool: PixelPool) -> turbojpeg::Result<Self> {
        let mut compressor = Compressor::new()?;
        compressor.set_quality(PREVIEW_QUALITY)?;
        // Optimised tables are not worth it: 13 ms for 1 % of the bytes.
        compressor.set_subsamp(Subsamp::Sub2x2)?;
        Ok(Self { resizer: UprightResizer::new(pool), compressor })
    }

    fn resize_photo(&mut self, photo: &DecodedPhoto) -> Result<SizedPhoto, Poison> {
        let size = Size { width: photo.metadata.size.width, height: photo.metadata.size.height };
        let sizes = OutputSizes::for_photo(size, &photo.metadata.lease.config);
        let made = self.resizer.resize_all(photo.picture.frame(), photo.orientation, sizes);
        let previews = Previews {
            preview: self.encode_jpeg(made.preview.frame())?,
            thumbnail: self.encode_jpeg(made.thumbnail.frame())?,
        };
        photo.permit.shrink_to(made.frame.size_bytes() + previews.size_bytes());
        let (facts, held) = (Arc::clone(&photo.metadata), Arc::clone(&photo.permit));
        Ok(SizedPhoto { metadata: facts, frame: made.frame, previews, permit: held })
    }

    fn encode_jpeg(&mut self, frame: Frame<'_>) -> Result<Bytes, Poison> {
        let (width, height) = (frame.width() as usize, frame.height() as usize);
        let image =
            Image { pixels: frame.pixels(), width, pitch: width * 3, height, format: PixelFormat::RGB };
        self.compressor
            .compress_to_vec(image)
            .map(Bytes::from)
            .map_err(|error| Poison::new(FailureReason::ProcessingCrashed, format!("a preview: {error}")))
    }
}

impl Stage for Resize {
    type In = DecodedPhoto;
    type Out = SizedPhoto;

    fn run(&mut self, batch: &[DecodedPhoto]) -> Result<BatchResults<SizedPhoto>, Outage> {
        Ok(batch.iter().map(|photo| self.resize_photo(photo)).collect())
    }
}

/// Makes upright pictures of several sizes of one that lies as it was stored. Also for selfies.
pub(crate) struct UprightResizer {
    resizer: Resizer,
    pool: PixelPool,
}

/// The pictures of one photo; those of equal size are one.
struct ResizedPictures {
    frame: Arc<PooledPicture>,
    preview: Arc<PooledPicture>,
    thumbnail: Arc<PooledPicture>,
}

impl UprightResizer {
    pub(crate) fn new(pool: PixelPool) -> Self {
        Self { resizer: Resizer::default(), pool }
    }

    /// The stored picture at `size`, upright; `size` is that of the upright picture.
    pub(crate) fn resize_upright(
        &mut self,
        stored: Frame<'_>,
        orientation: Orientation,
        size: Size,
    ) -> PooledPicture {
        // First fewer pixels, then turned: turning costs by the pixel.
        let shrunk = self.resize_pooled(stored, to_upright(size, orientation.swaps_sides()));
        PooledPicture::new(apply_orientation(shrunk, orientation), &self.pool)
    }

    fn resize_all(
        &mut self,
        stored: Frame<'_>,
        orientation: Orientation,
        sizes: OutputSizes,
    ) -> ResizedPictures {
        let mut wanted = [sizes.frame, sizes.preview, sizes.thumbnail];
        wanted.sort_by_key(|size| std::cmp::Reverse(size.area()));
        let mut pictures = vec![Arc::new(self.resize_upright(stored, orientation, wanted[0]))];
        for size in &wanted[1..] {
            let larger = pictures.last().expect("it begins with one");
            if larger.size() != *size {
                let picture = self.resize_pooled(larger.frame(), *size);
                pictures.push(Arc::new(PooledPicture::new(picture, &self.pool)));
            }
        }
        let of = |size: Size| {
            let found = pictures.iter().find(|picture| picture.size() == size);
            Arc::clone(found.expect("each wanted size was made, or is the size of the one before"))
        };
        ResizedPictures { frame: of(sizes.frame), preview: of(sizes.preview), thumbnail: of(sizes.thumbnail) }
    }

    fn resize_pooled(&mut self, frame: Frame<'_>, size: Size) -> Picture {
        let mut pixels = self.pool.acquire_buffer(size.area() * 3);
        let target = ResizeTarget { size, filter: Filter::Lanczos };
        self.resizer.resize(frame.as_window(), target, &mut pixels);
        Picture::new(pixels, size.width, size.height).expect("resize gives width * height * 3 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_are_one_picture() {
        let photo = Picture::new(vec![200; 90 * 60 * 3], 90, 60).unwrap();
        let mut shrinker = UprightResizer::new(PixelPool::default());
        let whole = Size { width: 60, height: 90 };
        let small = Size { width: 20, height: 30 };
        let sizes = OutputSizes { frame: whole, preview: whole, thumbnail: small };
        let made = shrinker.resize_all(photo.frame(), Orientation::Rotate90, sizes);
        assert!(Arc::ptr_eq(&made.frame, &made.preview));
        assert_eq!((made.frame.size(), made.thumbnail.size()), (whole, small));
        assert!(made.thumbnail.frame().pixels().iter().all(|value| *value == 200));
    }

    #[test]
    fn a_thumbnail_larger_than_the_preview_is_made_too() {
        let photo = Picture::new(vec![7; 90 * 60 * 3], 90, 60).unwrap();
        let sizes = OutputSizes {
            frame: Size { width: 45, height: 30 },
            preview: Size { width: 30, height: 20 },
            thumbnail: Size { width: 60, height: 40 },
        };
        let made =
            UprightResizer::new(PixelPool::default()).resize_all(photo.frame(), Orientation::Upright, sizes);
        assert_eq!(made.thumbnail.size(), sizes.thumbnail);
        assert_eq!(made.preview.size(), sizes.preview);
    }
}
