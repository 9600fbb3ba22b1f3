//! Area interpolation for shrinking: each output pixel is the mean of the source area that it covers; source pixels
//! covered in part count by that fraction (the method of OpenCV's `INTER_AREA`).

use crate::image::frame::{Size, Window};
use crate::vectors::whole_byte;

/// The source pixels that one output pixel (cell) covers along one axis.
#[derive(Clone, Copy)]
pub(crate) struct CellWeights {
    pub(crate) first_pixel: u32,
    /// Index of the first weight in [`AreaWeights::weights`].
    pub(crate) offset: u32,
    pub(crate) count: u32,
}

/// The weights of all output pixels along one axis.
#[derive(Default)]
pub(crate) struct AreaWeights {
    pub(crate) cells: Vec<CellWeights>,
    pub(crate) weights: Vec<f32>,
}

/// Shrinks windows; owns the buffers, so that a warm call allocates nothing.
#[derive(Default)]
pub(crate) struct AreaShrinker {
    columns: AreaWeights,
    /// The weights of the columns, padded with zeros to the same number for each output pixel: the branches of a loop whose length
    /// varies are mispredicted.
    column_weights: Vec<f32>,
    rows: AreaWeights,
    /// The weighted sum of the source rows of one output row, and zeros behind them, which padding weights read.
    sums: Vec<f32>,
}

impl AreaWeights {
    /// Computes the weights of `to` cells of equal length over `from` pixels. Fractions of a pixel below 0.001 are
    /// dropped.
    pub(crate) fn compute(&mut self, from: u32, to: u32) {
        self.cells.clear();
        self.weights.clear();
        let length = f64::from(from) / f64::from(to);
        for cell in 0..to {
            let start = f64::from(cell) * length;
            let end = (start + length).min(f64::from(from));
            let first_whole = start.ceil();
            let past_whole = end.floor().max(first_whole);
            let first_pixel =
                if first_whole - start > 1e-3 { first_whole as u32 - 1 } else { first_whole as u32 };
            let offset = self.weights.len();
            if first_whole - start > 1e-3 {
                self.weights.push((first_whole.min(end) - start) as f32);
            }
            self.weights.extend((first_whole as u32..past_whole as u32).map(|_| 1.0));
            if end - past_whole > 1e-3 {
                self.weights.push((end - past_whole) as f32);
            }
            let sum: f32 = self.weights[offset..].iter().sum();
            self.weights[offset..].iter_mut().for_each(|weight| *weight /= sum);
            let count = (self.weights.len() - offset) as u32;
            self.cells.push(CellWeights { first_pixel, offset: offset as u32, count });
        }
    }

    /// The first source pixel of a cell, and the weights from there on.
    fn cell_weights(&self, cell: usize) -> (usize, &[f32]) {
        let CellWeights { first_pixel, offset, count } = self.cells[cell];
        (first_pixel as usize, &self.weights[offset as usize..(offset + count) as usize])
    }
}

impl AreaShrinker {
    /// Shrinks `source` to `size`, which is not larger in either dimension. `out` has exactly `size.area() * 3` bytes.
    pub(crate) fn shrink(&mut self, source: Window<'_>, size: Size, out: &mut [u8]) {
        debug_assert!(size.width <= source.size().width && size.height <= source.size().height);
        debug_assert_eq!(out.len(), size.area() * 3);
        self.columns.compute(source.size().width, size.width);
        self.rows.compute(source.size().height, size.height);
        let taps = self.equalise_column_weights();
        self.sums.clear();
        // Pixels are read as four values.
        self.sums.resize((source.size().width as usize + taps) * 3 + 1, 0.0);
        pulp::Arch::new().dispatch(Shrink { shrinker: self, source, taps, out });
    }

    /// Fills `column_weights`; returns how many each pixel has.
    fn equalise_column_weights(&mut self) -> usize {
        let most = self.columns.cells.iter().map(|cell| cell.count as usize).max().unwrap_or(0);
        self.column_weights.clear();
        for cell in 0..self.columns.cells.len() {
            let (_, weights) = self.columns.cell_weights(cell);
            self.column_weights.extend_from_slice(weights);
            self.column_weights.resize((cell + 1) * most, 0.0);
        }
        most
    }

    #[inline(always)]
    fn shrink_rows(&mut self, source: Window<'_>, taps: usize, out: &mut [u8]) {
        for (y, line) in out.chunks_exact_mut(self.columns.cells.len() * 3).enumerate() {
            let (first, weights) = self.rows.cell_weights(y);
            sum_rows(&mut self.sums, source, first as u32, weights);
            // As constants the usual numbers make loops without a branch.
            match taps {
                2 => self.shrink_columns(2, line),
                3 => self.shrink_columns(3, line),
                4 => self.shrink_columns(4, line),
                5 => self.shrink_columns(5, line),
                taps => self.shrink_columns(taps, line),
            }
        }
    }

    /// Writes one output row: the weighted sums along the columns, rounded.
    #[inline(always)]
    fn shrink_columns(&self, taps: usize, line: &mut [u8]) {
        let weights = self.column_weights.chunks_exact(taps);
        for ((index, cell), weights) in self.columns.cells.iter().enumerate().zip(weights) {
            let covered = &self.sums[cell.first_pixel as usize * 3..][..taps * 3 + 1];
            // Four at a time are one vector; the fourth is the next pixel's, and not used.
            let mut total = [0.5_f32; 4];
            for (tap, &weight) in weights.iter().enumerate() {
                let values: &[f32; 4] = covered[tap * 3..].first_chunk().expect("one more than the pixels");
                for (total, value) in total.iter_mut().zip(values) {
                    *total += value * weight;
                }
            }
            let mut pixel = [0; 4];
            for (byte, total) in pixel.iter_mut().zip(total) {
                // The sum of many rounded products may be more than the largest value.
                *byte = whole_byte(total.min(255.5));
            }
            let target = &mut line[index * 3..];
            // The fourth byte goes where the next pixel will: one store for a pixel, as in the sampler. (In a function of their
            // own, these lines keep the compiler from unrolling the loop above.)
            match target.first_chunk_mut() {
                Some(four) => *four = pixel,
                None => target.copy_from_slice(&pixel[..3]),
            }
        }
    }
}

/// A picture to shrink.
struct Shrink<'s, 'w, 'o> {
    shrinker: &'s mut AreaShrinker,
    source: Window<'w>,
    /// Weights of a column.
    taps: usize,
    out: &'o mut [u8],
}

impl pulp::NullaryFnOnce for Shrink<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.shrinker.shrink_rows(self.source, self.taps, self.out);
    }
}

/// Sets `sums` to the weighted sum of the source rows from `first` on. Four rows at a time: the sums are loaded and stored once.
#[inline(always)]
fn sum_rows(sums: &mut [f32], source: Window<'_>, first: u32, weights: &[f32]) {
    for (group, weights) in weights.chunks(4).enumerate() {
        let row = |offset: u32| source.row(first + 4 * group as u32 + offset);
        let begins = group == 0;
        match *weights {
            [a] => add_rows(sums, begins, [row(0)], [a]),
            [a, b] => add_rows(sums, begins, [row(0), row(1)], [a, b]),
            [a, b, c] => add_rows(sums, begins, [row(0), row(1), row(2)], [a, b, c]),
            [a, b, c, d] => add_rows(sums, begins, [row(0), row(1), row(2), row(3)], [a, b, c, d]),
            _ => unreachable!("chunks of four have one to four"),
        }
    }
}

/// Adds weighted rows to the sums, or begins with them.
#[inline(always)]
fn add_rows<const N: usize>(sums: &mut [f32], begins: bool, mut rows: [&[u8]; N], weights: [f32; N]) {
    let length = rows[0].len();
    // All of one length: no index is checked in the loop.
    rows.iter_mut().for_each(|row| *row = &row[..length]);
    for (index, total) in sums[..length].iter_mut().enumerate() {
        let mut sum = if begins { 0.0 } else { *total };
        for (row, weight) in rows.iter().zip(weights) {
            sum += f32::from(row[index]) * weight;
        }
        *total = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::frame::Frame;

    /// The definition, pixel by pixel, in f64.
    fn reference(frame: Frame<'_>, size: Size, (x, y): (u32, u32), channel: usize) -> f64 {
        let overlap = |cell: u32, cells: u32, pixels: u32, at: u32| {
            let length = f64::from(pixels) / f64::from(cells);
            let (start, end) = (f64::from(cell) * length, f64::from(cell + 1) * length);
            (end.min(f64::from(at + 1)) - start.max(f64::from(at))).max(0.0) / length
        };
        let mut sum = 0.0;
        for row in 0..frame.height() {
            for column in 0..frame.width() {
                let weight = overlap(x, size.width, frame.width(), column)
                    * overlap(y, size.height, frame.height(), row);
                let index = (row * frame.width() + column) as usize * 3 + channel;
                sum += weight * f64::from(frame.pixels()[index]);
            }
        }
        sum
    }

    #[test]
    fn each_pixel_is_the_mean_of_what_it_covers() {
        let sizes = [
            ((40, 30), (20, 10)),
            ((40, 30), (10, 6)),
            ((33, 23), (10, 4)),
            ((37, 23), (20, 22)),
            ((64, 48), (64, 7)),
            ((50, 9), (3, 1)),
        ];
        for (from, to) in sizes {
            let pixels: Vec<u8> =
                (0..from.0 * from.1 * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let frame = Frame::new(&pixels, from.0, from.1).unwrap();
            let size = Size { width: to.0, height: to.1 };
            let mut out = vec![0; size.area() * 3];
            AreaShrinker::default().shrink(frame.as_window(), size, &mut out);
            for y in 0..size.height {
                for x in 0..size.width {
                    for channel in 0..3 {
                        let got = f64::from(out[(y * size.width + x) as usize * 3 + channel]);
                        let expected = reference(frame, size, (x, y), channel);
                        assert!(
                            (got - expected).abs() <= 0.51,
                            "{from:?} {to:?} {x} {y}: {got}, expected {expected}"
                        );
                    }
                }
            }
        }
    }
}
