//! What is sampled, and the kernel.

use crate::geometry::{Point, Quad};
use crate::gpu::{Kernel, Source};
use crate::image::frame::Frame;

pub(crate) static SOURCE: Source = Source {
    name: "warp",
    wgsl: concat!(include_str!("../pixels.wgsl"), include_str!("warp.wgsl")),
    cuda: include_str!("warp.cu"),
    entries: &["warp"],
};

pub(super) static WARP: Kernel = Kernel { source: &SOURCE, entry: "warp", group: [32, 8, 1], writable: &[3] };

/// A face of a photo: its landmarks in pixels, in the order of the detector.
#[derive(Clone, Copy, Debug)]
pub struct Face<'a> {
    /// The photo.
    pub frame: Frame<'a>,
    /// Where the landmarks are.
    pub landmarks: [Point; 5],
}

/// A text of a photo: its corners in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The photo.
    pub frame: Frame<'a>,
    /// Where the text is.
    pub quad: Quad,
}
