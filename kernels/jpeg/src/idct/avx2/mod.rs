//! The transforms with AVX2. Two blocks at once, one in each 128-bit lane: every shuffle stays in its lane, so this is the
//! transform of one block done twice for the price of one.

#![expect(unsafe_code, reason = "AVX2 is there only where detected")]

mod lanes;
mod plain_sizes;
mod to_2;

use std::arch::x86_64::*;

use crate::cpu::Avx2;
use crate::idct::avx2::lanes::{add, load_wide, row, store_16, sub, weigh};
use crate::idct::block::{Coefficients, Quant};
use crate::idct::points::fix;
use crate::idct::portable;

/// Two blocks side by side: see [`super::transform_pair`].
pub(super) fn transform_pair(
    _proof: Avx2,
    side: usize,
    pair: [&Coefficients; 2],
    quant: &Quant,
    out: &mut [u8],
    stride: usize,
) {
    debug_assert!(Avx2::is_detected());
    // SAFETY: the proof says that the processor has AVX2.
    unsafe { transform(side, pair, quant, out, stride) }
}

#[target_feature(enable = "avx2")]
fn transform(side: usize, pair: [&Coefficients; 2], quant: &Quant, out: &mut [u8], stride: usize) {
    let reach = match side {
        8 | 6 | 4 => reach(pair),
        3 => return plain_sizes::transform_to_3(pair, quant, out, stride),
        2 => return to_2::transform_to_2(pair, quant, out, stride),
        _ => return portable::transform_pair(side, pair, quant, out, stride),
    };
    match (side, reach) {
        (8, Reach::Flat) => store_flat::<8>(pair, quant, out, stride),
        (6, Reach::Flat) => store_flat::<6>(pair, quant, out, stride),
        (_, Reach::Flat) => store_flat::<4>(pair, quant, out, stride),
        (6, _) => plain_sizes::transform_to_6(pair, quant, out, stride),
        (8, Reach::Low) => {
            let rows = [row(pair, quant, 0), row(pair, quant, 1), row(pair, quant, 2), row(pair, quant, 3)];
            let [c0, c1, c2, c3, ..] = transpose(points_8_low::<11>(rows));
            store_8(transpose(points_8_low::<18>([c0, c1, c2, c3])), out, stride);
        }
        (8, Reach::Whole) => {
            let mut rows = [_mm256_setzero_si256(); 8];
            for (y, values) in rows.iter_mut().enumerate() {
                *values = row(pair, quant, y);
            }
            store_8(transpose(points_8::<18>(transpose(points_8::<11>(rows)))), out, stride);
        }
        _ => transform_to_4(pair, quant, out, stride),
    }
}

/// How far from the DC coefficient the last one is.
enum Reach {
    /// There is nothing else.
    Flat,
    /// Within four rows and columns.
    Low,
    Whole,
}

#[target_feature(enable = "avx2")]
fn reach(pair: [&Coefficients; 2]) -> Reach {
    let (a, b) = (pair[0].as_chunks().0, pair[1].as_chunks().0);
    let low0 = _mm256_or_si256(load_wide(&a[0]), load_wide(&b[0]));
    let low1 = _mm256_or_si256(load_wide(&a[1]), load_wide(&b[1]));
    let high_a = _mm256_or_si256(load_wide(&a[2]), load_wide(&a[3]));
    let high = _mm256_or_si256(high_a, _mm256_or_si256(load_wide(&b[2]), load_wide(&b[3])));
    let right = _mm256_setr_epi64x(0, -1, 0, -1);
    let beyond = _mm256_or_si256(high, _mm256_and_si256(_mm256_or_si256(low0, low1), right));
    if _mm256_testz_si256(beyond, beyond) == 0 {
        return Reach::Whole;
    }
    let all_but_dc = _mm256_setr_epi64x(-0x10000, -1, -1, -1);
    let alternating = _mm256_or_si256(_mm256_and_si256(low0, all_but_dc), low1);
    if _mm256_testz_si256(alternating, alternating) == 1 { Reach::Flat } else { Reach::Low }
}

#[target_feature(enable = "avx2")]
fn store_flat<const N: usize>(pair: [&Coefficients; 2], quant: &Quant, out: &mut [u8], stride: usize) {
    let (a, b) = (portable::flat_pixel(pair[0], quant), portable::flat_pixel(pair[1], quant));
    for y in 0..N {
        let row = &mut out[y * stride..][..N * 2];
        row[..N].fill(a);
        row[N..].fill(b);
    }
}

/// The last step of 8 points: sums and differences of the even and the odd part.
#[target_feature(enable = "avx2")]
fn combine<const SHIFT: i32>(even: [__m256i; 4], odd: [__m256i; 4]) -> [__m256i; 8] {
    let mut points = [_mm256_setzero_si256(); 8];
    for (i, (even, odd)) in even.into_iter().zip(odd).enumerate() {
        points[i] = _mm256_srai_epi32::<SHIFT>(add(even, odd));
        points[7 - i] = _mm256_srai_epi32::<SHIFT>(sub(even, odd));
    }
    points
}

#[target_feature(enable = "avx2")]
fn pack(low: [__m256i; 8], high: [__m256i; 8]) -> [__m256i; 8] {
    let mut packed = low;
    for (low, high) in packed.iter_mut().zip(high) {
        *low = _mm256_packs_epi32(*low, high);
    }
    packed
}

/// What 8 points are made of, for half of the columns: pairs of inputs, and inputs alone in the upper 16 bits.
struct Inputs8 {
    r26: __m256i,
    sum: __m256i,
    difference: __m256i,
    z34: __m256i,
    r71: __m256i,
    r53: __m256i,
}

#[target_feature(enable = "avx2")]
fn half_of_points_8<const SHIFT: i32>(inputs: &Inputs8) -> [__m256i; 8] {
    let Inputs8 { r26, sum, difference, z34, r71, r53 } = *inputs;
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    let tmp2 = weigh(r26, fix(0.541_196_100), fix(0.541_196_100) - fix(1.847_759_065));
    let tmp3 = weigh(r26, fix(0.541_196_100) + fix(0.765_366_865), fix(0.541_196_100));
    let tmp0 = add(_mm256_srai_epi32::<3>(sum), round);
    let tmp1 = add(_mm256_srai_epi32::<3>(difference), round);
    let even = [add(tmp0, tmp3), add(tmp1, tmp2), sub(tmp1, tmp2), sub(tmp0, tmp3)];
    let k = fix(1.175_875_602);
    let z3 = weigh(z34, k - fix(1.961_570_560), k);
    let z4 = weigh(z34, k, k - fix(0.390_180_644));
    let (p, q) = (fix(0.899_976_223), fix(2.562_915_447));
    let odd = [
        add(weigh(r71, -p, fix(1.501_321_110) - p), z4),
        add(weigh(r53, -q, fix(3.072_711_026) - q), z3),
        add(weigh(r53, fix(2.053_119_869) - q, -q), z4),
        add(weigh(r71, fix(0.298_631_336) - p, -p), z3),
    ];
    combine::<SHIFT>(even, odd)
}

#[target_feature(enable = "avx2")]
fn points_8<const SHIFT: i32>(r: [__m256i; 8]) -> [__m256i; 8] {
    let zero = _mm256_setzero_si256();
    let z3 = _mm256_add_epi16(r[7], r[3]);
    let z4 = _mm256_add_epi16(r[5], r[1]);
    let sum = _mm256_add_epi16(r[0], r[4]);
    let difference = _mm256_sub_epi16(r[0], r[4]);
    let low = half_of_points_8::<SHIFT>(&Inputs8 {
        r26: _mm256_unpacklo_epi16(r[2], r[6]),
        sum: _mm256_unpacklo_epi16(zero, sum),
        difference: _mm256_unpacklo_epi16(zero, difference),
        z34: _mm256_unpacklo_epi16(z3, z4),
        r71: _mm256_unpacklo_epi16(r[7], r[1]),
        r53: _mm256_unpacklo_epi16(r[5], r[3]),
    });
    let high = half_of_points_8::<SHIFT>(&Inputs8 {
        r26: _mm256_unpackhi_epi16(r[2], r[6]),
        sum: _mm256_unpackhi_epi16(zero, sum),
        difference: _mm256_unpackhi_epi16(zero, difference),
        z34: _mm256_unpackhi_epi16(z3, z4),
        r71: _mm256_unpackhi_epi16(r[7], r[1]),
        r53: _mm256_unpackhi_epi16(r[5], r[3]),
    });
    pack(low, high)
}

/// Half of the columns of [`points_8_low`], from the pairs (0, 2) and (3, 1), and 0 alone in the upper 16 bits.
#[target_feature(enable = "avx2")]
fn half_of_points_8_low<const SHIFT: i32>(r02: __m256i, r0: __m256i, r31: __m256i) -> [__m256i; 8] {
    // Of the pair (0, 2) only the second counts, for the first is wanted with all its 13 bits.
    let tmp0 = add(_mm256_srai_epi32::<3>(r0), _mm256_set1_epi32(1 << (SHIFT - 1)));
    let tmp2 = weigh(r02, 0, fix(0.541_196_100));
    let tmp3 = weigh(r02, 0, fix(0.541_196_100) + fix(0.765_366_865));
    let even = [add(tmp0, tmp3), add(tmp0, tmp2), sub(tmp0, tmp2), sub(tmp0, tmp3)];
    let k = fix(1.175_875_602);
    let (p, q) = (fix(0.899_976_223), fix(2.562_915_447));
    let odd = [
        weigh(r31, k, fix(1.501_321_110) - p + k - fix(0.390_180_644)),
        weigh(r31, fix(3.072_711_026) - q + k - fix(1.961_570_560), k),
        weigh(r31, k - q, k - fix(0.390_180_644)),
        weigh(r31, k - fix(1.961_570_560), k - p),
    ];
    combine::<SHIFT>(even, odd)
}

/// `points_8` of which the last four inputs are zeros: less than half the work.
#[target_feature(enable = "avx2")]
fn points_8_low<const SHIFT: i32>(r: [__m256i; 4]) -> [__m256i; 8] {
    let zero = _mm256_setzero_si256();
    let low = half_of_points_8_low::<SHIFT>(
        _mm256_unpacklo_epi16(r[0], r[2]),
        _mm256_unpacklo_epi16(zero, r[0]),
        _mm256_unpacklo_epi16(r[3], r[1]),
    );
    let high = half_of_points_8_low::<SHIFT>(
        _mm256_unpackhi_epi16(r[0], r[2]),
        _mm256_unpackhi_epi16(zero, r[0]),
        _mm256_unpackhi_epi16(r[3], r[1]),
    );
    pack(low, high)
}

#[target_feature(enable = "avx2")]
fn transpose(r: [__m256i; 8]) -> [__m256i; 8] {
    let mut a = [_mm256_setzero_si256(); 4];
    let mut b = a;
    for (i, rows) in r.as_chunks::<2>().0.iter().enumerate() {
        a[i] = _mm256_unpacklo_epi16(rows[0], rows[1]);
        b[i] = _mm256_unpackhi_epi16(rows[0], rows[1]);
    }
    let c = [_mm256_unpacklo_epi32(a[0], a[1]), _mm256_unpackhi_epi32(a[0], a[1])];
    let d = [_mm256_unpacklo_epi32(a[2], a[3]), _mm256_unpackhi_epi32(a[2], a[3])];
    let e = [_mm256_unpacklo_epi32(b[0], b[1]), _mm256_unpackhi_epi32(b[0], b[1])];
    let f = [_mm256_unpacklo_epi32(b[2], b[3]), _mm256_unpackhi_epi32(b[2], b[3])];
    [
        _mm256_unpacklo_epi64(c[0], d[0]),
        _mm256_unpackhi_epi64(c[0], d[0]),
        _mm256_unpacklo_epi64(c[1], d[1]),
        _mm256_unpackhi_epi64(c[1], d[1]),
        _mm256_unpacklo_epi64(e[0], f[0]),
        _mm256_unpackhi_epi64(e[0], f[0]),
        _mm256_unpacklo_epi64(e[1], f[1]),
        _mm256_unpackhi_epi64(e[1], f[1]),
    ]
}

/// Stores rows of 16-bit pixels around zero.
#[target_feature(enable = "avx2")]
fn store_8(rows: [__m256i; 8], out: &mut [u8], stride: usize) {
    let middle = _mm256_set1_epi8(-128);
    for y in [0, 2, 4, 6] {
        let pixels = _mm256_xor_si256(_mm256_packs_epi16(rows[y], rows[y + 1]), middle);
        // From two rows of the first block and two of the second to one row of both and the next.
        let pixels = _mm256_permute4x64_epi64::<0b11_01_10_00>(pixels);
        store_16(_mm256_castsi256_si128(pixels), out, y * stride);
        store_16(_mm256_extracti128_si256::<1>(pixels), out, (y + 1) * stride);
    }
}

/// The sums of 4 points, unshifted, for four columns a lane: input 0 in the upper 16 bits, the others in pairs.
#[target_feature(enable = "avx2")]
fn points_4(r0: __m256i, r26: __m256i, r15: __m256i, r37: __m256i, round: i32) -> [__m256i; 4] {
    let tmp0 = add(_mm256_srai_epi32::<2>(r0), _mm256_set1_epi32(round));
    let tmp2 = weigh(r26, fix(1.847_759_065), -fix(0.765_366_865));
    let (p, q) = (add(tmp0, tmp2), sub(tmp0, tmp2));
    let c = add(
        weigh(r37, -fix(2.172_734_803), -fix(0.211_164_243)),
        weigh(r15, fix(1.061_594_337), fix(1.451_774_981)),
    );
    let d = add(
        weigh(r37, fix(0.899_976_223), -fix(0.509_795_579)),
        weigh(r15, fix(2.562_915_447), -fix(0.601_344_887)),
    );
    [add(p, d), add(q, c), sub(q, c), sub(p, d)]
}

/// The first pass to 4 points. Row 4 has no part in it.
#[target_feature(enable = "avx2")]
fn columns_to_4(pair: [&Coefficients; 2], quant: &Quant) -> [__m256i; 4] {
    let zero = _mm256_setzero_si256();
    let (r0, r1, r2) = (row(pair, quant, 0), row(pair, quant, 1), row(pair, quant, 2));
    let (r3, r5) = (row(pair, quant, 3), row(pair, quant, 5));
    let (r6, r7) = (row(pair, quant, 6), row(pair, quant, 7));
    let low = points_4(
        _mm256_unpacklo_epi16(zero, r0),
        _mm256_unpacklo_epi16(r2, r6),
        _mm256_unpacklo_epi16(r1, r5),
        _mm256_unpacklo_epi16(r3, r7),
        1 << 11,
    );
    let high = points_4(
        _mm256_unpackhi_epi16(zero, r0),
        _mm256_unpackhi_epi16(r2, r6),
        _mm256_unpackhi_epi16(r1, r5),
        _mm256_unpackhi_epi16(r3, r7),
        1 << 11,
    );
    let mut columns = low;
    for (low, high) in columns.iter_mut().zip(high) {
        *low = _mm256_packs_epi32(_mm256_srai_epi32::<12>(*low), _mm256_srai_epi32::<12>(high));
    }
    columns
}

#[target_feature(enable = "avx2")]
fn transform_to_4(pair: [&Coefficients; 2], quant: &Quant, out: &mut [u8], stride: usize) {
    let w = columns_to_4(pair, quant);
    // Columns instead of rows: `u[i]` has columns 2i and 2i + 1.
    let (t0, t1) = (_mm256_unpacklo_epi16(w[0], w[1]), _mm256_unpackhi_epi16(w[0], w[1]));
    let (t2, t3) = (_mm256_unpacklo_epi16(w[2], w[3]), _mm256_unpackhi_epi16(w[2], w[3]));
    let (u0, u1) = (_mm256_unpacklo_epi32(t0, t2), _mm256_unpackhi_epi32(t0, t2));
    let (u2, u3) = (_mm256_unpacklo_epi32(t1, t3), _mm256_unpackhi_epi32(t1, t3));
    let mut o = points_4(
        _mm256_unpacklo_epi16(_mm256_setzero_si256(), u0),
        _mm256_unpacklo_epi16(u1, u3),
        _mm256_unpackhi_epi16(u0, u2),
        _mm256_unpackhi_epi16(u1, u3),
        1 << 18,
    );
    for sum in &mut o {
        *sum = _mm256_srai_epi32::<19>(*sum);
    }
    let bytes = _mm256_packs_epi16(_mm256_packs_epi32(o[0], o[1]), _mm256_packs_epi32(o[2], o[3]));
    let turn = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let turned = _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(turn));
    let pixels = _mm256_xor_si256(turned, _mm256_set1_epi8(-128));
    let (a, b) = (_mm256_castsi256_si128(pixels), _mm256_extracti128_si256::<1>(pixels));
    for (i, rows) in [_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)].into_iter().enumerate() {
        let halves = [_mm_cvtsi128_si64(rows), _mm_extract_epi64::<1>(rows)];
        for (y, half) in halves.into_iter().enumerate() {
            out[(i * 2 + y) * stride..][..8].copy_from_slice(&half.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::Cpu;
    use crate::idct::block::{Coefficients, Quant};
    use crate::idct::transform_pair;

    /// Flat, low, whole and extreme blocks.
    fn blocks() -> Vec<Coefficients> {
        let mut state = 9_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as i32
        };
        let mut blocks = Vec::new();
        for range in [1, 8, 100, 1023] {
            for count in [1, 2, 4, 8] {
                let mut block = [0; 64];
                for y in 0..count {
                    for x in 0..count {
                        block[y * 8 + x] = (random() % (2 * range + 1) - range) as i16;
                    }
                }
                block[0] = (random() % 101 - 50) as i16;
                blocks.push(block);
            }
        }
        blocks
    }

    #[test]
    fn vectors_and_plain_code_agree_on_all_blocks() {
        let cpu = Cpu::detect();
        let blocks = blocks();
        for factor in [1, 3, 40] {
            let quant: Quant = std::array::from_fn(|i| (i as i16 % 7 + 1) * factor);
            for (i, a) in blocks.iter().enumerate() {
                for b in &blocks[i..] {
                    for side in [1, 2, 3, 4, 6, 8] {
                        let mut out = [vec![0; 200], vec![0; 200]];
                        transform_pair(cpu, side, [a, b], &quant, &mut out[0], 21);
                        transform_pair(Cpu::Portable, side, [a, b], &quant, &mut out[1], 21);
                        assert_eq!(out[0], out[1], "{side} {a:?} {b:?} {factor}");
                    }
                }
            }
        }
    }
}
