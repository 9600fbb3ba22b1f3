//! One dimension of the transforms.
//!
//! 8 points are the inverse DCT. 4 and 2 points are what it gives averaged two by two and four by four, so 4 points want the
//! coefficients 0 to 3 and 5 to 7, and 2 points want 0, 1, 3, 5 and 7. 6 and 3 points are the inverse DCT of the lowest
//! coefficients alone.

use std::f64::consts::FRAC_1_SQRT_2;
use std::num::Wrapping;

/// What is computed with.
pub(super) type Number = Wrapping<i32>;

/// A constant with 13 bits behind the point.
pub(super) const fn fix(value: f64) -> i32 {
    (value * 8192.0 + 0.5) as i32
}

const fn factor(value: f64) -> Number {
    Wrapping(fix(value))
}

/// One dimension of a transform to `N` points.
pub(super) trait Points<const N: usize> {
    /// The results are 2^13 times as large as the inputs, and so many bits more.
    const EXTRA_BITS: u32;
    /// Which inputs count.
    const INPUTS: [bool; 8];
    /// Whether libjpeg-turbo has only plain code for this size, and so never works with 16 bits.
    const IS_PLAIN: bool;

    fn points(r: [Number; 8]) -> [Number; N];
}

pub(super) struct To8;
pub(super) struct To6;
pub(super) struct To4;
pub(super) struct To3;
pub(super) struct To2;

/// As sums are kept in 16 bits.
#[inline(always)]
fn wrap_to_16(sum: Number) -> Number {
    Wrapping(i32::from(sum.0 as i16))
}

impl Points<8> for To8 {
    const EXTRA_BITS: u32 = 0;
    const INPUTS: [bool; 8] = [true; 8];
    const IS_PLAIN: bool = false;

    #[inline(always)]
    fn points(r: [Number; 8]) -> [Number; 8] {
        let tmp2 = r[2] * factor(0.541_196_100) + r[6] * (factor(0.541_196_100) - factor(1.847_759_065));
        let tmp3 = r[2] * (factor(0.541_196_100) + factor(0.765_366_865)) + r[6] * factor(0.541_196_100);
        let tmp0 = wrap_to_16(r[0] + r[4]) << 13;
        let tmp1 = wrap_to_16(r[0] - r[4]) << 13;
        let (z3, z4) = (wrap_to_16(r[7] + r[3]), wrap_to_16(r[5] + r[1]));
        let z5 = (z3 + z4) * factor(1.175_875_602);
        let z3 = z5 - z3 * factor(1.961_570_560);
        let z4 = z5 - z4 * factor(0.390_180_644);
        let z1 = (r[7] + r[1]) * factor(0.899_976_223);
        let z2 = (r[5] + r[3]) * factor(2.562_915_447);
        let (a, b, c, d) = (tmp0 + tmp3, tmp1 + tmp2, tmp1 - tmp2, tmp0 - tmp3);
        let e = r[1] * factor(1.501_321_110) - z1 + z4;
        let f = r[3] * factor(3.072_711_026) - z2 + z3;
        let g = r[5] * factor(2.053_119_869) - z2 + z4;
        let h = r[7] * factor(0.298_631_336) - z1 + z3;
        [a + e, b + f, c + g, d + h, d - h, c - g, b - f, a - e]
    }
}

impl Points<6> for To6 {
    const EXTRA_BITS: u32 = 0;
    const INPUTS: [bool; 8] = [true, true, true, true, true, true, false, false];
    const IS_PLAIN: bool = true;

    #[inline(always)]
    fn points(r: [Number; 8]) -> [Number; 6] {
        let tmp0 = r[0] << 13;
        let tmp10 = r[4] * factor(FRAC_1_SQRT_2);
        let (tmp1, b) = (tmp0 + tmp10, tmp0 - tmp10 - tmp10);
        let tmp0 = r[2] * factor(1.224_744_871);
        let (a, c) = (tmp1 + tmp0, tmp1 - tmp0);
        let z = (r[1] + r[5]) * factor(0.366_025_404);
        let d = z + ((r[1] + r[3]) << 13);
        let e = (r[1] - r[3] - r[5]) << 13;
        let f = z + ((r[5] - r[3]) << 13);
        [a + d, b + e, c + f, c - f, b - e, a - d]
    }
}

impl Points<4> for To4 {
    const EXTRA_BITS: u32 = 1;
    const INPUTS: [bool; 8] = [true, true, true, true, false, true, true, true];
    const IS_PLAIN: bool = false;

    #[inline(always)]
    fn points(r: [Number; 8]) -> [Number; 4] {
        let tmp0 = r[0] << 14;
        let tmp2 = r[2] * factor(1.847_759_065) - r[6] * factor(0.765_366_865);
        let (a, b) = (tmp0 + tmp2, tmp0 - tmp2);
        let c = r[5] * factor(1.451_774_981) + r[1] * factor(1.061_594_337)
            - r[7] * factor(0.211_164_243)
            - r[3] * factor(2.172_734_803);
        let d = r[3] * factor(0.899_976_223) + r[1] * factor(2.562_915_447)
            - r[7] * factor(0.509_795_579)
            - r[5] * factor(0.601_344_887);
        [a + d, b + c, b - c, a - d]
    }
}

impl Points<3> for To3 {
    const EXTRA_BITS: u32 = 0;
    const INPUTS: [bool; 8] = [true, true, true, false, false, false, false, false];
    const IS_PLAIN: bool = true;

    #[inline(always)]
    fn points(r: [Number; 8]) -> [Number; 3] {
        let tmp0 = r[0] << 13;
        let tmp12 = r[2] * factor(FRAC_1_SQRT_2);
        let (even, odd) = (tmp0 + tmp12, r[1] * factor(1.224_744_871));
        [even + odd, tmp0 - tmp12 - tmp12, even - odd]
    }
}

impl Points<2> for To2 {
    const EXTRA_BITS: u32 = 2;
    const INPUTS: [bool; 8] = [true, true, false, true, false, true, false, true];
    const IS_PLAIN: bool = false;

    #[inline(always)]
    fn points(r: [Number; 8]) -> [Number; 2] {
        let even = r[0] << 15;
        let odd = r[5] * factor(0.850_430_095) + r[1] * factor(3.624_509_785)
            - r[7] * factor(0.720_959_822)
            - r[3] * factor(1.272_758_580);
        [even + odd, even - odd]
    }
}
