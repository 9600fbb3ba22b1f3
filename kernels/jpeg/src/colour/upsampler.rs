//! Makes rows of colour as wide as those of brightness. libjpeg calls it "fancy": each pixel is three parts of the nearer
//! sample and one of the other.

#[cfg(target_arch = "x86_64")]
use crate::cpu::Avx2;
use crate::cpu::Cpu;

/// Of rows of so few samples libjpeg repeats each sample.
const NARROW: usize = 2;

/// How sums of samples become pixels: what is added to the left and to the right pixel before the shift.
#[derive(Clone, Copy)]
struct Rounding {
    left: u16,
    right: u16,
    shift: u32,
}

const IN_A_ROW: Rounding = Rounding { left: 1, right: 2, shift: 2 };
const IN_BOTH: Rounding = Rounding { left: 8, right: 7, shift: 4 };

/// Widens rows; keeps its buffers.
#[derive(Default)]
pub(crate) struct Upsampler {
    sums: Vec<u16>,
    row: Vec<u8>,
}

impl Upsampler {
    /// Whether rows of that many samples are blended, or only repeated.
    pub(crate) fn is_blended(samples: usize) -> bool {
        samples > NARROW
    }

    /// Most bytes of the buffers for rows of at most `samples`.
    pub(crate) const fn max_bytes(samples: usize) -> usize {
        samples * 4
    }

    /// Each sample twice.
    pub(crate) fn repeat(&mut self, samples: &[u8]) -> &[u8] {
        resize_exactly(&mut self.row, samples.len() * 2);
        for (pair, sample) in self.row.chunks_exact_mut(2).zip(samples) {
            pair.fill(*sample);
        }
        &self.row
    }

    /// Twice as many samples, blended with their neighbours in the row.
    pub(crate) fn blend(&mut self, cpu: Cpu, samples: &[u8]) -> &[u8] {
        resize_exactly(&mut self.sums, samples.len());
        for (sum, sample) in self.sums.iter_mut().zip(samples) {
            *sum = u16::from(*sample);
        }
        self.expand(cpu, IN_A_ROW)
    }

    /// Twice as many samples, of the nearest row and the next to nearest, blended with their neighbours in both.
    pub(crate) fn blend_rows(&mut self, cpu: Cpu, rows: [&[u8]; 2]) -> &[u8] {
        let [near, far] = rows;
        resize_exactly(&mut self.sums, near.len());
        for ((sum, near), far) in self.sums.iter_mut().zip(near).zip(far) {
            *sum = 3 * u16::from(*near) + u16::from(*far);
        }
        self.expand(cpu, IN_BOTH)
    }

    fn expand(&mut self, cpu: Cpu, rounding: Rounding) -> &[u8] {
        resize_exactly(&mut self.row, self.sums.len() * 2);
        match cpu {
            Cpu::Portable => expand(&self.sums, rounding, &mut self.row),
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx2(proof) => expand_avx2(proof, &self.sums, rounding, &mut self.row),
        }
        &self.row
    }
}

/// Resizes without reserving more: the memory of a decoder is limited.
fn resize_exactly<T: Clone + Default>(buffer: &mut Vec<T>, length: usize) {
    buffer.reserve_exact(length.saturating_sub(buffer.len()));
    buffer.resize(length, T::default());
}

/// The same loop, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "AVX2 is there only where detected")]
fn expand_avx2(_proof: Avx2, sums: &[u16], rounding: Rounding, out: &mut [u8]) {
    #[target_feature(enable = "avx2")]
    fn expand_with_avx2(sums: &[u16], rounding: Rounding, out: &mut [u8]) {
        expand(sums, rounding, out);
    }
    debug_assert!(Avx2::is_detected());
    // SAFETY: the proof says that the processor has AVX2.
    unsafe { expand_with_avx2(sums, rounding, out) }
}

/// The first and the last sum are their own neighbours.
#[inline(always)]
fn expand(sums: &[u16], rounding: Rounding, out: &mut [u8]) {
    let Rounding { left, right, shift } = rounding;
    let blend = |near: u16, far: u16, round: u16| ((3 * near + far + round) >> shift) as u8;
    let ([first, second, ..], [.., before_last, last]) = (sums, sums) else { return };
    let (begin, middle) = out.split_at_mut(2);
    begin.copy_from_slice(&[blend(*first, *first, left), blend(*first, *second, right)]);
    for (pair, near) in middle.chunks_exact_mut(2).zip(sums.windows(3)) {
        pair[0] = blend(near[1], near[0], left);
        pair[1] = blend(near[1], near[2], right);
    }
    if let [.., a, b] = out {
        (*a, *b) = (blend(*last, *before_last, left), blend(*last, *last, right));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_blended_and_edges_are_kept() {
        for cpu in [Cpu::Portable, Cpu::detect()] {
            let mut upsampler = Upsampler::default();
            assert_eq!(upsampler.blend(cpu, &[0, 100, 200]), [0, 25, 75, 125, 175, 200]);
            assert_eq!(upsampler.blend_rows(cpu, [&[10, 50, 90], &[50, 90, 130]]), [20, 30, 50, 70, 90, 100]);
            assert_eq!(upsampler.repeat(&[3, 4]), [3, 3, 4, 4]);
        }
    }

    #[test]
    fn vectors_and_plain_code_agree() {
        let (near, far): (Vec<u8>, Vec<u8>) =
            (0..333_u32).map(|i| ((i * 97) as u8, (i * 61 + 5) as u8)).unzip();
        for length in 3..near.len() {
            let (mut a, mut b) = (Upsampler::default(), Upsampler::default());
            let (near, far) = (&near[..length], &far[..length]);
            assert_eq!(a.blend(Cpu::detect(), near), b.blend(Cpu::Portable, near));
            assert_eq!(a.blend_rows(Cpu::detect(), [near, far]), b.blend_rows(Cpu::Portable, [near, far]));
        }
    }
}
