//! Dot products of some 8-bit vectors (probes) with many (rows): exact integers, so every processor gives the same.
//!
//! Rows are stored in blocks of [`BLOCK_ROWS`]. A block is one [`Line`] per [`GROUP`] components: the first four components of
//! its 16 rows, then the next four, and so on. So one instruction adds up four products of each of 16 rows, no sum goes
//! across a vector, and a block is read from its first byte to its last. A component `c`, -127 to 127, is stored as `c + 128`,
//! because the instructions of x86 multiply unsigned by signed bytes; what that adds to a dot product, 128 times the sum of
//! the probe's components, is the same for all rows and is taken off again.
//!
//! `unsafe` is only in the two modules of x86, for loads and stores of whole lines and for calling code that is compiled for
//! instructions that were found to be there, and in [`Lines`], the memory of rows, which is aligned to huge pages.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod cpu;
mod layout;
mod lines;
mod portable;
#[cfg(target_arch = "x86_64")]
mod prefetch;
mod probes;
#[cfg(target_arch = "x86_64")]
mod vnni;

pub use self::layout::{BLOCK_ROWS, GROUP, Line, Visit, ZERO};
pub use self::lines::Lines;
pub use self::probes::Probes;

use self::cpu::Cpu;

/// Computes dot products with the best instructions of the processor. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct DotProducts {
    cpu: Cpu,
}

impl DotProducts {
    /// Asks the processor what it has.
    pub fn detect() -> Self {
        Self { cpu: Cpu::detect() }
    }

    /// Returns one per kind of instructions that this processor has, the portable one first: for tests that compare them.
    pub fn list_supported() -> Vec<Self> {
        Cpu::list_supported().into_iter().map(|cpu| Self { cpu }).collect()
    }

    /// Returns the name of the instructions.
    pub fn name(&self) -> &'static str {
        self.cpu.name()
    }

    /// Visits each block with each probe. `rows` are whole blocks of vectors as long as the probes. Blocks come in order,
    /// but a few of them at a time for some probes, then for the next.
    ///
    /// # Panics
    /// When `rows` are not whole blocks.
    pub fn for_each_block(&self, probes: &Probes, rows: &[Line], visit: &mut impl Visit) {
        assert!(rows.len().is_multiple_of(probes.groups()), "blocks of {} lines", probes.groups());
        match self.cpu {
            Cpu::Portable => portable::for_each_block(probes, rows, visit),
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx2(proof) => avx2::for_each_block(proof, probes, rows, visit),
            #[cfg(target_arch = "x86_64")]
            Cpu::Vnni(proof) => vnni::for_each_block(proof, probes, rows, visit),
        }
    }
}
