//! Inverse DCT of blocks of 8 by 8 coefficients to 8, 6, 4, 3, 2 or 1 pixels a side, with libjpeg's "islow" arithmetic
//! (13-bit constants, 2 bits kept between the passes), so that the pixels are those of libjpeg-turbo.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod block;
mod points;
mod portable;

use crate::cpu::Cpu;
use crate::idct::block::{Coefficients, Quant};

/// The largest DC coefficient, times its quantisation, that is transformed. A picture has at most 1,024 and half a step of
/// quantisation; beyond four times this, libjpeg-turbo's own vector code and plain code come to different pixels.
pub(crate) const MAX_DC: i32 = 4000;

/// Transforms two blocks to `side` by `side` pixels each, one right of the other. `out` begins with their first pixel and
/// has `stride` pixels a row.
pub(crate) fn transform_pair(
    cpu: Cpu,
    side: usize,
    pair: [&Coefficients; 2],
    quant: &Quant,
    out: &mut [u8],
    stride: usize,
) {
    match cpu {
        Cpu::Portable => portable::transform_pair(side, pair, quant, out, stride),
        #[cfg(target_arch = "x86_64")]
        Cpu::Avx2(proof) => avx2::transform_pair(proof, side, pair, quant, out, stride),
    }
}
