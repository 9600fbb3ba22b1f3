//! The samples of one row of MCUs, component by component, below the last row of those above.

use crate::scan::layout::{Layout, MAX_SIDE};

/// Rows of samples of a component.
#[derive(Default)]
pub(super) struct Plane {
    samples: Vec<u8>,
    stride: usize,
}

impl Plane {
    /// The samples from that place to the end, and the length of a row.
    pub(super) fn at(&mut self, row: usize, column: usize) -> (&mut [u8], usize) {
        (&mut self.samples[(row + 1) * self.stride + column..], self.stride)
    }

    /// The first `width` samples of a row, from 1; 0 is the last of the MCUs above.
    pub(super) fn row(&self, row: usize, width: usize) -> &[u8] {
        &self.samples[row * self.stride..][..width]
    }
}

/// The samples of a row of MCUs.
#[derive(Default)]
pub(super) struct Planes([Plane; 3]);

impl Planes {
    /// Most bytes of all: 17 rows of brightness (4:2:0) and twice 9 of colour (4:4:4).
    pub(super) const MAX_BYTES: usize = (17 + 2 * 9) * (MAX_SIDE + 32);

    /// Makes room.
    pub(super) fn prepare(&mut self, layout: &Layout) {
        for (plane, part) in self.0.iter_mut().zip(&layout.parts) {
            // Room for an odd batch's partner.
            plane.stride = (layout.mcus * part.blocks_across + 1) * part.side;
            let bytes = plane.stride * (part.rows() + 1);
            if plane.samples.capacity() < bytes {
                // Freed first, so that there are never two.
                plane.samples = Vec::new();
                plane.samples = vec![0; bytes];
            }
            plane.samples.resize(bytes, 0);
        }
    }

    pub(super) fn get(&self, component: usize) -> &Plane {
        &self.0[component]
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Plane> {
        self.0.iter_mut()
    }

    /// Keeps the last row of each component for the MCUs below.
    pub(super) fn carry_last_rows(&mut self, layout: &Layout) {
        for (plane, part) in self.0.iter_mut().zip(&layout.parts) {
            let last = part.rows() * plane.stride;
            plane.samples.copy_within(last..last + plane.stride, 0);
        }
    }
}
