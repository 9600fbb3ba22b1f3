//! Outputs of the network, faces, and the kernels.

use crate::geometry::{Point, Rect};
use crate::gpu::{Kernel, Source};

pub(crate) static SOURCE: Source = Source {
    name: "faces",
    wgsl: include_str!("faces.wgsl"),
    cuda: include_str!("faces.cu"),
    entries: &["faces_decode", "faces_suppress"],
};

pub(super) static DECODE: Kernel =
    Kernel { source: &SOURCE, entry: "faces_decode", group: [256, 1, 1], writable: &[2, 3] };
pub(super) static SUPPRESS: Kernel =
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
    pub(super) fn cells(&self) -> usize {
        self.columns * self.rows
    }
}
