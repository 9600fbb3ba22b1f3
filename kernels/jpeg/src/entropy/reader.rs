//! Reads one segment after another: what lies between two markers.

use crate::cpu::Cpu;
use crate::entropy::MAX_BLOCKS;
use crate::entropy::bits::{BitState, Bits};
use crate::entropy::block::Block;
use crate::entropy::walk;
use crate::entropy::window::Window;
use crate::fault::Damage;
use crate::huffman::HuffmanTable;

const END_OF_IMAGE: u8 = 0xd9;
const FIRST_RESTART: u8 = 0xd0;

/// Reads the entropy-coded bytes of a scan.
pub(crate) struct Reader<'a> {
    file: &'a [u8],
    /// Of the next byte to unstuff.
    offset: usize,
    window: &'a mut Window,
    state: BitState,
    cpu: Cpu,
}

impl<'a> Reader<'a> {
    /// `offset` is where the scan's bytes begin.
    pub(crate) fn new(file: &'a [u8], offset: usize, window: &'a mut Window, cpu: Cpu) -> Self {
        let mut reader = Self { file, offset, window, state: BitState::default(), cpu };
        reader.begin_segment();
        reader
    }

    /// Decodes blocks whose values are zeros, the first of which begins with the table `dc`. A DC coefficient is left as
    /// the difference that was read.
    ///
    /// # Errors
    /// When the segment has ended before, or is damaged.
    pub(crate) fn decode<'t>(
        &mut self,
        dc: &'t HuffmanTable,
        blocks: &mut [Block<'t>],
    ) -> Result<(), Damage> {
        debug_assert!(blocks.len() <= MAX_BLOCKS);
        if self.state.next() > self.window.limit() && !self.refill_window() {
            return Err(Damage::EndsEarly);
        }
        let window = self.window.bytes();
        let mut bits = Bits::new(self.state, window);
        let result = walk::decode_blocks(self.cpu, &mut bits, dc, blocks);
        self.state = bits.state(window);
        result
    }

    /// Goes on behind the restart marker of that number.
    ///
    /// # Errors
    /// When the segment was not read to its end, or the marker is not the expected one.
    pub(crate) fn restart(&mut self, number: usize) -> Result<(), Damage> {
        self.expect_marker(FIRST_RESTART + (number % 8) as u8)?;
        self.offset += 2;
        self.begin_segment();
        Ok(())
    }

    /// # Errors
    /// When the scan was not read to its end, or something else than the end marker follows.
    pub(crate) fn finish(&mut self) -> Result<(), Damage> {
        self.expect_marker(END_OF_IMAGE)
    }

    fn begin_segment(&mut self) {
        self.window.clear();
        self.state = BitState::default();
        self.offset = self.window.fill(0, self.file, self.offset);
    }

    fn move_window(&mut self) {
        self.offset = self.window.fill(self.state.next(), self.file, self.offset);
        self.state = self.state.moved_to_front();
    }

    /// Whether a go may be read after refilling.
    #[cold]
    fn refill_window(&mut self) -> bool {
        if self.window.has_ended() {
            return false;
        }
        self.move_window();
        self.state.next() <= self.window.limit()
    }

    /// Checks that the segment was read to its last byte, and that `marker` follows.
    fn expect_marker(&mut self, marker: u8) -> Result<(), Damage> {
        if !self.window.has_ended() {
            self.move_window();
        }
        let left = self.window.filled() as isize * 8 - self.state.consumed_bits();
        match left {
            _ if !self.window.has_ended() => Err(Damage::LeftOver),
            ..0 => Err(Damage::EndsEarly),
            // The last byte is filled up with bits of no meaning.
            0..8 if self.file.get(self.offset + 1) == Some(&marker) => Ok(()),
            0..8 => Err(Damage::MissingMarker),
            8.. => Err(Damage::LeftOver),
        }
    }
}
