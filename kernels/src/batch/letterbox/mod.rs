//! Windows of photos, resized into the canvases of one tensor: whole frames, grid cells, torsos. Of photos and windows
//! of any sizes, in one launch.

mod cpu;
mod plan;
mod types;

pub use self::types::Placement;
pub(super) use self::{plan::canvas_words, types::SOURCE};

use crate::device::Device;
use crate::gpu::GpuError;
use crate::image::frame::Size;
use crate::image::tensor::{Normalisation, Tensor};

/// Writes each picture at the top left of its item of a tensor, which is given the shape of the batch: resized with the
/// filter of [`crate::resize::ResizeTarget::for_network_input`], normalised and padded. Pixels are the same on every
/// device that rounds products and sums one by one; on others a pixel may differ by one level.
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
