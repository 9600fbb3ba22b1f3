//! Windows of photos, resized into the canvases of one tensor: whole frames, grid cells, torsos. Of photos and windows
//! of any sizes, in one launch.

mod cpu;
mod plan;

pub(super) use self::plan::canvas_words;

use crate::device::Device;
use crate::gpu::{GpuError, Kernel, Source};
use crate::image::frame::{Size, Window};
use crate::image::tensor::{Normalisation, Tensor};

pub(super) static SOURCE: Source = Source {
    name: "letterbox",
    wgsl: concat!(include_str!("../pixels.wgsl"), include_str!("letterbox.wgsl")),
    cuda: include_str!("letterbox.cu"),
    entries: &["letterbox"],
};

static LETTERBOX: Kernel = Kernel { source: &SOURCE, entry: "letterbox", group: [32, 8, 1], writable: &[5] };

/// A picture and where it goes, as in [`crate::resize::letterbox::Letterbox::place_rows`].
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// What is placed.
    pub window: Window<'a>,
    /// Its size on the canvas; neither side is zero. What does not fit is cropped.
    pub size: Size,
    /// Rows of the resized picture above the canvas.
    pub skipped_rows: u32,
}

/// Writes each picture at the top left of its item of a tensor, which is given the shape of the batch: resized with the
/// filter of [`crate::resize::ResizeTarget::for_network_input`], normalised and padded. Pixels are the same on every
/// device.
///
/// # Errors
/// When the device fails, or one row of a photo is more than its largest buffer.
///
/// # Panics
/// When a side of a size is zero.
pub fn place_all(
    device: &Device,
    placements: &[Placement<'_>],
    canvas: Size,
    normalisation: &Normalisation,
    out: &mut Tensor,
) -> Result<(), GpuError> {
    out.reshape([placements.len(), 3, canvas.height as usize, canvas.width as usize]);
    match device {
        Device::Cpu => {
            cpu::place_all(placements, normalisation, out);
            Ok(())
        }
        Device::Gpu(gpu) => plan::place_all(&**gpu, placements, normalisation, out),
    }
}
