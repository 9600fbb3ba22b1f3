//! The reference: one picture after another.

use super::types::Placement;
use crate::device::Device;
use crate::image::tensor::{Normalisation, Slot, Tensor};
use crate::resize::letterbox::Letterbox;

pub(super) fn place_all(placements: &[Placement<'_>], normalisation: &Normalisation, out: &mut Tensor) {
    let mut letterbox = Letterbox::new(&Device::Cpu);
    for (item, placement) in placements.iter().enumerate() {
        let slot = Slot { tensor: out, item, normalisation };
        letterbox.place_rows(placement.window, placement.size, placement.skipped_rows, slot);
    }
}
