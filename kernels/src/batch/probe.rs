//! Whether a device computes at all, and right.

use crate::batch::letterbox::{Placement, place_all};
use crate::device::Device;
use crate::gpu::GpuError;
use crate::image::frame::{Frame, Size};
use crate::image::tensor::{Channels, Normalisation, Tensor};

/// Pixels of the photo and of the canvas.
const PHOTO: (u32, u32) = (7, 5);
const CANVAS: Size = Size { width: 4, height: 4 };

/// Shrinks a tiny photo on the device and compares it with the processor's.
///
/// # Errors
/// When the device fails, or computes something else.
pub fn check(device: &Device) -> Result<(), GpuError> {
    let pixels: Vec<u8> = (0..PHOTO.0 * PHOTO.1 * 3).map(|index| (index * 37 % 251) as u8).collect();
    let frame = Frame::new(&pixels, PHOTO.0, PHOTO.1).map_err(|error| GpuError::Failed(error.to_string()))?;
    let placement =
        Placement { window: frame.as_window(), size: Size { width: 4, height: 3 }, skipped_rows: 0 };
    let place = |device: &Device| {
        let mut tensor = Tensor::default();
        let normalisation = Normalisation::raw(Channels::Rgb);
        place_all(device, &[placement], CANVAS, &normalisation, &mut tensor).map(|()| tensor)
    };
    let (expected, found) = (place(&Device::Cpu)?, place(device)?);
    let worst = expected.data().iter().zip(found.data()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // One level: a device may fuse products and sums.
    if worst <= 1.0 { Ok(()) } else { Err(GpuError::Failed(format!("it computes wrong pixels, by {worst}"))) }
}
