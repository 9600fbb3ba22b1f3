//! How blocks become rows of pixels at a scale: sizes only.

use crate::colour::Upsampler;
use crate::header::{Header, Sampling};
use crate::scale::Scale;

/// MCUs decoded before their blocks are transformed. Even, because blocks are transformed in pairs. Measured: 4 are faster
/// than 8 and 16.
pub(super) const BATCH: usize = 4;

/// Most blocks of an MCU.
pub(super) const MAX_MCU_BLOCKS: usize = 6;

/// The longest side of a picture, pixels.
pub(super) const MAX_SIDE: usize = 65_500;

/// How the rows of colour become as many and as wide as those of brightness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upsampling {
    /// They are already, or there are none.
    None,
    /// Each sample is two pixels.
    Width,
    /// Each sample is two pixels in two rows.
    Both,
}

/// The blocks of one component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Blocks of an MCU in a row.
    pub(super) blocks_across: usize,
    /// Rows of blocks of an MCU.
    pub(super) blocks_down: usize,
    /// Samples of a block's side.
    pub(super) side: usize,
    /// Its first block in an MCU.
    first: usize,
}

impl Part {
    /// The number of a block in a batch: block `i` of that row of blocks.
    pub(super) fn block_of(self, i: usize, row: usize, mcu_blocks: usize) -> usize {
        (i / self.blocks_across) * mcu_blocks + self.first + row * self.blocks_across + i % self.blocks_across
    }

    /// Rows of samples of an MCU.
    pub(super) fn rows(self) -> usize {
        self.blocks_down * self.side
    }
}

/// How blocks become rows of pixels at a scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Of the scaled picture.
    pub(super) width: usize,
    pub(super) height: usize,
    /// MCUs in a row.
    pub(super) mcus: usize,
    pub(super) mcu_rows: usize,
    /// Blocks of an MCU.
    pub(super) mcu_blocks: usize,
    /// Rows of pixels of an MCU.
    pub(super) rows: usize,
    pub(super) upsampling: Upsampling,
    /// Whether rows of colour are blended with those of the MCUs above and below.
    pub(super) blends_rows: bool,
    /// One for each component.
    pub(super) parts: Vec<Part>,
    luma_blocks: usize,
}

impl Layout {
    pub(super) fn new(header: &Header<'_>, scale: Scale) -> Self {
        let size = header.scaled_size(scale);
        let side = scale.eighths();
        let components = header.components();
        let (across, down) = (components[0].blocks_across, components[0].blocks_down);
        // libjpeg's rule: colour with fewer samples is transformed to more a block, if it has fewer in both directions.
        let (colour_side, upsampling) = match header.sampling() {
            Sampling::HalfBoth if scale != Scale::Full => (side * 2, Upsampling::None),
            Sampling::HalfBoth => (side, Upsampling::Both),
            Sampling::HalfWidth => (side, Upsampling::Width),
            Sampling::Grey | Sampling::Full => (side, Upsampling::None),
        };
        let mut first = 0;
        let mut parts = Vec::with_capacity(components.len());
        for (i, component) in components.iter().enumerate() {
            let (blocks_across, blocks_down) = (component.blocks_across, component.blocks_down);
            parts.push(Part {
                blocks_across,
                blocks_down,
                side: if i == 0 { side } else { colour_side },
                first,
            });
            first += blocks_across * blocks_down;
        }
        Self {
            width: size.width,
            height: size.height,
            mcus: header.size().width.div_ceil(8 * across),
            mcu_rows: header.size().height.div_ceil(8 * down),
            mcu_blocks: first,
            rows: down * side,
            upsampling,
            blends_rows: upsampling == Upsampling::Both && Upsampler::is_blended(size.width.div_ceil(2)),
            parts,
            luma_blocks: across * down,
        }
    }

    /// The component that a block of an MCU belongs to.
    pub(super) fn component_of(&self, block: usize) -> usize {
        (block + 1).saturating_sub(self.luma_blocks)
    }
}
