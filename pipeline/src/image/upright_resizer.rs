//! Resizes stored pictures and turns them upright, in pooled buffers. Used for photos and for selfies.

use photofinish_kernels::image::frame::{Frame, Picture, Size};
use photofinish_kernels::image::orient::{Orientation, apply_orientation};
use photofinish_kernels::resize::{Filter, ResizeTarget, Resizer};

use crate::image::pool::{BufferPool, PooledPicture};

/// Makes smaller, upright pictures; one per thread.
pub(crate) struct UprightResizer {
    resizer: Resizer,
    pool: BufferPool,
}

impl UprightResizer {
    pub(crate) fn new(pool: BufferPool) -> Self {
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
        let size = orientation.transform_size(size);
        let shrunk = self.resize_pixels(stored, ResizeTarget { size, filter: Filter::Bicubic });
        PooledPicture::new(apply_orientation(shrunk, orientation), &self.pool)
    }

    /// Resizes an upright picture.
    pub(crate) fn resize(&mut self, frame: Frame<'_>, target: ResizeTarget) -> PooledPicture {
        PooledPicture::new(self.resize_pixels(frame, target), &self.pool)
    }

    fn resize_pixels(&mut self, frame: Frame<'_>, target: ResizeTarget) -> Picture {
        let size = target.size;
        let mut pixels = self.pool.acquire_buffer(size.area() * 3);
        self.resizer.resize(frame.as_window(), target, &mut pixels);
        Picture::new(pixels, size.width, size.height).expect("resize writes width * height * 3 bytes")
    }
}
