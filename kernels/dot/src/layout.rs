//! How rows are laid out in memory, and who receives their dot products.

/// Rows of a block.
pub const BLOCK_ROWS: usize = 16;

/// Components of a row that are side by side in memory.
pub const GROUP: usize = 4;

/// What a component of 0 is stored as.
pub const ZERO: u8 = 128;

/// [`GROUP`] components of each row of a block: one line of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Line(pub [[u8; GROUP]; BLOCK_ROWS]);

impl Line {
    /// Components that are all 0.
    pub const ZERO: Self = Self([[ZERO; GROUP]; BLOCK_ROWS]);
}

/// Receives the dot products of one block with one probe. Implementations are best `#[inline(always)]`: they are then
/// compiled for the instructions of the processor too.
pub trait Visit {
    /// Is called with the dot product of each row of block `block` with probe `probe`.
    fn visit(&mut self, block: usize, probe: usize, dots: &[i32; BLOCK_ROWS]);
}
