//! The one scan of a file: entropy decoding, inverse DCT and colour, a few MCUs at a time, so that coefficients stay in the
//! first cache level and planes in the second.

mod layout;
mod planes;
mod rows;

use crate::colour::Upsampler;
use crate::cpu::Cpu;
use crate::entropy::{Block, MAX_BLOCKS, Reader, Window};
use crate::fault::Damage;
use crate::header::{Component, Header};
use crate::huffman::{TableCache, TablePair};
use crate::idct;
use crate::scale::Scale;
use crate::scan::layout::{BATCH, Layout, MAX_MCU_BLOCKS};
use crate::scan::planes::Planes;
use crate::scan::rows::RowWriter;

/// Buffers kept from file to file.
pub(crate) struct Buffers {
    window: Window,
    tables: TableCache,
    planes: Planes,
    upsamplers: [Upsampler; 2],
}

impl Buffers {
    /// Most bytes that the buffers take, whatever the picture.
    pub(crate) const MAX_BYTES: usize = Window::BYTES
        + TableCache::MAX_BYTES
        + Planes::MAX_BYTES
        + 2 * Upsampler::max_bytes(layout::MAX_SIDE / 2);

    pub(crate) fn new() -> Self {
        let (planes, upsamplers) = (Planes::default(), [Upsampler::default(), Upsampler::default()]);
        Self { window: Window::new(), tables: TableCache::default(), planes, upsamplers }
    }
}

/// Decodes into `out`, of the scaled size in RGB.
///
/// # Errors
/// At the first damage. What is in `out` then is of no use.
pub(crate) fn decode(
    cpu: Cpu,
    buffers: &mut Buffers,
    header: &Header<'_>,
    scale: Scale,
    out: &mut [u8],
) -> Result<(), Damage> {
    let layout = Layout::new(header, scale);
    let Buffers { window, tables, planes, upsamplers } = buffers;
    tables.begin_file();
    let components = header.components();
    let numbers: Vec<_> =
        components.iter().map(|component| tables.prepare(component.dc, component.ac)).collect();
    let pairs: Vec<TablePair<'_>> = numbers.iter().map(|numbers| tables.get(*numbers)).collect();
    planes.prepare(&layout);
    let mut scan = Scan {
        cpu,
        layout: &layout,
        components,
        reader: Reader::new(header.file, header.scan_start, window, cpu),
        first_dc: pairs[0],
        blocks: new_blocks(&layout, &pairs),
        planes,
        restart: Restart { interval: header.restart_interval, left: header.restart_interval, count: 0 },
        previous_dc: [0; 3],
    };
    for mcu_row in 0..layout.mcu_rows {
        for first in (0..layout.mcus).step_by(BATCH) {
            let count = BATCH.min(layout.mcus - first);
            scan.read_batch(count)?;
            scan.transform_batch(first, count);
        }
        RowWriter { cpu, layout: &layout, planes: &*scan.planes, upsamplers: &mut *upsamplers }
            .write(mcu_row, out);
        if layout.blends_rows {
            scan.planes.carry_last_rows(&layout);
        }
    }
    scan.reader.finish()
}

/// The blocks of a batch, in the order of decoding.
fn new_blocks<'t>(layout: &Layout, pairs: &[TablePair<'t>]) -> [Block<'t>; MAX_BLOCKS] {
    let table = |block: usize| pairs[layout.component_of(block % layout.mcu_blocks)];
    std::array::from_fn(|i| Block::new(table(i).ac, table(i + 1).dc))
}

/// When the next restart marker comes.
struct Restart {
    /// MCUs between two; 0 is never.
    interval: usize,
    /// MCUs up to the next.
    left: usize,
    /// Markers so far.
    count: usize,
}

/// A scan that is being decoded.
struct Scan<'a, 't> {
    cpu: Cpu,
    layout: &'a Layout,
    components: &'a [Component<'a>],
    reader: Reader<'a>,
    first_dc: TablePair<'t>,
    blocks: [Block<'t>; MAX_BLOCKS],
    planes: &'a mut Planes,
    restart: Restart,
    /// The DC coefficient of each component's last block.
    previous_dc: [i32; 3],
}

impl Scan<'_, '_> {
    /// Reads the coefficients of `count` MCUs.
    fn read_batch(&mut self, count: usize) -> Result<(), Damage> {
        for block in &mut self.blocks[..count * self.layout.mcu_blocks] {
            block.values = [0; 64];
        }
        let mut done = 0;
        while done < count {
            let go = self.begin_go(count - done)?;
            let range = done * self.layout.mcu_blocks..(done + go) * self.layout.mcu_blocks;
            self.reader.decode(self.first_dc.dc, &mut self.blocks[range.clone()])?;
            self.add_up_dc(range)?;
            done += go;
        }
        Ok(())
    }

    /// How many of `count` MCUs come before the next restart marker. Goes on behind the marker that stands here.
    fn begin_go(&mut self, count: usize) -> Result<usize, Damage> {
        let restart = &mut self.restart;
        if restart.interval == 0 {
            return Ok(count);
        }
        if restart.left == 0 {
            self.reader.restart(restart.count)?;
            restart.count += 1;
            restart.left = restart.interval;
            self.previous_dc = [0; 3];
        }
        let go = count.min(restart.left);
        restart.left -= go;
        Ok(go)
    }

    /// The DC coefficients were read as differences from those of the component's block before.
    fn add_up_dc(&mut self, range: std::ops::Range<usize>) -> Result<(), Damage> {
        for mcu in self.blocks[range].chunks_exact_mut(self.layout.mcu_blocks) {
            for (i, block) in mcu.iter_mut().enumerate() {
                let component = self.layout.component_of(i);
                let dc = self.previous_dc[component] + i32::from(block.values[0]);
                // At most 4,000 and a difference of 11 bits: this fits in 16 bits.
                if (dc * i32::from(self.components[component].quant[0])).abs() > idct::MAX_DC
                    || dc.abs() > idct::MAX_DC
                {
                    return Err(Damage::DcOutOfRange);
                }
                self.previous_dc[component] = dc;
                block.values[0] = dc as i16;
            }
        }
        Ok(())
    }

    /// Makes samples of the coefficients of `count` MCUs, of which `first` is the first in its row.
    fn transform_batch(&mut self, first: usize, count: usize) {
        let (cpu, blocks) = (self.cpu, &self.blocks);
        let parts = self.layout.parts.iter().zip(self.components).zip(self.planes.iter_mut());
        for ((part, component), plane) in parts {
            for row in 0..part.blocks_down {
                for i in (0..count * part.blocks_across).step_by(2) {
                    // The partner of an odd batch's last block is an old one, and goes beyond the picture.
                    let pair =
                        [i, i + 1].map(|i| &blocks[part.block_of(i, row, self.layout.mcu_blocks)].values);
                    let column = (first * part.blocks_across + i) * part.side;
                    let (out, stride) = plane.at(row * part.side, column);
                    idct::transform_pair(cpu, part.side, pair, &component.quant, out, stride);
                }
            }
        }
    }
}

// All blocks of a batch fit in a go.
const _: () = assert!(BATCH * MAX_MCU_BLOCKS <= MAX_BLOCKS);
// A pair's second block is a block of the batch's array even where its MCU is beyond the batch.
const _: () = assert!(BATCH & 1 == 0);
