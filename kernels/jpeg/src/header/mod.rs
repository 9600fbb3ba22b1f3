//! The header of a file: all that is known when its first entropy-coded byte is reached. Reading it allocates nothing.

mod parser;
mod segments;

use std::fmt;

use crate::fault::Refusal;
use crate::huffman::HuffmanSpec;
use crate::scale::Scale;

/// Width and height, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// Which colours are stored, and how many samples of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sampling {
    /// Brightness only.
    Grey,
    /// Colour for every pixel (4:4:4).
    Full,
    /// Colour for every second pixel of a row (4:2:2).
    HalfWidth,
    /// Colour for every second pixel of every second row (4:2:0).
    HalfBoth,
}

/// A quantisation table, row by row. The values are 16 bits without a sign, kept as the transform multiplies them.
pub(crate) type Quant = [i16; 64];

/// One colour component with its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Component<'a> {
    /// Blocks of an MCU in a row.
    pub(crate) blocks_across: usize,
    /// Rows of blocks of an MCU.
    pub(crate) blocks_down: usize,
    pub(crate) quant: Quant,
    pub(crate) dc: HuffmanSpec<'a>,
    pub(crate) ac: HuffmanSpec<'a>,
}

/// The header of a file that can be decoded here. It borrows the file.
#[derive(Clone)]
pub struct Header<'a> {
    pub(crate) file: &'a [u8],
    size: Size,
    sampling: Sampling,
    components: [Component<'a>; 3],
    /// MCUs between restart markers; 0 is never.
    pub(crate) restart_interval: usize,
    /// Where the entropy-coded bytes begin.
    pub(crate) scan_start: usize,
}

/// Without the file, which is a whole photo, and without its tables.
impl fmt::Debug for Header<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Header")
            .field("file_bytes", &self.file.len())
            .field("size", &self.size)
            .field("sampling", &self.sampling)
            .field("restart_interval", &self.restart_interval)
            .field("scan_start", &self.scan_start)
            .finish_non_exhaustive()
    }
}

impl<'a> Header<'a> {
    /// Reads the segments of `file` up to its first entropy-coded byte.
    ///
    /// # Errors
    /// When the file is not of the kind that is decoded here.
    pub fn read(file: &'a [u8]) -> Result<Self, Refusal> {
        parser::Parser::new(file).read()
    }

    /// Returns the size of the stored picture. No side is zero or longer than 65,500 pixels, and a buffer can have its pixels
    /// in RGB.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns which colours are stored.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// Returns the size of the picture decoded at `scale`.
    pub fn scaled_size(&self, scale: Scale) -> Size {
        Size { width: scale.apply(self.size.width), height: scale.apply(self.size.height) }
    }

    /// Returns the bytes of the picture decoded at `scale`: 3 a pixel.
    pub fn rgb_bytes(&self, scale: Scale) -> usize {
        let Size { width, height } = self.scaled_size(scale);
        width * height * 3
    }

    /// The colour components: one, or three.
    pub(crate) fn components(&self) -> &[Component<'a>] {
        match self.sampling {
            Sampling::Grey => &self.components[..1],
            _ => &self.components,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grey file of one block whose coefficients are all zeros.
    #[rustfmt::skip]
    const ONE_BLOCK: &[&[u8]] = &[
        &[0xff, 0xd8],
        &[0xff, 0xdb, 0, 67, 0], &[1; 64],
        &[0xff, 0xc0, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0],
        // One code of one bit in each table: no difference, and the end of the block.
        &[0xff, 0xc4, 0, 38, 0x00, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0],
        &[0x3f, 0xff, 0xd9],
    ];

    #[test]
    fn what_is_shown_of_a_header_names_the_length_of_the_file_and_not_its_bytes() {
        let mut file = ONE_BLOCK.concat();
        file.extend([0x77; 10_000]);
        let shown = format!("{:?}", Header::read(&file).expect("a JPEG file"));
        assert!(shown.contains(&format!("file_bytes: {}", file.len())), "{shown}");
        assert!(shown.contains("width: 8") && shown.len() < 300, "{shown}");
    }
}
