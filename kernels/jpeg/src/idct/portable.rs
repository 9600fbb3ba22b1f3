//! The transforms of all sizes in plain code.

use std::num::Wrapping;

use crate::idct::block::{Coefficients, Quant};
use crate::idct::points::{Number, Points, To2, To3, To4, To6, To8};

/// Two blocks side by side: see [`super::transform_pair`].
#[inline(always)]
pub(super) fn transform_pair(
    side: usize,
    pair: [&Coefficients; 2],
    quant: &Quant,
    out: &mut [u8],
    stride: usize,
) {
    for (i, block) in pair.into_iter().enumerate() {
        let out = &mut out[i * side..];
        match side {
            8 => transform::<8, To8>(block, quant, out, stride),
            6 => transform::<6, To6>(block, quant, out, stride),
            4 => transform::<4, To4>(block, quant, out, stride),
            3 => transform::<3, To3>(block, quant, out, stride),
            2 => transform::<2, To2>(block, quant, out, stride),
            _ => out[0] = flat_pixel(block, quant),
        }
    }
}

/// Every pixel of a block that has only a DC coefficient.
#[inline(always)]
pub(super) fn flat_pixel(block: &Coefficients, quant: &Quant) -> u8 {
    // What both passes make of it: the first multiplies by 4, the second divides by 32, rounding.
    (((i32::from(block[0]) * i32::from(quant[0]) * 4 + 16) >> 5) + 128).clamp(0, 255) as u8
}

#[inline(always)]
fn transform<const N: usize, P: Points<N>>(
    block: &Coefficients,
    quant: &Quant,
    out: &mut [u8],
    stride: usize,
) {
    if block[1..].iter().fold(0, |all, value| all | value) == 0 {
        let pixel = flat_pixel(block, quant);
        for y in 0..N {
            out[y * stride..][..N].fill(pixel);
        }
        return;
    }
    let mut rows = [[Wrapping(0); 8]; N];
    for (x, is_input) in P::INPUTS.into_iter().enumerate() {
        if !is_input {
            continue;
        }
        let mut column = [Wrapping(0); 8];
        for (y, value) in column.iter_mut().enumerate() {
            *value = dequantise::<N, P>(block[y * 8 + x], quant[y * 8 + x]);
        }
        for (row, point) in rows.iter_mut().zip(P::points(column)) {
            row[x] = keep::<N, P>(descale(point, 11 + P::EXTRA_BITS));
        }
    }
    for (y, row) in rows.into_iter().enumerate() {
        let pixels = &mut out[y * stride..][..N];
        for (pixel, point) in pixels.iter_mut().zip(P::points(row)) {
            *pixel = clamp::<N, P>(descale(point, 18 + P::EXTRA_BITS));
        }
    }
}

/// Divides by 2 to the power of `shift`, rounding.
#[inline(always)]
fn descale(value: Number, shift: u32) -> Number {
    (value + Wrapping(1 << (shift - 1))) >> shift as usize
}

/// The product; libjpeg-turbo's vector code keeps 16 bits of it.
#[inline(always)]
fn dequantise<const N: usize, P: Points<N>>(value: i16, quant: i16) -> Number {
    Wrapping(match P::IS_PLAIN {
        true => i32::from(value) * i32::from(quant),
        false => i32::from(value.wrapping_mul(quant)),
    })
}

/// What is kept between the passes: 16 bits in libjpeg-turbo's vector code.
#[inline(always)]
fn keep<const N: usize, P: Points<N>>(value: Number) -> Number {
    if P::IS_PLAIN { value } else { Wrapping(value.0.clamp(i32::from(i16::MIN), i32::from(i16::MAX))) }
}

/// The pixel: libjpeg-turbo's plain code looks at the lowest 10 bits.
#[inline(always)]
fn clamp<const N: usize, P: Points<N>>(value: Number) -> u8 {
    let value = if P::IS_PLAIN { value.0 << 22 >> 22 } else { value.0 };
    (value.saturating_add(128)).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transformed(side: usize, block: &Coefficients, quant: &Quant) -> Vec<u8> {
        let mut out = vec![0; side * side * 2];
        transform_pair(side, [block, block], quant, &mut out, side * 2);
        out
    }

    #[test]
    fn a_block_of_one_brightness_is_flat_at_every_size() {
        let mut block = [0; 64];
        block[0] = -30;
        for side in [1, 2, 3, 4, 6, 8] {
            assert!(transformed(side, &block, &[16; 64]).iter().all(|pixel| *pixel == 68), "{side}");
        }
    }

    #[test]
    fn a_block_with_an_edge_has_it_at_every_size() {
        let mut block = [0; 64];
        // Bright on the left, dark on the right.
        (block[0], block[1], block[3]) = (0, 20, -7);
        for side in [2, 3, 4, 6, 8] {
            let pixels = transformed(side, &block, &[16; 64]);
            for row in pixels.chunks_exact(side) {
                assert!(row[0] > 160 && row[side - 1] < 96, "{side}: {row:?}");
            }
        }
    }
}
