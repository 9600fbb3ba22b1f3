//! A Huffman table ready for decoding.

use crate::huffman::entry::{Entry, Symbol};
use crate::huffman::spec::{Class, HuffmanSpec};

/// Bits of the index of the short table. Measured: fewer leave more to the long table, whose look-ups are mispredicted;
/// with more the table leaves the first cache level.
const INDEX_BITS: u32 = 11;
const INDEX_SIZE: usize = 1 << INDEX_BITS;

/// A table ready for decoding.
#[repr(C, align(64))]
pub(crate) struct HuffmanTable {
    entries: [Entry; INDEX_SIZE],
    /// By the next 16 bits: the length of the code in the upper byte, its symbol in the lower; 0 is no code.
    codes: Box<[u16; 1 << 16]>,
    class: Class,
}

impl HuffmanTable {
    /// Bytes of a table.
    pub(crate) const BYTES: usize = size_of::<Self>() + size_of::<[u16; 1 << 16]>();

    /// `after` is the table of what follows in the same block: of a DC table the AC table, of an AC table itself.
    pub(super) fn new(spec: HuffmanSpec<'_>, after: Option<&Self>) -> Box<Self> {
        let mut table = Box::new(Self {
            entries: [Entry::default(); INDEX_SIZE],
            codes: vec![0; 1 << 16].into_boxed_slice().try_into().expect("2^16 long"),
            class: spec.class,
        });
        let mut at = 0;
        let mut symbols = spec.symbols.iter();
        for (length, count) in (1_u16..).zip(spec.counts) {
            for symbol in symbols.by_ref().take(usize::from(count)) {
                let codes = 1 << (16 - length);
                table.codes[at..at + codes].fill(length << 8 | u16::from(*symbol));
                at += codes;
            }
        }
        let entries = table.list_entries(after.unwrap_or(&table));
        table.entries.copy_from_slice(&entries);
        table
    }

    /// Returns what the next bits mean, topmost first.
    #[inline(always)]
    pub(crate) fn look_up(&self, bits: u64) -> Entry {
        self.entries[(bits >> (64 - INDEX_BITS)) as usize]
    }

    /// Returns the one symbol at the top of `bits`, of which 27 must be valid, by the long way; `None` where there is no
    /// such code.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_up_long(&self, bits: u64) -> Option<Symbol> {
        let code = self.codes[(bits >> 48) as usize];
        if code == 0 {
            return None;
        }
        let (length, symbol) = (u32::from(code >> 8), u32::from(code & 0xff));
        let (run, size) = match self.class {
            Class::Dc => (0, symbol),
            Class::Ac => (symbol >> 4, symbol & 15),
        };
        if size == 0 {
            return Some(match self.class {
                Class::Dc => Symbol { length, advance: 0, value: 0 },
                Class::Ac if run == 15 => Symbol { length, advance: 16, value: 0 },
                Class::Ac => Symbol::end(length),
            });
        }
        let raw = ((bits << length) >> (64 - size)) as i32;
        let value = if raw >> (size - 1) == 0 { raw - (1 << size) + 1 } else { raw };
        let advance = if self.class == Class::Dc { 0 } else { run + 1 };
        Some(Symbol { length: length + size, advance, value: value as i16 })
    }

    fn list_entries(&self, after: &Self) -> Vec<Entry> {
        (0..INDEX_SIZE as u64).map(|index| self.find_entry(index, after)).collect()
    }

    /// The entry of an index: its first symbol and, if whole, its second.
    fn find_entry(&self, index: u64, after: &Self) -> Entry {
        let Some(first) = self.symbol_within(index, INDEX_BITS) else { return Entry::default() };
        let rest = INDEX_BITS - first.length;
        let second = if first.is_end() || rest == 0 {
            None
        } else {
            after.symbol_within(index & ((1 << rest) - 1), rest)
        };
        let pair = second.and_then(|second| Entry::pair(first, second));
        pair.or_else(|| Entry::single(first)).unwrap_or_default()
    }

    /// The symbol that `count` bits begin with, if it needs no more than those.
    fn symbol_within(&self, bits: u64, count: u32) -> Option<Symbol> {
        self.look_up_long(bits << (64 - count)).filter(|symbol| symbol.length <= count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes: 0 is "end", 10 is a run of 1 and 2 bits, 110 is 16 zeros.
    fn table() -> Box<HuffmanTable> {
        let mut counts = [0; 16];
        counts[..3].fill(1);
        HuffmanTable::new(HuffmanSpec::new(Class::Ac, counts, &[0x00, 0x12, 0xf0]).unwrap(), None)
    }

    #[test]
    fn a_look_up_answers_two_symbols() {
        // 10 with the value 11 (3), then the end.
        let entry = table().look_up(0b10110 << 59);
        assert_eq!((entry.first(), entry.advance()), (3, 2));
        assert!(entry.is_end());
        assert_eq!(entry.raw_length() & 63, 5);
        // 110, then 10 with the value 00 (-3).
        let entry = table().look_up(0b1101000 << 57);
        assert_eq!((entry.advance(), entry.advance_to_second(), entry.second()), (16, 2, -3));
    }

    #[test]
    fn what_is_no_code_is_told() {
        assert!(table().look_up(0b111 << 61).is_long());
        assert_eq!(table().look_up_long(0b111 << 61), None);
    }
}
