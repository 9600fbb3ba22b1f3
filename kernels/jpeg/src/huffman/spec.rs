//! A Huffman table as a file tells it.

use crate::fault::Refusal::{self, Malformed, Unsupported};

/// Most bits of a DC difference and of an AC coefficient that 8-bit pictures have. Tables with larger symbols are left to
/// general decoders.
const MAX_DC_BITS: u8 = 11;
const MAX_AC_BITS: u8 = 10;

/// What a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The first coefficient of a block, as a difference.
    Dc,
    /// All others.
    Ac,
}

/// A table as a file tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HuffmanSpec<'a> {
    pub(super) class: Class,
    /// Codes of each length, from 1 bit.
    pub(super) counts: [u8; 16],
    /// In the order of their codes.
    pub(super) symbols: &'a [u8],
}

impl<'a> HuffmanSpec<'a> {
    /// # Errors
    /// When there are more codes of a length than can be, or symbols that 8-bit pictures do not have.
    pub(crate) fn new(class: Class, counts: [u8; 16], symbols: &'a [u8]) -> Result<Self, Refusal> {
        let mut code = 0_u32;
        for (i, count) in counts.iter().enumerate() {
            code += u32::from(*count);
            // No code may be all ones.
            if code >= 1 << (i + 1) {
                return Err(Malformed("Huffman codes"));
            }
            code <<= 1;
        }
        if symbols.len() > 256 {
            return Err(Malformed("Huffman codes"));
        }
        let is_usual = |symbol: &u8| match class {
            Class::Dc => *symbol <= MAX_DC_BITS,
            Class::Ac => symbol & 15 <= MAX_AC_BITS,
        };
        if !symbols.iter().all(is_usual) {
            return Err(Unsupported("Huffman symbols"));
        }
        Ok(Self { class, counts, symbols })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(counts: &[u8], symbols: &'static [u8]) -> Result<HuffmanSpec<'static>, Refusal> {
        let mut all = [0; 16];
        all[..counts.len()].copy_from_slice(counts);
        HuffmanSpec::new(Class::Dc, all, symbols)
    }

    #[test]
    fn a_code_of_ones_only_is_refused() {
        assert!(spec(&[1, 1], &[0, 1]).is_ok());
        assert!(spec(&[1, 2], &[0, 1, 2]).is_err());
        assert!(spec(&[2], &[0, 1]).is_err());
        assert!(spec(&[], &[]).is_ok());
    }

    #[test]
    fn symbols_that_no_8_bit_picture_has_are_refused() {
        assert!(spec(&[1], &[11]).is_ok());
        assert!(spec(&[1], &[12]).is_err());
        assert!(HuffmanSpec::new(Class::Ac, [1; 16].map(|_| 0), &[0xfa]).is_ok());
        assert!(HuffmanSpec::new(Class::Ac, [1; 16].map(|_| 0), &[0xfb]).is_err());
    }
}
