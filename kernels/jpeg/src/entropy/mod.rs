//! Entropy decoding: from stuffed bytes to coefficients in natural order.
//!
//! Two steps, so that the inner loop has nothing to ask for. First the scan's bytes are copied, without their stuffed
//! zeros, into a window that stays in the cache, some 32 bytes a step. Then the bit reader refills from the window without
//! a branch: no marker can come, and the window always holds more bytes than the longest batch of blocks can eat, which is
//! asked once a batch. The first error ends it: what libjpeg-turbo makes of the rest is for libjpeg-turbo to say.
//!
//! Segments between restart markers are decoded one after the other. Two of them in step, or the two halves of a scan, would
//! be two chains of look-ups that do not wait for each other. Tried by hand on an EPYC (Zen 4), two walks that took turns
//! symbol by symbol took 12 % less time than one after the other on photos of 7 MB, 0 to 10 % less on those of 2.7 MB, and 5 to
//! 10 % more on those of .4 MB: a look-up is some 36 instructions, so that one chain keeps the processor busy already.

mod bits;
mod block;
mod reader;
mod unstuff;
mod walk;
mod window;

pub(crate) use block::Block;
pub(crate) use reader::Reader;
pub(crate) use window::Window;

/// Most blocks that are decoded at a go.
pub(crate) const MAX_BLOCKS: usize = 24;

/// Bytes that a block may eat: a DC coefficient, 63 others and one too many, of at most 27 bits each.
const MAX_BLOCK_BYTES: usize = 65 * 4;

/// Bytes that a go may eat.
const MAX_GO_BYTES: usize = MAX_BLOCKS * MAX_BLOCK_BYTES;
