//! Photos resized to 8-bit pictures bicubically: working frames, previews, and thumbnails of which a side is more than a third
//! of what they are made from (others are means, which only the CPU makes). Of photos and results of any sizes, in one launch a
//! pass.

mod plan;

use crate::device::Device;
use crate::gpu::{GpuError, Kernel, Source};
use crate::image::frame::{Frame, Picture, Size};
use crate::resize::{Filter, ResizeTarget, Resizer};

pub(super) static SOURCE: Source = Source {
    name: "downscale",
    wgsl: concat!(include_str!("../pixels.wgsl"), include_str!("downscale.wgsl")),
    cuda: include_str!("downscale.cu"),
    entries: &["downscale_rows", "downscale_columns"],
};

static ROWS: Kernel =
    Kernel { source: &SOURCE, entry: "downscale_rows", group: [64, 1, 1], writable: &[4, 5] };
static COLUMNS: Kernel =
    Kernel { source: &SOURCE, entry: "downscale_columns", group: [64, 1, 1], writable: &[4, 5] };

/// A photo and the size of its result; neither side is zero.
pub type Downscale<'a> = (Frame<'a>, Size);

/// Resizes each photo as [`Filter::Bicubic`] does. The arithmetic is of whole numbers, so pixels are the same on every
/// device.
///
/// # Errors
/// When the device fails, or one row of a photo is more than its largest buffer.
///
/// # Panics
/// When a side of a size is zero.
pub fn resize_all(device: &Device, photos: &[Downscale<'_>]) -> Result<Vec<Picture>, GpuError> {
    match device {
        Device::Cpu => {
            let mut resizer = Resizer::default();
            let target = |size| ResizeTarget { size, filter: Filter::Bicubic };
            Ok(photos.iter().map(|(photo, size)| resizer.resize_frame(*photo, target(*size))).collect())
        }
        Device::Gpu(gpu) => plan::resize_all(&**gpu, photos),
    }
}
