//! Downscaling on a GPU: tables of weights, and launches that fit its buffers.

use super::{COLUMNS, Downscale, ROWS};
use crate::batch::pixels::{PixelBuffer, Rows};
use crate::gpu::{Gpu, GpuError, MAX_GROUPS, Program};
use crate::image::frame::{Picture, Size};
use crate::resize::weights::BicubicWeights;

struct Planned<'a> {
    photo: Downscale<'a>,
    rows: BicubicWeights,
    columns: BicubicWeights,
}

/// Rows of a result that are computed together.
#[derive(Clone, Copy)]
struct Block {
    item: usize,
    from: u32,
    to: u32,
}

#[derive(Default)]
struct Launch<'a> {
    pixels: PixelBuffer<'a>,
    blocks: Vec<Block>,
    table: Vec<u32>,
    cells: Vec<u32>,
    weights: Vec<i32>,
    /// Words used so far.
    between: usize,
    out: usize,
}

pub(super) fn resize_all(gpu: &dyn Gpu, photos: &[Downscale<'_>]) -> Result<Vec<Picture>, GpuError> {
    let planned: Vec<Planned<'_>> = photos.iter().map(|photo| Planned::new(*photo)).collect();
    let mut results: Vec<Vec<u8>> = photos.iter().map(|(_, size)| vec![0; size.area() * 3]).collect();
    let limit = gpu.max_buffer_bytes();
    let mut launch = Launch::default();
    let mut waiting: Vec<Block> =
        (0..planned.len()).rev().map(|item| Block { item, from: 0, to: photos[item].1.height }).collect();
    while let Some(block) = waiting.pop() {
        let plan = &planned[block.item];
        let needed = plan.needed_bytes(block);
        let lines = (block.to - block.from) as usize;
        if needed > limit || lines > MAX_GROUPS {
            if lines <= 1 {
                return Err(GpuError::TooLarge { bytes: needed, limit });
            }
            let middle = block.from.midpoint(block.to);
            waiting.push(Block { from: middle, ..block });
            waiting.push(Block { to: middle, ..block });
            continue;
        }
        if !launch.has_room(plan, block, limit) {
            std::mem::take(&mut launch).run(gpu, &planned, &mut results)?;
        }
        launch.add(plan, block);
    }
    launch.run(gpu, &planned, &mut results)?;
    let picture = |(pixels, (_, size)): (Vec<u8>, &Downscale<'_>)| {
        Picture::new(pixels, size.width, size.height).expect("results are made with width * height * 3 bytes")
    };
    Ok(results.into_iter().zip(photos).map(picture).collect())
}

impl<'a> Planned<'a> {
    fn new(photo: Downscale<'a>) -> Self {
        let (frame, size) = photo;
        assert!(size.width > 0 && size.height > 0, "the target has a side of zero pixels");
        let rows = BicubicWeights::new(frame.height(), size.height);
        Self { photo, rows, columns: BicubicWeights::new(frame.width(), size.width) }
    }

    fn source(&self, block: Block) -> Rows<'a> {
        let cells = &self.rows.cells[block.from as usize..block.to as usize];
        let from = cells.iter().map(|cell| cell[0]).min().unwrap_or(0);
        let to = cells.iter().map(|cell| cell[0] + cell[2]).max().unwrap_or(0);
        Rows { frame: self.photo.0, from, to }
    }

    /// Words of a row between the passes and of the result.
    fn strides(&self) -> [usize; 2] {
        [self.photo.0.width(), self.photo.1.width].map(|width| (width as usize * 3).div_ceil(4))
    }

    fn needed_bytes(&self, block: Block) -> usize {
        let lines = (block.to - block.from) as usize;
        let [between, out] = self.strides();
        self.source(block).bytes().max(between.max(out) * lines * 4)
    }
}

impl<'a> Launch<'a> {
    fn has_room(&self, planned: &Planned<'a>, block: Block, limit: usize) -> bool {
        let lines = (block.to - block.from) as usize;
        let [between, out] = planned.strides();
        let pixels = self.pixels.bytes_with(&planned.source(block));
        let words = (self.between + between * lines).max(self.out + out * lines);
        self.blocks.is_empty() || (pixels <= limit && words * 4 <= limit && self.blocks.len() < MAX_GROUPS)
    }

    fn add(&mut self, planned: &Planned<'a>, block: Block) {
        let rows = planned.source(block);
        let lines = (block.to - block.from) as usize;
        let [between, out] = planned.strides();
        let stride = rows.stride() as u32;
        let offset = self.pixels.add(rows);
        let row_cells = self.add_axis(&planned.rows, block.from..block.to);
        let column_cells = self.add_axis(&planned.columns, 0..planned.photo.1.width);
        // The bytes after the last pixel of a row have a cell too.
        let last = self.cells.len() - 3;
        self.cells.extend_from_within(last..);
        let words = [self.between, between, self.out, out, lines].map(|value| value as u32);
        self.table.extend([
            offset,
            stride,
            row_cells,
            column_cells,
            planned.rows.shift,
            planned.columns.shift,
        ]);
        self.table.extend(words);
        self.table.push(0);
        self.between += between * lines;
        self.out += out * lines;
        self.blocks.push(block);
    }

    fn add_axis(&mut self, axis: &BicubicWeights, seen: std::ops::Range<u32>) -> u32 {
        let first = (self.cells.len() / 3) as u32;
        let weights = self.weights.len() as u32;
        for [start, weight, count] in &axis.cells[seen.start as usize..seen.end as usize] {
            self.cells.extend([*start, weight + weights, *count]);
        }
        self.weights.extend_from_slice(&axis.weights);
        first
    }

    fn run(self, gpu: &dyn Gpu, planned: &[Planned<'_>], results: &mut [Vec<u8>]) -> Result<(), GpuError> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let strides = self.blocks.iter().map(|block| planned[block.item].strides());
        let widest = strides.fold([0; 2], |most, [between, out]| [most[0].max(between), most[1].max(out)]);
        let lines = self.blocks.iter().map(|block| (block.to - block.from) as usize).max().unwrap_or(0);
        let mut program = Program::default();
        let bindings = [
            program.input(self.pixels.into_bytes()),
            program.words(&self.table),
            program.words(&self.cells),
            program.input(bytemuck::cast_slice::<i32, u8>(&self.weights).to_vec()),
            program.scratch(self.between * 4),
            program.output(self.out * 4),
        ];
        program.launch(&ROWS, &bindings, [widest[0], lines, self.blocks.len()]);
        program.launch(&COLUMNS, &bindings, [widest[1], lines, self.blocks.len()]);
        let outputs = gpu.run(&program)?;
        let mut rest = outputs.first().map_or(&[][..], Vec::as_slice);
        for block in &self.blocks {
            let Size { width, .. } = planned[block.item].photo.1;
            let (stride, width) = (planned[block.item].strides()[1] * 4, width as usize * 3);
            for y in block.from as usize..block.to as usize {
                let (line, after) = rest.split_at(stride);
                results[block.item][y * width..(y + 1) * width].copy_from_slice(&line[..width]);
                rest = after;
            }
        }
        Ok(())
    }
}
