//! The k rows of an album most similar to each of many probes, with vectors of 8-bit or 16-bit components that stay on
//! the device.

mod album;
mod cpu;
mod plan;
mod types;

use crate::device::Device;
use crate::gpu::GpuError;

pub use self::album::Album;
pub(super) use self::types::SOURCE;
pub use self::types::{Components, Found, MAX_K, Vectors};

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
