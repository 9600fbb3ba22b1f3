//! What is placed, and the kernel.

use crate::gpu::{Kernel, Source};
use crate::image::frame::{Size, Window};

pub(crate) static SOURCE: Source = Source {
    name: "letterbox",
    wgsl: concat!(include_str!("../pixels.wgsl"), include_str!("letterbox.wgsl")),
    cuda: include_str!("letterbox.cu"),
    entries: &["letterbox"],
};

pub(super) static LETTERBOX: Kernel =
    Kernel { source: &SOURCE, entry: "letterbox", group: [32, 8, 1], writable: &[5] };

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
