//! What the next bits mean, in 64 bits.

/// The advance that stands for "end of block". Larger than any position, and told apart from a full block.
pub(crate) const END: u32 = 128;

/// What the next bits mean. All zero is "look in the long table".
///
/// | bits   | what                                                        |
/// |--------|-------------------------------------------------------------|
/// | 0..8   | bits to consume, for both symbols                           |
/// | 8..16  | advance of the position to the first coefficient            |
/// | 16..24 | advance from there to the second; 0 if there is no second   |
/// | 24..28 | bits to consume for the first symbol alone, if two          |
/// | 28..44 | the first coefficient                                       |
/// | 44..60 | the second; the first again if there is no second           |
/// | 63     | the block ends here                                         |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    /// One symbol: the bits it takes, how far it advances, its coefficient.
    pub(super) fn single(length: u32, advance: u32, value: i32) -> Self {
        let value = u64::from(value as u16);
        let end = u64::from(advance == END) << 63;
        let lengths = u64::from(length) | u64::from(length & 15) << 24;
        Self(lengths | u64::from(advance) << 8 | value << 28 | value << 44 | end)
    }

    /// This symbol, then `next`.
    pub(super) fn then(self, next: Self) -> Self {
        let lengths = u64::from(self.length() + next.length()) | u64::from(self.length()) << 24;
        let advances = u64::from(self.advance()) << 8 | u64::from(next.advance()) << 16;
        let values = u64::from(self.first() as u16) << 28 | u64::from(next.first() as u16) << 44;
        Self(lengths | advances | values | (next.0 >> 63) << 63)
    }

    /// In the sign, where it costs one step to know.
    #[inline(always)]
    pub(crate) fn is_end(self) -> bool {
        (self.0 as i64) < 0
    }

    /// Whether the bits are more than the short table knows.
    #[inline(always)]
    pub(crate) fn is_long(self) -> bool {
        self.0 == 0
    }

    /// In the low bits, so that a shift may take the entry itself as its count.
    #[inline(always)]
    pub(crate) fn length(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    #[inline(always)]
    pub(crate) fn length_of_first(self) -> u32 {
        (self.0 >> 24) as u32 & 15
    }

    #[inline(always)]
    pub(crate) fn advance(self) -> u32 {
        u32::from((self.0 >> 8) as u8)
    }

    #[inline(always)]
    pub(crate) fn advance_to_second(self) -> u32 {
        u32::from((self.0 >> 16) as u8)
    }

    #[inline(always)]
    pub(crate) fn first(self) -> i16 {
        (self.0 >> 28) as i16
    }

    #[inline(always)]
    pub(crate) fn second(self) -> i16 {
        (self.0 >> 44) as i16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_symbols_fit_in_an_entry() {
        let both = Entry::single(5, 3, -7).then(Entry::single(4, END, 0));
        assert_eq!([both.length(), both.length_of_first()], [9, 5]);
        assert_eq!([both.advance(), both.advance_to_second()], [3, END]);
        assert_eq!([both.first(), both.second()], [-7, 0]);
        assert!(both.is_end() && !both.is_long());
        let alone = Entry::single(11, 1, 1023);
        assert_eq!([alone.first(), alone.second()], [1023, 1023]);
        assert_eq!(alone.advance_to_second(), 0);
        assert!(!alone.is_end());
    }
}
