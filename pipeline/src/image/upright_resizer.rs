//! Resizes stored pictures and turns them upright, in pooled buffers. Used for photos and for selfies.

use photofinish_kernels::image::frame::{Frame, Picture, Size};
use photofinish_kernels::image::orient::{Orientation, apply_orientation};
use photofinish_kernels::resize::{Filter, ResizeTarget, Resizer};

use crate::image::pool::{PixelPool, PooledPicture};

/// From this factor on a smaller copy of a picture, as a thumbnail of the preview, is made of the means of the areas that its pixels
/// cover. The bicubic filter looks at areas four times as wide and as high, and takes a multiple of the time (`bench reading`).
const MEAN_FROM_FACTOR: u32 = 3;

/// Makes smaller, upright pictures; one per thread.
pub(crate) struct UprightResizer {
    resizer: Resizer,
    pool: PixelPool,
}

impl UprightResizer {
    pub(crate) fn new(pool: PixelPool) -> Self {
        Self { resizer: Resizer::default(), pool }
    }

    /// Turns a stored picture upright at `size`, which is the size of the upright result.
    pub(crate) fn resize_upright(
        &mut self,
        stored: Frame<'_>,
        orientation: Orientation,
        size: Size,
    ) -> PooledPicture {
        // Shrink first: the cost of rotating is proportional to the number of pixels.
        let shrunk = self.resize_pixels(stored, orientation.transform_size(size), Filter::Bicubic);
        PooledPicture::new(apply_orientation(shrunk, orientation), &self.pool)
    }

    /// Resizes an upright picture.
    pub(crate) fn resize(&mut self, frame: Frame<'_>, size: Size) -> PooledPicture {
        let is_far_smaller = |side: u32, of: u32| side.saturating_mul(MEAN_FROM_FACTOR) <= of;
        let both = is_far_smaller(size.width, frame.width()) && is_far_smaller(size.height, frame.height());
        let filter = if both { Filter::Area } else { Filter::Bicubic };
        PooledPicture::new(self.resize_pixels(frame, size, filter), &self.pool)
    }

    fn resize_pixels(&mut self, frame: Frame<'_>, size: Size, filter: Filter) -> Picture {
        let mut pixels = self.pool.acquire_buffer(size.area() * 3);
        let target = ResizeTarget { size, filter };
        self.resizer.resize(frame.as_window(), target, &mut pixels);
        Picture::new(pixels, size.width, size.height).expect("resize writes width * height * 3 bytes")
    }
}
