//! A block of coefficients, and all that its decoding must know: so that one pointer moves from block to block.

use crate::huffman::HuffmanTable;
use crate::zigzag::NATURAL;

/// The index in a block's values that positions beyond the block are stored at.
const BEYOND: u8 = 64;

/// Where a zigzag position is stored. Positions beyond the block, which are those of a broken run and of a second symbol that
/// is the next block's, are stored in its [`Block::beyond`].
pub(super) static STORE_AT: [u8; 256] = {
    let mut at = [BEYOND; 256];
    let mut k = 0;
    while k < 64 {
        at[k] = NATURAL[k];
        k += 1;
    }
    at
};

/// A block of coefficients.
#[repr(C, align(32))]
pub(crate) struct Block<'t> {
    /// In natural order.
    pub(crate) values: [i16; 64],
    /// What is stored at [`BEYOND`] lands in the first of these.
    beyond: [i16; 8],
    pub(super) ac: &'t HuffmanTable,
    /// Of the block after this.
    pub(super) next_dc: &'t HuffmanTable,
}

impl<'t> Block<'t> {
    /// A block of zeros.
    pub(crate) fn new(ac: &'t HuffmanTable, next_dc: &'t HuffmanTable) -> Self {
        Self { values: [0; 64], beyond: [0; 8], ac, next_dc }
    }
}
