//! The same in plain Rust, for processors without the instructions of the other modules; the reference of the tests.

use crate::layout::{BLOCK_ROWS, Line, Visit};
use crate::probes::{Probes, TILE};

/// See [`crate::DotProducts::for_each_block`].
pub(crate) fn for_each_block(probes: &Probes, rows: &[Line], visit: &mut impl Visit) {
    for (block, lines) in rows.chunks_exact(probes.groups()).enumerate() {
        for probe in 0..probes.len() {
            let mut dots = [probes.offset(probe); BLOCK_ROWS];
            for (line, group) in lines.iter().zip(probes.tile(probe / TILE * TILE)) {
                let factors = group[probe % TILE].map(i32::from);
                for (dot, components) in dots.iter_mut().zip(&line.0) {
                    for (component, factor) in components.iter().zip(factors) {
                        *dot += i32::from(*component) * factor;
                    }
                }
            }
            visit.visit(block, probe, &dots);
        }
    }
}
