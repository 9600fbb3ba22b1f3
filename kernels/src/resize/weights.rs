//! Bicubic weights in whole numbers, those that the crate fast_image_resize uses for pictures of 8 bits, after Pillow:
//! of each result pixel the source pixels within 2 of its centre, in units of the result where it is smaller;
//! normalised; scaled by the largest power of 2 at which the largest weight has 16 bits.

/// The weights of all result pixels along one axis.
#[derive(Default)]
pub(crate) struct BicubicWeights {
    /// For each: the first source pixel, the first weight, how many.
    pub(crate) cells: Vec<[u32; 3]>,
    pub(crate) weights: Vec<i32>,
    /// Fraction bits of the weights.
    pub(crate) shift: u32,
}

/// Source pixels that count, in each direction, where the result is not smaller.
const SUPPORT: f64 = 2.0;

/// Most fraction bits: products of weights and pixels are added up in 32 bits.
const MAX_SHIFT: u32 = 21;

/// Keys' parameter; with this value the curve is the Catmull-Rom spline.
const A: f64 = -0.5;

fn bicubic(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < SUPPORT {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

impl BicubicWeights {
    pub(crate) fn new(from: u32, to: u32) -> Self {
        if from == to {
            // Copies: one whole is the weight of each.
            let cells = (0..to).map(|pixel| [pixel, 0, 1]).collect();
            return Self { cells, weights: vec![1 << 8], shift: 8 };
        }
        let scale = f64::from(from) / f64::from(to);
        let shrinking = scale.max(1.0);
        let (mut cells, mut exact) = (Vec::with_capacity(to as usize), Vec::new());
        for pixel in 0..to {
            let centre = (f64::from(pixel) + 0.5) * scale;
            let first = (centre - SUPPORT * shrinking).floor().max(0.0) as u32;
            let last = (centre + SUPPORT * shrinking).ceil().min(f64::from(from)) as u32;
            let values: Vec<f64> = (first..last)
                .map(|at| bicubic((f64::from(at) - (centre - 0.5)) * (1.0 / shrinking)))
                .collect();
            let zeros = values.iter().take_while(|value| **value == 0.0).count();
            let values = &values[zeros..];
            let kept = values.len() - values.iter().rev().take_while(|value| **value == 0.0).count();
            let sum: f64 = values.iter().sum();
            cells.push([first + zeros as u32, exact.len() as u32, kept as u32]);
            exact.extend(values[..kept].iter().map(|value| value / sum));
        }
        let largest = exact.iter().copied().fold(0.0, f64::max);
        let fits = |shift: &u32| (largest * f64::from(1_u32 << (shift + 1))).round() >= 32_768.0;
        let shift = (0..MAX_SHIFT).find(fits).unwrap_or(MAX_SHIFT);
        let whole = f64::from(1_u32 << shift);
        Self { cells, weights: exact.iter().map(|value| (value * whole).round() as i32).collect(), shift }
    }
}
