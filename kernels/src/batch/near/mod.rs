//! The rows of some lists that may be answers to each of many probes, with the lists on the device: the heavy part of a
//! pass of [`crate::quantised`].
//!
//! A device finds at least the rows whose scores may reach the least one of their probe by the bounds that
//! [`Scanner`](crate::quantised::Scanner) looks at first, and few others. [`judge`](crate::quantised::judge) then gives
//! the candidates that the scanner gives, so an answer does not depend on the device.
//!
//! A list is copied to the device when it is first searched there, and again after each change: [`QuantisedRows`] gives
//! its copy up when it changes, and when it is dropped.

mod cpu;
mod plan;
mod types;

use self::plan::{Bounds, GpuSearch};
use crate::device::Device;
use crate::gpu::GpuError;
use crate::quantised::{ProbeBatch, QuantisedRows};

pub use self::types::NearRows;
pub(super) use self::types::SOURCE;

/// Returns the rows whose scores may reach the minimum of a probe in `min_scores`. The lists are numbered from `first`
/// on: each must have the same number in all searches on a device, or it is copied there again.
///
/// # Errors
/// When the device has no memory for the lists, or fails. Lists that were copied to it stay there.
///
/// # Panics
/// When probes and rows differ in length, or there is not one minimum per probe.
pub fn find(
    device: &Device,
    probes: &ProbeBatch,
    lists: &[&QuantisedRows],
    first: u32,
    min_scores: &[f32],
) -> Result<NearRows, GpuError> {
    assert_eq!(probes.len(), min_scores.len(), "a minimum per probe");
    assert!(lists.iter().all(|rows| rows.dimension() == probes.dimension()), "vectors of one length");
    let longest = lists.iter().map(|rows| rows.len()).max().unwrap_or(0);
    let mut near = NearRows::empty(probes.len(), lists.len(), longest);
    if longest == 0 {
        return Ok(near);
    }
    let bounds = Bounds::new(probes, lists, min_scores);
    match device {
        Device::Cpu => cpu::find(probes, lists, &bounds, &mut near),
        Device::Gpu(gpu) => {
            GpuSearch { gpu: &**gpu, probes, lists, bounds: &bounds, first }.run(&mut near)?;
        }
    }
    for unbounded in bounds.unbounded() {
        near.mark_all(unbounded.list, unbounded.probe, lists[unbounded.list].len());
    }
    Ok(near)
}

/// Returns the bytes that a list takes on a device.
pub fn count_bytes(rows: &QuantisedRows) -> usize {
    plan::count_bytes(rows)
}
