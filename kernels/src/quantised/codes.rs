//! A vector in 8 bits a component.

/// The largest code of a component.
const MAX_CODE: f32 = 127.0;

/// Adding and subtracting this rounds a number of at most 2^22 to the nearest whole one, in every instruction set.
const ROUND_TO_WHOLE: f32 = 1.5 * (1 << 23) as f32;

/// A vector in 8 bits a component.
pub(super) struct Codes {
    pub(super) codes: Vec<i8>,
    pub(super) scale: f32,
    /// Length of the approximation.
    pub(super) norm: f32,
    /// Upper bound of the distance between the vector and its approximation.
    pub(super) error: f32,
}

impl Codes {
    /// Approximates a vector. One with an infinite component or a NaN becomes all zeros with an infinite error: it may be an
    /// answer to any search.
    pub(super) fn new(vector: &[f32]) -> Self {
        let largest = largest_magnitude(vector);
        let is_finite = vector.iter().fold(true, |all, value| all & value.is_finite());
        let factor = MAX_CODE / largest;
        if !is_finite || (largest > 0.0 && !factor.is_finite()) {
            return Self { codes: vec![0; vector.len()], scale: 0.0, norm: 0.0, error: f32::INFINITY };
        }
        if largest == 0.0 {
            return Self { codes: vec![0; vector.len()], scale: 0.0, norm: 0.0, error: 0.0 };
        }
        let scale = largest / MAX_CODE;
        let round = |value: &f32| (value * factor + ROUND_TO_WHOLE) - ROUND_TO_WHOLE;
        let codes: Vec<i8> =
            vector.iter().map(|value| round(value).clamp(-MAX_CODE, MAX_CODE) as i8).collect();
        let Distances { error, norm } = measure(vector, &codes, scale);
        Self { codes, scale, norm: round_up(norm.sqrt()), error: round_up(error.sqrt()) }
    }
}

/// Sums in lanes, because in one each addition waits for the one before it, and a search waits for all vectors of an album
/// to be approximated.
const LANES: usize = 16;

fn largest_magnitude(vector: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (blocks, rest) = vector.as_chunks::<LANES>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane = lane.max(value.abs());
        }
    }
    lanes.iter().chain(rest).fold(0.0, |largest, value| largest.max(value.abs()))
}

/// Squares of a vector's distance from its approximation, and of the approximation's length.
struct Distances {
    error: f64,
    norm: f64,
}

fn measure(vector: &[f32], codes: &[i8], scale: f32) -> Distances {
    let (mut errors, mut norms) = ([0.0_f64; LANES], [0.0_f64; LANES]);
    let mut add_squares = |values: &[f32], codes: &[i8]| {
        let sums = errors.iter_mut().zip(&mut norms);
        for ((error, norm), (value, code)) in sums.zip(values.iter().zip(codes)) {
            let approximation = f64::from(scale) * f64::from(*code);
            let distance = f64::from(*value) - approximation;
            *error += distance * distance;
            *norm += approximation * approximation;
        }
    };
    let (values, last_values) = vector.as_chunks::<LANES>();
    let (blocks, last_codes) = codes.as_chunks::<LANES>();
    for (values, codes) in values.iter().zip(blocks) {
        add_squares(values, codes);
    }
    add_squares(last_values, last_codes);
    Distances { error: errors.iter().sum(), norm: norms.iter().sum() }
}

/// Returns an `f32` that is at least `value`, which is computed in f64 with some thousands of roundings at most.
pub(super) fn round_up(value: f64) -> f32 {
    ((value * (1.0 + 1e-9)) as f32).next_up()
}
