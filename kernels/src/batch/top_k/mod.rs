//! The k rows of an album most similar to each of many probes, with vectors of 8-bit or 16-bit components that stay on
//! the device.

mod album;
mod cpu;
mod plan;

use crate::device::Device;
use crate::gpu::{GpuError, Kernel, Source};

pub use self::album::{Album, Components};

pub(super) static SOURCE: Source = Source {
    name: "top_k",
    wgsl: include_str!("top_k.wgsl"),
    cuda: include_str!("top_k.cu"),
    entries: &["top_k_i8", "top_k_f16"],
};

static TOP_K_I8: Kernel = Kernel { source: &SOURCE, entry: "top_k_i8", group: [256, 1, 1], writable: &[5] };
static TOP_K_F16: Kernel = Kernel { source: &SOURCE, entry: "top_k_f16", group: [256, 1, 1], writable: &[5] };

/// Most rows that a search returns a probe.
pub const MAX_K: usize = 256;

/// Vectors of equal length: their components, and a factor for each vector.
#[derive(Clone, Copy, Debug)]
pub struct Vectors<'a> {
    /// Vector after vector.
    pub components: Components<'a>,
    /// By which a vector's components are multiplied, one a vector.
    pub factors: &'a [f32],
}

/// A row found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its index.
    pub row: usize,
    /// The dot product of the components times both factors.
    pub score: f32,
}

/// Returns the `k` best rows for each probe, best first; of equal scores the lower index is first. With 8-bit
/// components scores are the same on every device; with 16-bit ones within 1e-5 where a device fuses products and sums.
///
/// # Errors
/// When the device fails.
///
/// # Panics
/// When probes and album differ in length or kind, or `k` is above [`MAX_K`].
pub fn search(album: &Album, probes: &Vectors<'_>, k: usize) -> Result<Vec<Vec<Found>>, GpuError> {
    assert!(k <= MAX_K, "{k} rows");
    let probes = album::Packed::new(probes, album.dimension());
    assert_eq!(probes.kind, album.kind(), "probes of the album's kind");
    if album.is_empty() || k == 0 {
        return Ok(vec![Vec::new(); probes.factors.len()]);
    }
    match album.device() {
        Device::Cpu => Ok(cpu::search(album, &probes, k)),
        Device::Gpu(gpu) => plan::search(&**gpu, album, &probes, k),
    }
}
