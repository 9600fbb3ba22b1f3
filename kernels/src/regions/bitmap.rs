//! A binary map, one bit a pixel, as a GPU makes it.

use crate::image::frame::Size;

/// Pixels of a map that are text. Rows begin at whole words; the lowest bit is the leftmost pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u32>,
    pub(super) size: Size,
}

impl Bitmap {
    /// Words of a map.
    pub(crate) fn words(size: Size) -> usize {
        size.width.div_ceil(32) as usize * size.height as usize
    }

    /// Takes the words of a map, [`Self::words`] of them.
    pub(crate) fn new(words: Vec<u32>, size: Size) -> Self {
        debug_assert_eq!(words.len(), Self::words(size));
        Self { words, size }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Sets `mask` to row `y`.
    pub(super) fn read_row(&self, y: usize, mask: &mut [bool]) {
        let stride = self.size.width.div_ceil(32) as usize;
        let row = &self.words[y * stride..(y + 1) * stride];
        for (x, pixel) in mask.iter_mut().enumerate() {
            *pixel = row[x / 32] >> (x % 32) & 1 == 1;
        }
    }
}
