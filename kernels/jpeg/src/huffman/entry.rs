//! What the next bits mean, in 32 bits: so that a table of 2,048 entries takes 8 KiB, and those of brightness and of colour
//! stay in a first cache level of 32.

/// What the next bits mean. A length of zero is "look in the long table".
///
/// | bits   | what                                                                        |
/// |--------|-----------------------------------------------------------------------------|
/// | 0..6   | bits to consume, for both symbols                                           |
/// | 6      | the block ends here                                                         |
/// | 7..12  | advance of the position to the first coefficient                            |
/// | 12..17 | advance from there to the second; 0 if there is no second                   |
/// | 18..25 | the second coefficient; the first again if there is no second               |
/// | 25..32 | the first                                                                   |
///
/// The end of a block alone advances by one and stores a zero there, which changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry(u32);

const LENGTH: u32 = 63;
const IS_END: u32 = 1 << 6;

impl Entry {
    /// One symbol, if its coefficient fits.
    pub(super) fn single(symbol: Symbol) -> Option<Self> {
        if symbol.is_end() {
            return Some(Self(symbol.length | 1 << 7 | IS_END));
        }
        let value = seven_bits(symbol.value)?;
        Some(Self(symbol.length | symbol.advance << 7 | value << 18 | value << 25))
    }

    /// Two symbols, of which the first is no end, if their coefficients fit.
    pub(super) fn pair(first: Symbol, second: Symbol) -> Option<Self> {
        let length = first.length + second.length;
        let alone = Self::single(Symbol { length, ..first })?;
        if second.is_end() {
            return Some(Self(alone.0 | IS_END));
        }
        let value = seven_bits(second.value)?;
        Some(Self(alone.0 & !(0x7f << 18) | second.advance << 12 | value << 18))
    }

    #[inline(always)]
    pub(crate) fn is_end(self) -> bool {
        self.0 & IS_END != 0
    }

    /// Whether the bits are more than the short table knows.
    #[inline(always)]
    pub(crate) fn is_long(self) -> bool {
        self.0 & LENGTH == 0
    }

    /// The bits to consume, in the low six bits. What is above them has no meaning: the shifts of processors leave it out, and
    /// to do so here would make each look-up wait for one step more.
    #[inline(always)]
    pub(crate) fn raw_length(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn advance(self) -> u32 {
        self.0 >> 7 & 31
    }

    #[inline(always)]
    pub(crate) fn advance_to_second(self) -> u32 {
        self.0 >> 12 & 31
    }

    #[inline(always)]
    pub(crate) fn first(self) -> i16 {
        (self.0 as i32 >> 25) as i16
    }

    #[inline(always)]
    pub(crate) fn second(self) -> i16 {
        ((self.0 as i32) << 7 >> 25) as i16
    }
}

/// The lowest seven bits of a value that has no more.
fn seven_bits(value: i16) -> Option<u32> {
    (-64..64).contains(&value).then_some(value as u32 & 0x7f)
}

/// One symbol and the bits of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// Bits of code and value.
    pub(crate) length: u32,
    /// How far the position of the coefficient is; [`END`] for the end of the block.
    pub(crate) advance: u32,
    /// The coefficient.
    pub(crate) value: i16,
}

/// The advance that stands for "end of block".
const END: u32 = 128;

impl Symbol {
    pub(super) fn end(length: u32) -> Self {
        Self { length, advance: END, value: 0 }
    }

    pub(crate) fn is_end(self) -> bool {
        self.advance == END
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_symbols_fit_in_an_entry() {
        let first = Symbol { length: 5, advance: 3, value: -7 };
        let both = Entry::pair(first, Symbol { length: 6, advance: 16, value: 63 }).unwrap();
        assert_eq!([both.raw_length() & LENGTH, both.advance(), both.advance_to_second()], [11, 3, 16]);
        assert_eq!([both.first(), both.second()], [-7, 63]);
        assert!(!both.is_end() && !both.is_long());
        let ended = Entry::pair(first, Symbol::end(4)).unwrap();
        assert_eq!([ended.raw_length() & LENGTH, ended.advance(), ended.advance_to_second()], [9, 3, 0]);
        assert_eq!([ended.first(), ended.second()], [-7, -7]);
        assert!(ended.is_end());
        let end = Entry::single(Symbol::end(4)).unwrap();
        assert_eq!([end.first(), end.second()], [0, 0]);
        assert!(end.is_end() && end.advance() == 1);
    }

    #[test]
    fn a_value_of_more_than_seven_bits_is_left_to_the_long_table() {
        let large = |value| Symbol { length: 11, advance: 1, value };
        assert_eq!([-64, 63].map(|value| Entry::single(large(value)).unwrap().second()), [-64, 63]);
        assert!([-65, 64].map(large).iter().all(|symbol| Entry::single(*symbol).is_none()));
        assert_eq!(Entry::pair(large(1), large(64)), None);
    }
}
