//! YuNet's outputs to faces: scores, boxes and landmarks of all cells at three strides, thresholded, and non-maximum
//! suppression for each photo (Wu, Peng, Yu: "YuNet: a tiny millisecond-level face detector", 2023).

mod cpu;
mod plan;

use crate::device::Device;
use crate::geometry::{Point, Rect};
use crate::gpu::{GpuError, Kernel, Source};

pub(super) static SOURCE: Source = Source {
    name: "faces",
    wgsl: include_str!("faces.wgsl"),
    cuda: include_str!("faces.cu"),
    entries: &["faces_decode", "faces_suppress"],
};

static DECODE: Kernel =
    Kernel { source: &SOURCE, entry: "faces_decode", group: [256, 1, 1], writable: &[2, 3] };
static SUPPRESS: Kernel =
    Kernel { source: &SOURCE, entry: "faces_suppress", group: [256, 1, 1], writable: &[2, 3, 4] };

/// The outputs of one stride for a batch of photos whose inputs have one size: row-major cells, photo after photo.
#[derive(Clone, Copy, Debug)]
pub struct Level<'a> {
    /// Pixels of the input a cell.
    pub stride: u32,
    /// Cells of a row.
    pub columns: usize,
    /// Rows of cells.
    pub rows: usize,
    /// A number a cell: is it a face.
    pub classes: &'a [f32],
    /// A number a cell: is it an object.
    pub objects: &'a [f32],
    /// Four numbers a cell: the middle's distance from the cell, and the logarithms of width and height, in strides.
    pub boxes: &'a [f32],
    /// Ten numbers a cell: distances of five landmarks from the cell, in strides.
    pub landmarks: &'a [f32],
}

/// The outputs of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Detections<'a> {
    /// One for each stride.
    pub levels: &'a [Level<'a>],
    /// For each photo: its pixels a pixel of the input, horizontally and vertically.
    pub scales: &'a [Point],
    /// The least score.
    pub min_score: f32,
    /// Of two boxes with a larger intersection over union, the one with the higher score stays.
    pub max_iou: f32,
}

/// A face in pixels of the photo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundFace {
    /// The box.
    pub rect: Rect,
    /// Eyes, nose and corners of the mouth.
    pub landmarks: [Point; 5],
    /// 0 to 1.
    pub score: f32,
}

impl Level<'_> {
    fn cells(&self) -> usize {
        self.columns * self.rows
    }
}

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
