//! From the samples of a row of MCUs to rows of pixels.

use crate::colour::{self, Upsampler, YccRow};
use crate::cpu::Cpu;
use crate::scan::layout::{Layout, Upsampling};
use crate::scan::planes::Planes;

/// Writes rows of pixels.
pub(super) struct RowWriter<'a> {
    pub(super) cpu: Cpu,
    pub(super) layout: &'a Layout,
    pub(super) planes: &'a Planes,
    pub(super) upsamplers: &'a mut [Upsampler; 2],
}

impl RowWriter<'_> {
    /// Writes the rows of `out` that can be made now. Where colours are blended with those of the row below, the last row of
    /// each row of MCUs waits for the next.
    pub(super) fn write(&mut self, mcu_row: usize, out: &mut [u8]) {
        let Layout { width, height, rows, .. } = *self.layout;
        let top = mcu_row * rows;
        let waiting = usize::from(self.layout.blends_rows);
        let first = if mcu_row == 0 { 0 } else { top - waiting };
        let is_last = mcu_row + 1 == self.layout.mcu_rows;
        let end = if is_last { height } else { (top + rows - waiting).min(height) };
        if first >= end {
            return;
        }
        let out = &mut out[first * width * 3..end * width * 3];
        for (y, row) in (first..end).zip(out.chunks_exact_mut(width * 3)) {
            self.write_row(top, y, row);
        }
    }

    /// Writes row `y` of the picture; the row of MCUs begins at `top`.
    fn write_row(&mut self, top: usize, y: usize, out: &mut [u8]) {
        let (cpu, planes, width) = (self.cpu, self.planes, self.layout.width);
        // The planes begin with the row above `top`.
        let luma = planes.get(0).row(y + 1 - top, width);
        if self.layout.parts.len() == 1 {
            return colour::rgb_from_grey(luma, out);
        }
        let half_width = width.div_ceil(2);
        let colour_rows = self.colour_rows(y);
        let [first, second] = &mut *self.upsamplers;
        let (cb, cr) = match self.layout.upsampling {
            Upsampling::None => {
                (planes.get(1).row(y + 1 - top, width), planes.get(2).row(y + 1 - top, width))
            }
            Upsampling::Width => {
                let [cb, cr] = [1, 2].map(|i| planes.get(i).row(y + 1 - top, half_width));
                // libjpeg blends only where a block is more than one pixel.
                if Upsampler::is_blended(half_width) && self.layout.parts[0].side > 1 {
                    (first.blend(cpu, cb), second.blend(cpu, cr))
                } else {
                    (first.repeat(cb), second.repeat(cr))
                }
            }
            Upsampling::Both => {
                let rows = colour_rows.map(|row| row + 1 - top / 2);
                let [cb, cr] = [1, 2].map(|i| rows.map(|row| planes.get(i).row(row, half_width)));
                if self.layout.blends_rows {
                    (first.blend_rows(cpu, cb), second.blend_rows(cpu, cr))
                } else {
                    (first.repeat(cb[0]), second.repeat(cr[0]))
                }
            }
        };
        colour::rgb_from_ycc(cpu, YccRow { y: luma, cb, cr }, out);
    }

    /// The rows of colour that are nearest to row `y` of the picture and next to nearest; twice the nearest where they are
    /// not blended.
    fn colour_rows(&self, y: usize) -> [usize; 2] {
        let near = y / 2;
        if !self.layout.blends_rows {
            return [near; 2];
        }
        let last = self.layout.height.div_ceil(2) - 1;
        let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { (near + 1).min(last) };
        [near, far]
    }
}
