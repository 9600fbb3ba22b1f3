//! The same on a GPU: tables of weights, and launches that fit its buffers.

use super::types::{LETTERBOX, Placement};
use crate::batch::pixels::{PixelBuffer, Rows};
use crate::gpu::{Gpu, GpuError, MAX_GROUPS, Program, to_floats};
use crate::image::frame::Size;
use crate::image::tensor::{Channels, Normalisation, Tensor};
use crate::resize::area::AreaWeights;
use crate::resize::bilinear::interpolation_for;
use crate::resize::{Filter, ResizeTarget};

/// Words of a cell.
const CELL_WORDS: usize = 3;

/// What is done to a window, in the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Copy = 0,
    Bilinear = 1,
    Area = 2,
}

/// A placement with what it reads.
struct Planned<'a> {
    placement: Placement<'a>,
    action: Action,
    canvas: Size,
    /// What is photo.
    inside: Size,
    columns: Axis,
    rows: Axis,
}

/// The cells of one axis, those that are seen.
#[derive(Default)]
struct Axis {
    cells: Vec<[u32; CELL_WORDS]>,
    weights: Vec<f32>,
}

/// Rows of a canvas that are computed together.
#[derive(Clone, Copy)]
struct Block {
    item: usize,
    from: u32,
    to: u32,
}

/// One launch.
#[derive(Default)]
struct Launch<'a> {
    pixels: PixelBuffer<'a>,
    blocks: Vec<Block>,
    table: Vec<u32>,
    cells: Vec<u32>,
    weights: Vec<f32>,
    out: usize,
}

pub(super) fn place_all(
    gpu: &dyn Gpu,
    placements: &[Placement<'_>],
    normalisation: &Normalisation,
    out: &mut Tensor,
) -> Result<(), GpuError> {
    let canvas = out.item_size();
    let planned: Vec<Planned<'_>> =
        placements.iter().map(|placement| Planned::new(*placement, canvas)).collect();
    let limit = gpu.max_buffer_bytes();
    let mut launch = Launch::default();
    let mut waiting: Vec<Block> =
        (0..planned.len()).rev().map(|item| Block { item, from: 0, to: canvas.height }).collect();
    while let Some(block) = waiting.pop() {
        let needed = planned[block.item].needed_bytes(block);
        if needed > limit {
            if block.to - block.from <= 1 {
                return Err(GpuError::TooLarge { bytes: needed, limit });
            }
            let middle = block.from.midpoint(block.to);
            waiting.push(Block { from: middle, ..block });
            waiting.push(Block { to: middle, ..block });
            continue;
        }
        if !launch.has_room(&planned[block.item], block, limit) {
            std::mem::take(&mut launch).run(gpu, normalisation, out)?;
        }
        launch.add(&planned[block.item], block, limit);
    }
    launch.run(gpu, normalisation, out)
}

impl<'a> Planned<'a> {
    fn new(placement: Placement<'a>, canvas: Size) -> Self {
        let Placement { window, size, skipped_rows } = placement;
        let from = window.size();
        assert!(size.width > 0 && size.height > 0, "the target has a side of zero pixels");
        let rest = size.height.saturating_sub(skipped_rows);
        let inside = Size { width: size.width.min(canvas.width), height: rest.min(canvas.height) };
        let shrinks = size.width <= from.width && size.height <= from.height;
        let action = match ResizeTarget::for_network_input(from, size).filter {
            _ if from == size => Action::Copy,
            Filter::Area if shrinks => Action::Area,
            _ => Action::Bilinear,
        };
        // A picture may end above the canvas.
        let first = if inside.height == 0 { 0 } else { skipped_rows };
        let columns = Axis::new(action, from.width, size.width, 0..inside.width);
        let rows = Axis::new(action, from.height, size.height, first..first + inside.height);
        Self { placement, action, canvas, inside, columns, rows }
    }

    /// The rows of the photo that a block reads; none of it may be photo.
    fn source(&self, block: Block) -> Rows<'a> {
        let window = self.placement.window;
        let (from, to) = (block.from.min(self.inside.height), block.to.min(self.inside.height));
        if from == to {
            return Rows { frame: window.frame(), from: window.top(), to: window.top() };
        }
        let skipped = self.placement.skipped_rows;
        let (first, last) = match self.action {
            Action::Copy => (from + skipped, to + skipped - 1),
            Action::Bilinear => (self.rows.cells[from as usize][0], self.rows.cells[to as usize - 1][1]),
            Action::Area => {
                let [first, _, count] = self.rows.cells[to as usize - 1];
                (self.rows.cells[from as usize][0], first + count - 1)
            }
        };
        Rows { frame: window.frame(), from: window.top() + first, to: window.top() + last + 1 }
    }

    /// Bytes of the larger of the buffers that a block alone needs.
    fn needed_bytes(&self, block: Block) -> usize {
        self.source(block).bytes().max(self.out_values(block) * 4)
    }

    fn out_values(&self, block: Block) -> usize {
        3 * self.canvas.width as usize * (block.to - block.from) as usize
    }
}

impl Axis {
    fn new(action: Action, from: u32, to: u32, seen: std::ops::Range<u32>) -> Self {
        match action {
            Action::Copy => Self::default(),
            Action::Bilinear => {
                let cell = |cell| {
                    let found = interpolation_for(cell, from, to);
                    [found.low, found.high, found.fraction.to_bits()]
                };
                Self { cells: seen.map(cell).collect(), weights: Vec::new() }
            }
            Action::Area => {
                let mut all = AreaWeights::default();
                all.compute(from, to);
                let cells = &all.cells[seen.start as usize..seen.end as usize];
                let cells = cells.iter().map(|cell| [cell.first_pixel, cell.offset, cell.count]).collect();
                Self { cells, weights: all.weights }
            }
        }
    }
}

impl<'a> Launch<'a> {
    /// Whether the block fits beside those that are there; one alone always does.
    fn has_room(&self, planned: &Planned<'a>, block: Block, limit: usize) -> bool {
        let pixels = self.pixels.bytes_with(&shared_rows(planned, block, limit));
        let out = (self.out + planned.out_values(block)) * 4;
        self.blocks.is_empty() || (pixels <= limit && out <= limit && self.blocks.len() < MAX_GROUPS)
    }

    fn add(&mut self, planned: &Planned<'a>, block: Block, limit: usize) {
        let window = planned.placement.window;
        let rows = shared_rows(planned, block, limit);
        let stride = rows.stride() as u32;
        let top = self.pixels.add(rows);
        let offset = top.wrapping_add(window.top().wrapping_mul(stride)).wrapping_add(window.left() * 3);
        let inside = planned.inside.height.min(block.to).saturating_sub(block.from);
        let columns = self.add_axis(&planned.columns, planned.action, 0..planned.inside.width);
        let first = block.from.min(planned.inside.height);
        let lines = self.add_axis(&planned.rows, planned.action, first..first + inside);
        self.table.extend([
            offset,
            stride,
            planned.action as u32,
            columns,
            lines,
            planned.inside.width,
            inside,
            self.out as u32,
            block.to - block.from,
            planned.placement.skipped_rows + block.from,
            0,
            0,
        ]);
        self.out += planned.out_values(block);
        self.blocks.push(block);
    }

    fn add_axis(&mut self, axis: &Axis, action: Action, seen: std::ops::Range<u32>) -> u32 {
        let first = (self.cells.len() / CELL_WORDS) as u32;
        if action == Action::Copy {
            return first;
        }
        let weights = self.weights.len() as u32;
        for &[start, second, third] in &axis.cells[seen.start as usize..seen.end as usize] {
            let second = if action == Action::Area { second + weights } else { second };
            self.cells.extend([start, second, third]);
        }
        self.weights.extend_from_slice(&axis.weights);
        first
    }

    fn run(self, gpu: &dyn Gpu, normalisation: &Normalisation, out: &mut Tensor) -> Result<(), GpuError> {
        if self.blocks.is_empty() || self.out == 0 {
            return Ok(());
        }
        let canvas = out.item_size();
        let lines = self.blocks.iter().map(|block| block.to - block.from).max().unwrap_or(0);
        let mut program = Program::default();
        let bindings = [
            program.input(self.pixels.into_bytes()),
            program.words(&self.table),
            program.words(&self.cells),
            program.input(bytemuck::cast_slice::<f32, u8>(&self.weights).to_vec()),
            program.words(&canvas_words([canvas.width, self.blocks.len() as u32], normalisation)),
            program.output(self.out * 4),
        ];
        program.launch(&LETTERBOX, &bindings, [canvas.width as usize, lines as usize, self.blocks.len()]);
        let results = gpu.run(&program)?;
        let mut values = results.first().map(|bytes| to_floats(bytes)).unwrap_or_default().into_iter();
        let (width, plane) = (canvas.width as usize, canvas.area());
        for block in &self.blocks {
            let item = out.item_mut(block.item);
            for first in [0, plane, 2 * plane] {
                let rows = first + block.from as usize * width..first + block.to as usize * width;
                item[rows].iter_mut().zip(&mut values).for_each(|(to, value)| *to = value);
            }
        }
        Ok(())
    }
}

/// What is copied to the device: the whole photo where that fits, since other windows of it may be in the batch.
fn shared_rows<'a>(planned: &Planned<'a>, block: Block, limit: usize) -> Rows<'a> {
    let all = Rows::all(planned.placement.window.frame());
    if all.bytes() <= limit { all } else { planned.source(block) }
}

/// A canvas in the kernels' words: two of the kernel's own, padding, the order of the planes, means and scales.
pub(in crate::batch) fn canvas_words(own: [u32; 2], normalisation: &Normalisation) -> Vec<u32> {
    let Normalisation { channels, mean, scale, padding } = normalisation;
    let mut words = own.to_vec();
    words.extend([padding.to_bits(), u32::from(*channels == Channels::Bgr)]);
    words.extend([mean[0], mean[1], mean[2], 0.0, scale[0], scale[1], scale[2], 0.0].map(f32::to_bits));
    words
}
