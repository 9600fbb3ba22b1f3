//! HEIC: still pictures coded with HEVC in a HEIF container. The crate `heifer` parses and decodes; what it is given is
//! bounded here first. In a build without the cargo feature `heic`, every such file is unsupported.

#[cfg(not(feature = "heic"))]
mod absent;
#[cfg(feature = "heic")]
mod bands;
#[cfg(feature = "heic")]
mod canvas;
#[cfg(feature = "heic")]
mod container;
#[cfg(feature = "heic")]
mod still;
#[cfg(feature = "heic")]
mod stream;
#[cfg(test)]
#[cfg(feature = "heic")]
mod tests;

use photofinish_kernels::image::frame::Size;

#[cfg(not(feature = "heic"))]
pub(crate) use self::absent::{decode, read_header, read_orientation};
#[cfg(feature = "heic")]
pub(crate) use self::still::{decode, read_header, read_orientation};
use crate::image::color_profile::ColorProfile;

/// The header of a file.
pub(crate) struct HeicHeader {
    /// Size of the stored picture, which is what the file shows of the coded pixels.
    pub(crate) size: Size,
    /// Size of all coded pixels: tiles may reach beyond the picture.
    pub(crate) coded_size: Size,
    /// Peak memory of decoding, bytes, including the result.
    pub(crate) peak_bytes: usize,
    /// Which colours the pixels stand for, if the file says so.
    pub(crate) color_profile: Option<ColorProfile>,
}
