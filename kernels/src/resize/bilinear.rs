//! Bilinear interpolation between pixel centres, for enlarging and for nearby sizes. Edge pixels are repeated; there is
//! no prefilter, so shrinking by much aliases (see [`crate::resize::area`]).

use crate::image::frame::{Size, Window};
use crate::vectors::whole_byte;

/// The two source pixels that an output pixel is interpolated from, and its distance from the first (0 to 1).
#[derive(Clone, Copy)]
pub(crate) struct Interpolation {
    pub(crate) low: u32,
    pub(crate) high: u32,
    pub(crate) fraction: f32,
}

/// Resizes windows; owns the buffers, so that a warm call allocates nothing.
#[derive(Default)]
pub(crate) struct Bilinear {
    columns: Vec<Interpolation>,
    lines: [Vec<f32>; 2],
}

pub(crate) fn interpolation_for(cell: u32, from: u32, to: u32) -> Interpolation {
    let position = (f64::from(cell) + 0.5) * f64::from(from) / f64::from(to) - 0.5;
    let low = position.floor();
    let clamp = |value: f64| value.clamp(0.0, f64::from(from - 1)) as u32;
    Interpolation { low: clamp(low), high: clamp(low + 1.0), fraction: (position - low) as f32 }
}

impl Bilinear {
    /// Resizes `source` to `size`. `out` has exactly `size.area() * 3` bytes.
    pub(crate) fn resize(&mut self, source: Window<'_>, size: Size, out: &mut [u8]) {
        debug_assert_eq!(out.len(), size.area() * 3);
        let from = source.size();
        self.columns.clear();
        self.columns.extend((0..size.width).map(|x| interpolation_for(x, from.width, size.width)));
        self.lines.iter_mut().for_each(|line| line.resize(size.width as usize * 3, 0.0));
        pulp::Arch::new().dispatch(Resize { bilinear: self, source, size, out });
    }

    #[inline(always)]
    fn resize_rows(&mut self, source: Window<'_>, size: Size, out: &mut [u8]) {
        // The source rows whose interpolated columns are in `lines`: neighbouring output rows mostly need the same two.
        let mut cached_rows = [u32::MAX; 2];
        for (y, target) in out.chunks_exact_mut(size.width as usize * 3).enumerate() {
            let rows = interpolation_for(y as u32, source.size().height, size.height);
            if cached_rows[1] == rows.low {
                cached_rows.swap(0, 1);
                self.lines.swap(0, 1);
            }
            for (slot, row) in [rows.low, rows.high].into_iter().enumerate() {
                if cached_rows[slot] != row {
                    interpolate_columns(source.row(row), &self.columns, &mut self.lines[slot]);
                    cached_rows[slot] = row;
                }
            }
            let [low, high] = &self.lines;
            blend_rows(low, high, rows.fraction, target);
        }
    }
}

/// A picture to resize.
struct Resize<'b, 'w, 'o> {
    bilinear: &'b mut Bilinear,
    source: Window<'w>,
    size: Size,
    out: &'o mut [u8],
}

impl pulp::NullaryFnOnce for Resize<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.bilinear.resize_rows(self.source, self.size, self.out);
    }
}

#[inline(always)]
fn interpolate_columns(row: &[u8], columns: &[Interpolation], line: &mut [f32]) {
    for (target, column) in line.chunks_exact_mut(3).zip(columns) {
        let low = &row[column.low as usize * 3..][..3];
        let high = &row[column.high as usize * 3..][..3];
        for channel in 0..3 {
            let start = f32::from(low[channel]);
            target[channel] = start + (f32::from(high[channel]) - start) * column.fraction;
        }
    }
}

#[inline(always)]
fn blend_rows(low: &[f32], high: &[f32], part: f32, target: &mut [u8]) {
    for ((value, &low), &high) in target.iter_mut().zip(low).zip(high) {
        *value = whole_byte(low + (high - low) * part + 0.5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::frame::Frame;

    fn reference(frame: Frame<'_>, size: Size, (x, y): (u32, u32), channel: usize) -> f64 {
        let position =
            |cell: u32, from: u32, to: u32| (f64::from(cell) + 0.5) * f64::from(from) / f64::from(to) - 0.5;
        let (px, py) = (position(x, frame.width(), size.width), position(y, frame.height(), size.height));
        let at = |column: f64, row: f64| {
            let column = column.clamp(0.0, f64::from(frame.width() - 1)) as u32;
            let row = row.clamp(0.0, f64::from(frame.height() - 1)) as u32;
            f64::from(frame.pixels()[(row * frame.width() + column) as usize * 3 + channel])
        };
        let (fx, fy) = (px - px.floor(), py - py.floor());
        let upper = at(px.floor(), py.floor()) * (1.0 - fx) + at(px.floor() + 1.0, py.floor()) * fx;
        let lower =
            at(px.floor(), py.floor() + 1.0) * (1.0 - fx) + at(px.floor() + 1.0, py.floor() + 1.0) * fx;
        upper * (1.0 - fy) + lower * fy
    }

    #[test]
    fn each_pixel_is_interpolated_between_pixel_centres() {
        for (from, to) in [((13, 9), (40, 36)), ((20, 20), (21, 33)), ((1, 1), (5, 4)), ((30, 20), (17, 11))]
        {
            let pixels: Vec<u8> =
                (0..from.0 * from.1 * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let frame = Frame::new(&pixels, from.0, from.1).unwrap();
            let size = Size { width: to.0, height: to.1 };
            let mut out = vec![0; size.area() * 3];
            Bilinear::default().resize(frame.as_window(), size, &mut out);
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
