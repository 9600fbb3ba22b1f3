//! From rows of samples to rows of RGB, with libjpeg's arithmetic to the last bit.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;
mod upsampler;
mod ycc_row;

pub(crate) use upsampler::Upsampler;
pub(crate) use ycc_row::YccRow;

use crate::cpu::Cpu;

/// Writes one row of RGB.
pub(crate) fn rgb_from_ycc(cpu: Cpu, row: YccRow<'_>, out: &mut [u8]) {
    match cpu {
        Cpu::Portable => portable::rgb_from_ycc(row, out),
        #[cfg(target_arch = "x86_64")]
        Cpu::Avx2(proof) => avx2::rgb_from_ycc(proof, row, out),
    }
}

/// Writes one row of RGB without colour.
pub(crate) fn rgb_from_grey(row: &[u8], out: &mut [u8]) {
    for (pixel, grey) in out.chunks_exact_mut(3).zip(row) {
        pixel.fill(*grey);
    }
}
