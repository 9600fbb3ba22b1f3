//! The reservoir of bits. While blocks are decoded it lives in registers.

#![expect(
    unsafe_code,
    reason = "refilling without a branch reads through a pointer that is not checked each time"
)]

use std::marker::PhantomData;

/// Bytes that a refill reads.
pub(super) const REFILL_BYTES: usize = 8;

/// The reservoir between two goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BitState {
    /// The next bits, topmost first.
    buffer: u64,
    /// How many of them are counted as valid.
    count: u32,
    /// The index of the byte that refills it next.
    next: usize,
}

impl BitState {
    pub(super) fn next(self) -> usize {
        self.next
    }

    /// The same bits, after the bytes were moved so that `next` came to the front.
    pub(super) fn moved_to_front(self) -> Self {
        Self { next: 0, ..self }
    }

    /// Bits from the front that have been consumed. Less than none is possible only in a reservoir that was moved.
    pub(super) fn consumed_bits(self) -> isize {
        self.next as isize * 8 - self.count as isize
    }
}

/// The reservoir during a go, with a pointer to what refills it.
#[derive(Clone, Copy)]
pub(super) struct Bits<'w> {
    buffer: u64,
    count: u32,
    next: *const u8,
    end: *const u8,
    window: PhantomData<&'w [u8]>,
}

impl<'w> Bits<'w> {
    pub(super) fn new(state: BitState, window: &'w [u8]) -> Self {
        let BitState { buffer, count, next } = state;
        let range = window.as_ptr_range();
        Self { buffer, count, next: window[next..].as_ptr(), end: range.end, window: PhantomData }
    }

    /// The state, for later: `window` is the one it was made with.
    pub(super) fn state(self, window: &[u8]) -> BitState {
        let next = self.next as usize - window.as_ptr() as usize;
        debug_assert!(next <= window.len() && self.end == window.as_ptr_range().end);
        BitState { buffer: self.buffer, count: self.count & 63, next }
    }

    /// Bytes of the window that have not refilled it.
    pub(super) fn remaining_bytes(&self) -> usize {
        (self.end as usize).saturating_sub(self.next as usize)
    }

    /// The next bits, topmost first, of which those that were refilled and not consumed are valid.
    #[inline(always)]
    pub(super) fn peek(&self) -> u64 {
        self.buffer
    }

    /// Makes at least 56 bits valid.
    ///
    /// # Safety
    /// [`REFILL_BYTES`] more bytes of the window follow what has been refilled.
    #[inline(always)]
    pub(super) unsafe fn refill(&mut self) {
        debug_assert!(self.next as usize + REFILL_BYTES <= self.end as usize);
        self.count &= 63;
        // SAFETY: the bytes are there, as the caller promises; an array of bytes has no alignment.
        let word = u64::from_be_bytes(unsafe { self.next.cast::<[u8; REFILL_BYTES]>().read() });
        // Bits below `count` may be set already, by the same bytes: or-ing them again changes nothing.
        self.buffer |= word >> self.count;
        self.next = self.next.wrapping_add(((63 - self.count) >> 3) as usize);
        self.count |= 56;
    }

    /// Drops so many valid bits as the low six bits of `length` say. What is above them stays in the count until it refills,
    /// which spares each look-up a step.
    #[inline(always)]
    pub(super) fn consume(&mut self, length: u32) {
        debug_assert!(length & 63 <= self.count & 63);
        self.buffer <<= length & 63;
        self.count = self.count.wrapping_sub(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_in_the_order_of_the_bytes() {
        let window: Vec<u8> = (0..100_u8).map(|i| i.wrapping_mul(37)).collect();
        let mut bits = Bits::new(BitState::default(), &window);
        let mut read = Vec::new();
        for step in 0..150_usize {
            // SAFETY: 150 steps of at most 5 bits are fewer than 100 bytes.
            unsafe { bits.refill() };
            let length = (step % 5 + 1) as u32;
            for i in 0..length {
                read.push((bits.peek() << i) >> 63);
            }
            bits.consume(length);
        }
        let all: Vec<u64> =
            window.iter().flat_map(|byte| (0..8).map(move |i| u64::from(byte << i >> 7))).collect();
        assert_eq!(read, all[..read.len()]);
        assert_eq!(bits.state(&window).consumed_bits(), read.len() as isize);
    }
}
