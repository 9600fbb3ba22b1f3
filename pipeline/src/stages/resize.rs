//! The stage `resize`: makes upright pictures of a photo: preview and thumbnail as JPEG files without EXIF data and with the
//! photo's colour profile, the preview with the album's watermark, and the frame for networks. Nothing is enlarged.
//!
//! Each size is made from the next larger one: a thumbnail made from the preview costs a fifth of one made from the
//! photo (measured; `bench reading` prints it).

use std::sync::Arc;

use bytes::Bytes;
use photofinish_kernels::image::frame::{Frame, Size};
use photofinish_kernels::image::orient::Orientation;
use photofinish_kernels::resize::{Filter, ResizeTarget};
use photofinish_store::model::photo::FailureReason;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

use crate::engine::fault::{Outage, Poison};
use crate::engine::stage::{BatchResults, Stage};
use crate::image::color_profile::{ColorProfile, attach_profile};
use crate::image::pool::{BufferPool, PooledPicture};
use crate::image::upright_resizer::UprightResizer;
use crate::stages::photo::{DecodedPhoto, Previews, SizedPhoto};
use crate::stages::sizes::OutputSizes;

/// JPEG quality of previews and thumbnails: a preview of 2048 pixels has 650 KB.
const PREVIEW_QUALITY: i32 = 80;

/// The stage `resize`; one per thread.
pub(crate) struct Resize {
    resizer: UprightResizer,
    compressor: Compressor,
    pool: BufferPool,
    /// The most cells per photo and network in grid mode.
    max_cells: u32,
}

impl Resize {
    /// Creates the stage; its pictures take their buffers from `pool`. Grids are divided into at most `max_cells`.
    ///
    /// # Errors
    /// When libjpeg-turbo cannot allocate its state.
    pub(crate) fn new(pool: BufferPool, max_cells: u32) -> turbojpeg::Result<Self> {
        let (compressor, resizer) = (preview_compressor()?, UprightResizer::new(pool.clone()));
        Ok(Self { resizer, compressor, pool, max_cells })
    }

    fn resize_photo(&mut self, photo: &DecodedPhoto) -> Result<SizedPhoto, Poison> {
        let size = Size { width: photo.metadata.size.width, height: photo.metadata.size.height };
        let sizes = OutputSizes::for_photo(size, &photo.metadata.lease.config, self.max_cells);
        let pictures = resize_all(&mut self.resizer, photo.picture.frame(), photo.orientation, sizes);
        let profile = photo.color_profile.as_ref();
        let small_profile = profile.filter(|profile| profile.suits_thumbnail());
        let previews = Previews {
            preview: self.encode_jpeg(pictures.preview.frame(), profile)?,
            thumbnail: self.encode_jpeg(pictures.thumbnail.frame(), small_profile)?,
            marked: self.encode_marked(photo, pictures.preview.frame())?,
        };
        photo.permit.shrink_to(pictures.frame.size_bytes() + previews.size_bytes());
        Ok(SizedPhoto {
            metadata: Arc::clone(&photo.metadata),
            frame: pictures.frame,
            previews,
            permit: Arc::clone(&photo.permit),
        })
    }

    /// Returns the preview with the watermark, if the photo gets one.
    fn encode_marked(&mut self, photo: &DecodedPhoto, preview: Frame<'_>) -> Result<Option<Bytes>, Poison> {
        let Some(watermark) = &photo.metadata.watermark else { return Ok(None) };
        // A copy, because networks may look at the same pixels.
        let mut pixels = self.pool.acquire_buffer(preview.pixels().len());
        pixels.copy_from_slice(preview.pixels());
        watermark.draw(&mut pixels, preview.size());
        let frame = Frame::new(&pixels, preview.width(), preview.height()).expect("as large as the preview");
        let marked = self.encode_jpeg(frame, photo.color_profile.as_ref())?;
        self.pool.return_buffer(pixels);
        Ok(Some(marked))
    }

    fn encode_jpeg(&mut self, frame: Frame<'_>, profile: Option<&ColorProfile>) -> Result<Bytes, Poison> {
        let (width, height) = (frame.width() as usize, frame.height() as usize);
        let image =
            Image { pixels: frame.pixels(), width, pitch: width * 3, height, format: PixelFormat::RGB };
        let file = self.compressor.compress_to_vec(image).map_err(|error| {
            Poison::new(FailureReason::ProcessingCrashed, format!("cannot encode a preview: {error}"))
        })?;
        Ok(attach_profile(file, profile))
    }
}

/// Returns what encodes previews.
pub(crate) fn preview_compressor() -> turbojpeg::Result<Compressor> {
    let mut compressor = Compressor::new()?;
    compressor.set_quality(PREVIEW_QUALITY)?;
    // No optimised Huffman tables: they save 1 % of the bytes and cost 13 ms.
    compressor.set_subsamp(Subsamp::Sub2x2)?;
    Ok(compressor)
}

impl Stage for Resize {
    type In = DecodedPhoto;
    type Out = SizedPhoto;

    fn run(&mut self, batch: &[DecodedPhoto]) -> Result<BatchResults<SizedPhoto>, Outage> {
        Ok(batch.iter().map(|photo| self.resize_photo(photo)).collect())
    }
}

/// The pictures of one photo; those of equal size are shared.
struct ResizedPictures {
    frame: Arc<PooledPicture>,
    preview: Arc<PooledPicture>,
    thumbnail: Arc<PooledPicture>,
}

/// Makes the pictures in order of their size, the largest first, each from the one before.
fn resize_all(
    resizer: &mut UprightResizer,
    stored: Frame<'_>,
    orientation: Orientation,
    sizes: OutputSizes,
) -> ResizedPictures {
    let [largest, smaller @ ..] = sizes.largest_first();
    let mut pictures = vec![Arc::new(resizer.resize_upright(stored, orientation, largest))];
    for size in smaller {
        let larger = pictures.last().expect("the vector begins with one picture");
        if larger.size() != size {
            // Networks and people look closely at the others: these keep the sharper filter.
            let is_thumbnail_alone = size != sizes.frame && size != sizes.preview;
            let target = if is_thumbnail_alone {
                ResizeTarget::for_thumbnail(larger.size(), size)
            } else {
                ResizeTarget { size, filter: Filter::Bicubic }
            };
            pictures.push(Arc::new(resizer.resize(larger.frame(), target)));
        }
    }
    let picture_of = |size: Size| {
        let found = pictures.iter().find(|picture| picture.size() == size);
        Arc::clone(found.expect("each size was made, or equals the one before"))
    };
    ResizedPictures {
        frame: picture_of(sizes.frame),
        preview: picture_of(sizes.preview),
        thumbnail: picture_of(sizes.thumbnail),
    }
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::image::frame::Picture;
    use photofinish_kernels::resize::Resizer;

    use super::*;

    #[test]
    fn equal_sizes_are_one_picture() {
        let photo = Picture::new(vec![200; 90 * 60 * 3], 90, 60).unwrap();
        let mut resizer = UprightResizer::new(BufferPool::default());
        let whole = Size { width: 60, height: 90 };
        let small = Size { width: 20, height: 30 };
        let sizes = OutputSizes { frame: whole, preview: whole, thumbnail: small };
        let pictures = resize_all(&mut resizer, photo.frame(), Orientation::Rotate90, sizes);
        assert!(Arc::ptr_eq(&pictures.frame, &pictures.preview));
        assert_eq!((pictures.frame.size(), pictures.thumbnail.size()), (whole, small));
        assert!(pictures.thumbnail.frame().pixels().iter().all(|value| *value == 200));
    }

    #[test]
    fn only_a_thumbnail_is_made_of_means() {
        let whole = Size { width: 400, height: 300 };
        let (middle, small) = (Size { width: 100, height: 75 }, Size { width: 24, height: 18 });
        let noise = (0..whole.area() * 3).map(|i| ((i as u32).wrapping_mul(2_654_435_761) >> 24) as u8);
        let photo = Picture::new(noise.collect(), whole.width, whole.height).unwrap();
        let resized = |from: Frame<'_>, size: Size, filter: Filter| {
            Resizer::default().resize_frame(from, ResizeTarget { size, filter })
        };
        let sharp = resized(photo.frame(), middle, Filter::Bicubic);
        let mean = resized(photo.frame(), middle, Filter::Area);
        assert_ne!(sharp, mean);
        let mut resizer = UprightResizer::new(BufferPool::default());
        let mut resize =
            |sizes: OutputSizes| resize_all(&mut resizer, photo.frame(), Orientation::Upright, sizes);

        let large_preview = resize(OutputSizes { frame: middle, preview: whole, thumbnail: small });
        assert_eq!(large_preview.frame.frame().pixels(), sharp.frame().pixels());
        let thumbnail = resized(sharp.frame(), small, Filter::Area);
        assert_eq!(large_preview.thumbnail.frame().pixels(), thumbnail.frame().pixels());

        let small_preview = resize(OutputSizes { frame: whole, preview: middle, thumbnail: middle });
        assert_eq!(small_preview.preview.frame().pixels(), sharp.frame().pixels());

        let thumbnail_alone = resize(OutputSizes { frame: whole, preview: whole, thumbnail: middle });
        assert_eq!(thumbnail_alone.thumbnail.frame().pixels(), mean.frame().pixels());
    }

    #[test]
    fn a_thumbnail_larger_than_the_preview_is_made_too() {
        let photo = Picture::new(vec![7; 90 * 60 * 3], 90, 60).unwrap();
        let sizes = OutputSizes {
            frame: Size { width: 45, height: 30 },
            preview: Size { width: 30, height: 20 },
            thumbnail: Size { width: 60, height: 40 },
        };
        let mut resizer = UprightResizer::new(BufferPool::default());
        let pictures = resize_all(&mut resizer, photo.frame(), Orientation::Upright, sizes);
        assert_eq!(pictures.thumbnail.size(), sizes.thumbnail);
        assert_eq!(pictures.preview.size(), sizes.preview);
    }
}
