//! The horizontal pass of bicubic resizing with AVX-512: sixteen values of four rows in one step, where `fast_image_resize` makes one
//! pixel of them with AVX2. The arithmetic is the same whole numbers, so pixels are the same on every CPU.

use pulp::NullaryFnOnce;
use pulp::x86::V4;

use crate::resize::weights::BicubicWeights;

/// Values that a step writes: bytes of the target, with the three of a pixel side by side.
const VALUES: usize = 16;

/// Bytes of the source that a step looks at.
const WINDOW: usize = 64;

/// Rows that share what a step loads of its plan.
const ROWS: usize = 4;

/// Resizes rows of one width to another.
pub(crate) struct ColumnResizer {
    simd: V4,
    /// Pixels of a row of the source.
    from: u32,
    /// Pixels of a row of the target.
    to: u32,
    steps: Vec<Step>,
    /// Those of the first step, then those of the second.
    operands: Vec<Operand>,
    operands_per_step: usize,
    /// Fraction bits of the weights.
    shift: u32,
}

/// Where a step reads and writes, bytes from the beginning of a row.
struct Step {
    window: usize,
    target: usize,
}

/// What two pixels of the source add to each of the values.
struct Operand {
    /// For each value its two bytes in the window.
    places: [u16; 2 * VALUES],
    weights: [i16; 2 * VALUES],
}

impl ColumnResizer {
    /// Prepares to resize rows of `from` pixels to `to`. `None` without AVX-512, for short rows, and where the pixels that one step
    /// needs do not fit into its window, which is at about half the width.
    pub(crate) fn new(from: u32, to: u32) -> Option<Self> {
        let simd = V4::try_new()?;
        let (source, target) = (from as usize * 3, to as usize * 3);
        if source < WINDOW || target < VALUES {
            return None;
        }
        let weights = BicubicWeights::new(from, to);
        let most = weights.cells.iter().map(|[_, _, count]| *count as usize).max()?;
        let operands_per_step = most.div_ceil(2);
        let (mut steps, mut operands) = (Vec::new(), Vec::new());
        for begin in (0..target).step_by(VALUES) {
            // The last step may write some values once more.
            let begin = begin.min(target - VALUES);
            // At the left edge a later pixel may begin before an earlier one, whose outermost weight is zero.
            let pixels = begin / 3..=(begin + VALUES - 1) / 3;
            let first = weights.cells[pixels].iter().map(|[first, ..]| *first as usize).min()?;
            let window = (first * 3).min(source - WINDOW);
            steps.push(Step { window, target: begin });
            for pair in 0..operands_per_step {
                operands.push(Operand::new(&weights, begin, window, 2 * pair)?);
            }
        }
        Some(Self { simd, from, to, steps, operands, operands_per_step, shift: weights.shift })
    }

    /// Whether it resizes rows of `from` pixels to `to`.
    pub(crate) fn is_for(&self, from: u32, to: u32) -> bool {
        (self.from, self.to) == (from, to)
    }

    /// Resizes as many rows as `target` has.
    ///
    /// # Panics
    /// When the source has fewer rows.
    pub(crate) fn resize(&self, source: &[u8], target: &mut [u8]) {
        self.simd.vectorize(Pass { resizer: self, source, target });
    }

    #[inline(always)]
    fn resize_rows<const N: usize>(&self, rows: [&[u8]; N], target: &mut [u8]) {
        let (avx512f, avx512bw) = (self.simd.avx512f, self.simd.avx512bw);
        let shift = avx512f._mm512_set1_epi32(self.shift as i32);
        let half = avx512f._mm512_set1_epi32(1 << (self.shift - 1));
        let zero = avx512f._mm512_setzero_si512();
        let length = target.len() / N;
        for (step, operands) in self.steps.iter().zip(self.operands.chunks_exact(self.operands_per_step)) {
            let mut words = [[zero; 2]; N];
            // In loops, not closures: the compiler leaves the closures that arrays are mapped with without AVX-512.
            for (words, row) in words.iter_mut().zip(rows) {
                let window: &[u8; WINDOW] =
                    row[step.window..].first_chunk().expect("`new` fits it in the row");
                let halves: [[u8; WINDOW / 2]; 2] = pulp::cast(*window);
                for (words, half) in words.iter_mut().zip(halves) {
                    *words = avx512bw._mm512_cvtepu8_epi16(pulp::cast(half));
                }
            }
            let mut sums = [half; N];
            for operand in operands {
                let (places, weights) = (pulp::cast(operand.places), pulp::cast(operand.weights));
                for (sum, [low, high]) in sums.iter_mut().zip(words) {
                    let pairs = avx512bw._mm512_permutex2var_epi16(low, places, high);
                    *sum = avx512f._mm512_add_epi32(*sum, avx512bw._mm512_madd_epi16(pairs, weights));
                }
            }
            for (row, sum) in sums.into_iter().enumerate() {
                let positive = avx512f._mm512_max_epi32(avx512f._mm512_srav_epi32(sum, shift), zero);
                let bytes: [u8; VALUES] = pulp::cast(avx512f._mm512_cvtusepi32_epi8(positive));
                target[row * length + step.target..][..VALUES].copy_from_slice(&bytes);
            }
        }
    }
}

impl Operand {
    /// The operand of the pixels `tap` and `tap + 1` of those that count for each value from `begin` on; `None` if one of them is
    /// not in the window.
    fn new(weights: &BicubicWeights, begin: usize, window: usize, tap: usize) -> Option<Self> {
        let mut operand = Self { places: [0; 2 * VALUES], weights: [0; 2 * VALUES] };
        for lane in 0..2 * VALUES {
            let (value, tap) = (begin + lane / 2, tap + lane % 2);
            let [first, offset, count] = weights.cells[value / 3].map(|it| it as usize);
            if tap < count {
                let place = ((first + tap) * 3 + value % 3).checked_sub(window)?;
                operand.places[lane] = (place < WINDOW).then_some(place as u16)?;
                operand.weights[lane] = i16::try_from(weights.weights[offset + tap]).ok()?;
            }
        }
        Some(operand)
    }
}

/// Resizes all rows.
struct Pass<'a> {
    resizer: &'a ColumnResizer,
    source: &'a [u8],
    target: &'a mut [u8],
}

impl NullaryFnOnce for Pass<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { resizer, source, target } = self;
        let (from, to) = (resizer.from as usize * 3, resizer.to as usize * 3);
        let mut sources = source.chunks_exact(from);
        let mut next = || sources.next().expect("as many rows as the target");
        let mut groups = target.chunks_exact_mut(ROWS * to);
        for group in groups.by_ref() {
            resizer.resize_rows::<ROWS>(std::array::from_fn(|_| next()), group);
        }
        for row in groups.into_remainder().chunks_exact_mut(to) {
            resizer.resize_rows::<1>([next()], row);
        }
    }
}

#[cfg(test)]
mod tests {
    use fast_image_resize as fir;
    use fast_image_resize::images::{TypedImage, TypedImageRef};
    use fast_image_resize::pixels::U8x3;

    use super::*;

    fn resize_by_library(pixels: &[u8], from: u32, to: u32, rows: u32) -> Vec<u8> {
        let source = TypedImageRef::<U8x3>::from_buffer(from, rows, pixels).unwrap();
        let mut out = vec![0; (to * rows * 3) as usize];
        let mut target = TypedImage::<U8x3>::from_buffer(to, rows, &mut out).unwrap();
        let filter = fir::ResizeAlg::Convolution(fir::FilterType::CatmullRom);
        let options = fir::ResizeOptions::new().resize_alg(filter);
        fir::Resizer::new().resize_typed(&source, &mut target, &options).unwrap();
        out
    }

    #[test]
    fn the_values_are_those_of_the_library() {
        if V4::try_new().is_none() {
            eprintln!("skipped: this CPU has no AVX-512");
            return;
        }
        let mut prepared = 0;
        for (from, to) in [
            (2250, 2048),
            (2052, 2048),
            (100, 99),
            (90, 47),
            (64, 6),
            (22, 21),
            (21, 40),
            (22, 3000),
            (22, 154),
            (33, 22),
        ] {
            for rows in [1, 7, 8, 19] {
                // Extremes, which overshoot at edges, and everything in between.
                let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8;
                let value = |i: u32| if i % 7 < 3 { noise(i) / 128 * 255 } else { noise(i) };
                let pixels: Vec<u8> = (0..from * rows * 3).map(value).collect();
                let Some(resizer) = ColumnResizer::new(from, to) else { continue };
                prepared += 1;
                let mut out = vec![0; (to * rows * 3) as usize];
                resizer.resize(&pixels, &mut out);
                assert_eq!(out, resize_by_library(&pixels, from, to, rows), "{from} to {to}, {rows} rows");
            }
        }
        assert!(prepared >= 24, "{prepared}: for shrinking to half and for any growing there is a plan");
    }

    #[test]
    fn rows_that_do_not_fit_are_left_to_the_library() {
        for (from, to) in [(21, 20), (100, 5), (6000, 1000)] {
            assert!(ColumnResizer::new(from, to).is_none(), "{from} to {to}");
        }
    }
}
