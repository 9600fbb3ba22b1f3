//! YuNet's outputs to faces: scores, boxes and landmarks of all cells at three strides, thresholded, and non-maximum
//! suppression for each photo (Wu, Peng, Yu: "YuNet: a tiny millisecond-level face detector", 2023).

mod cpu;
mod plan;
mod types;

use crate::device::Device;
use crate::gpu::GpuError;

pub(super) use self::types::SOURCE;
pub use self::types::{Detections, FoundFace, Level};

/// Returns the faces of each photo, by score in descending order. Of equal scores the one of the earlier cell is first.
/// On a GPU, boxes differ by what its exponential does: less than 1e-4 of a side.
///
/// # Errors
/// When the device fails, or an output has not the length that levels and photos give.
pub fn find_all(device: &Device, detections: &Detections<'_>) -> Result<Vec<Vec<FoundFace>>, GpuError> {
    let photos = detections.scales.len();
    for level in detections.levels {
        let lengths = [level.classes, level.objects, level.boxes, level.landmarks].map(<[f32]>::len);
        let numbers = [1, 1, 4, 10].map(|numbers| numbers * level.cells() * photos);
        if lengths != numbers {
            let (stride, text) = (level.stride, "outputs have another length than");
            return Err(GpuError::Failed(format!("{text} those of {photos} photos at stride {stride}")));
        }
    }
    match device {
        Device::Cpu => Ok((0..photos).map(|photo| cpu::find(detections, photo)).collect()),
        Device::Gpu(gpu) => plan::find_all(&**gpu, detections),
    }
}
