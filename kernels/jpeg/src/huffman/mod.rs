//! Huffman tables as the decoder wants them: one look at the next bits answers up to two whole symbols.
//!
//! The time of JPEG's entropy decoding is a chain: look up, learn the length, shift, look up. Its latency (some 8 cycles)
//! is paid once a look-up, however much else the look-up answers. So an entry answers as much as fits: the lengths of
//! code and value together, the run, the value already sign-extended, and a second symbol if it fits too. The end of a
//! block is a symbol like another, whose run leads out of the block, so it needs no branch.

mod cache;
mod entry;
mod spec;
mod table;

pub(crate) use cache::{TableCache, TablePair};
pub(crate) use entry::Entry;
pub(crate) use spec::{Class, HuffmanSpec};
pub(crate) use table::HuffmanTable;
