//! The decoder: the buffers that are kept from file to file, and the choice of instructions.

use std::fmt;

use crate::cpu::Cpu;
use crate::fault::Damage;
use crate::header::Header;
use crate::scale::Scale;
use crate::scan::{self, Buffers};

/// Most bytes of memory that a [`Decoder`] keeps for itself, whatever the pictures: 5 MiB.
pub const MAX_BUFFER_BYTES: usize = 5 << 20;

const _: () = assert!(Buffers::MAX_BYTES <= MAX_BUFFER_BYTES);

/// Decodes files; one a thread. Keeps its buffers and tables from file to file.
pub struct Decoder {
    cpu: Cpu,
    buffers: Buffers,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Decoder").field("uses_vectors", &self.uses_vectors()).finish_non_exhaustive()
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Creates a decoder that uses the vector instructions of this processor.
    pub fn new() -> Self {
        Self { cpu: Cpu::detect(), buffers: Buffers::new() }
    }

    /// Creates a decoder without vector code, as on a processor that has none. Its pixels are the same.
    pub fn portable() -> Self {
        Self { cpu: Cpu::Portable, buffers: Buffers::new() }
    }

    /// Whether it uses vector instructions.
    pub fn uses_vectors(&self) -> bool {
        !matches!(self.cpu, Cpu::Portable)
    }

    /// Decodes as row-major RGB into `out`, of [`Header::rgb_bytes`]. Allocates at most [`MAX_BUFFER_BYTES`], and that for
    /// all files together.
    ///
    /// # Errors
    /// At the first damage. What is in `out` then is of no use: another decoder may make more of the file.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn decode(&mut self, header: &Header<'_>, scale: Scale, out: &mut [u8]) -> Result<(), Damage> {
        assert_eq!(out.len(), header.rgb_bytes(scale), "bytes of the picture at {scale:?}");
        scan::decode(self.cpu, &mut self.buffers, header, scale, out)
    }
}
