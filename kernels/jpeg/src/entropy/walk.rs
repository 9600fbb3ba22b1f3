//! The loop over all symbols of some blocks.
//!
//! Where a block ends is not to be foreseen, and a branch that asks for it is mispredicted once a block, at the cost of
//! some five look-ups. So the blocks are one loop: the end of a block is a bit in the entry, by which the next table is
//! chosen and the pointer moves, without a branch, while the next index is still being made.

#![expect(
    unsafe_code,
    reason = "the pointer to the block moves without a branch, so it is no index of a slice"
)]

use std::hint::select_unpredictable;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use crate::cpu::Cpu;
use crate::entropy::MAX_BLOCK_BYTES;
use crate::entropy::bits::{Bits, REFILL_BYTES};
use crate::entropy::block::{Block, STORE_AT};
use crate::fault::Damage;
use crate::huffman::{Entry, HuffmanTable};

/// The last position of a block.
const LAST: u32 = 63;

/// Decodes blocks whose values are zeros, at least one, the first of which begins with the table `dc`.
///
/// # Panics
/// When the window has not the bytes that the longest codes of that many blocks may eat.
pub(super) fn decode_blocks<'t>(
    cpu: Cpu,
    bits: &mut Bits<'_>,
    dc: &'t HuffmanTable,
    blocks: &mut [Block<'t>],
) -> Result<(), Damage> {
    match cpu {
        Cpu::Portable => decode(bits, dc, blocks),
        #[cfg(target_arch = "x86_64")]
        Cpu::Avx2(_) => {
            debug_assert!(crate::cpu::Avx2::is_detected());
            // SAFETY: the proof says that the processor has these instructions.
            unsafe { decode_bmi2(bits, dc, blocks) }
        }
    }
}

/// With BMI2 a shift takes its count from any register and leaves the flags alone: the chain gets shorter.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi1,bmi2,lzcnt,movbe")]
fn decode_bmi2<'t>(
    bits: &mut Bits<'_>,
    dc: &'t HuffmanTable,
    blocks: &mut [Block<'t>],
) -> Result<(), Damage> {
    decode(bits, dc, blocks)
}

#[inline(always)]
fn decode<'t>(bits: &mut Bits<'_>, dc: &'t HuffmanTable, blocks: &mut [Block<'t>]) -> Result<(), Damage> {
    assert!(!blocks.is_empty());
    assert!(bits.remaining_bytes() >= blocks.len() * MAX_BLOCK_BYTES + 2 * REFILL_BYTES);
    let mut walk = Walk::new(*bits, dc, blocks);
    let result = loop {
        walk.refill();
        let pause = match walk.take_steps() {
            ControlFlow::Break(Pause::LongCode) => walk.take_long_step(),
            pause => pause,
        };
        match pause {
            ControlFlow::Break(Pause::Done) => break Ok(()),
            ControlFlow::Break(Pause::Damaged(damage)) => break Err(damage),
            _ => {}
        }
    };
    *bits = walk.bits;
    result
}

/// Why the steps stop.
enum Pause {
    /// One symbol must be taken by itself: the short table does not know it, or it may be the last of a full block.
    LongCode,
    /// All blocks are read.
    Done,
    Damaged(Damage),
}

/// A place in the blocks.
struct Walk<'w, 't, 'b> {
    bits: Bits<'w>,
    /// For the next symbol.
    table: &'t HuffmanTable,
    block: *mut Block<'t>,
    end: *mut Block<'t>,
    /// Position of the last coefficient of the block.
    position: u32,
    blocks: PhantomData<&'b mut [Block<'t>]>,
}

impl<'w, 't, 'b> Walk<'w, 't, 'b> {
    #[inline(always)]
    fn new(bits: Bits<'w>, dc: &'t HuffmanTable, blocks: &'b mut [Block<'t>]) -> Self {
        let range = blocks.as_mut_ptr_range();
        Self { bits, table: dc, block: range.start, end: range.end, position: 0, blocks: PhantomData }
    }

    #[inline(always)]
    fn refill(&mut self) {
        // SAFETY: `decode` asserts that the window has the bytes of the longest codes of all blocks and two refills more.
        // Each step but a block's first advances the position, so that no block eats more. `Bits` asserts it each time.
        unsafe { self.bits.refill() };
    }

    /// As many look-ups as a refill is enough for: of 11 bits each.
    #[inline(always)]
    fn take_steps(&mut self) -> ControlFlow<Pause> {
        self.take_step()?;
        self.take_step()?;
        self.take_step()?;
        self.take_step()?;
        self.take_step()
    }

    #[inline(always)]
    fn take_step(&mut self) -> ControlFlow<Pause> {
        let entry = self.table.look_up(self.bits.peek());
        if entry.is_long() { ControlFlow::Break(Pause::LongCode) } else { self.store_entry(entry) }
    }

    /// One symbol by the long way, after refilling.
    #[inline(always)]
    fn take_long_step(&mut self) -> ControlFlow<Pause> {
        self.refill();
        let Some(symbol) = self.table.look_up_long(self.bits.peek()) else {
            return ControlFlow::Break(Pause::Damaged(Damage::InvalidCode));
        };
        let (ac, next_dc) = self.load_tables();
        self.bits.consume(symbol.length);
        if symbol.is_end() {
            return self.begin_block(next_dc);
        }
        self.position += symbol.advance;
        self.store(self.position, symbol.value);
        self.table = ac;
        match self.position {
            ..LAST => ControlFlow::Continue(()),
            LAST => self.begin_block(next_dc),
            _ => ControlFlow::Break(Pause::Damaged(Damage::LongRun)),
        }
    }

    #[inline(always)]
    fn store_entry(&mut self, entry: Entry) -> ControlFlow<Pause> {
        let (ac, next_dc) = self.load_tables();
        let first = self.position + entry.advance();
        self.store(first, entry.first());
        let second = first + entry.advance_to_second();
        self.store(second, entry.second());
        if second >= LAST {
            // A full block has no end of block: what follows its last symbol, whatever it seems, is the next block's.
            return ControlFlow::Break(Pause::LongCode);
        }
        self.bits.consume(entry.raw_length());
        let is_end = entry.is_end();
        self.table = select_unpredictable(is_end, next_dc, ac);
        self.block = select_unpredictable(is_end, self.block.wrapping_add(1), self.block);
        self.position = select_unpredictable(is_end, 0, second);
        if self.block == self.end { ControlFlow::Break(Pause::Done) } else { ControlFlow::Continue(()) }
    }

    #[inline(always)]
    fn begin_block(&mut self, dc: &'t HuffmanTable) -> ControlFlow<Pause> {
        self.position = 0;
        self.table = dc;
        self.block = self.block.wrapping_add(1);
        if self.block == self.end { ControlFlow::Break(Pause::Done) } else { ControlFlow::Continue(()) }
    }

    /// The tables for what follows: in this block, and in the next.
    #[inline(always)]
    fn load_tables(&self) -> (&'t HuffmanTable, &'t HuffmanTable) {
        debug_assert!(self.block < self.end);
        // Volatile, or the compiler would first choose between the two and then load, which is 5 cycles more in the chain.
        // SAFETY: the block is one of the slice's: it moves by one and is compared with the end each time.
        unsafe {
            (
                (&raw const (*self.block).ac).read_volatile(),
                (&raw const (*self.block).next_dc).read_volatile(),
            )
        }
    }

    #[inline(always)]
    fn store(&mut self, position: u32, value: i16) {
        debug_assert!(self.block < self.end && position < 256);
        let at = usize::from(STORE_AT[usize::from(position as u8)]);
        debug_assert!(at < size_of_val(&[0_i16; 72]) / 2);
        // SAFETY: as for `load_tables`; a block begins with 64 values and 8 beyond, and `STORE_AT` has none above 64.
        unsafe { self.block.cast::<i16>().add(at).write(value) };
    }
}
