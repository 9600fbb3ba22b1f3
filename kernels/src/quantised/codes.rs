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
        let largest = vector.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let is_finite = vector.iter().all(|value| value.is_finite());
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
        let (mut distance, mut length) = (0.0_f64, 0.0_f64);
        for (value, code) in vector.iter().zip(&codes) {
            let approximation = f64::from(scale) * f64::from(*code);
            distance += (f64::from(*value) - approximation).powi(2);
            length += approximation.powi(2);
        }
        Self { codes, scale, norm: round_up(length.sqrt()), error: round_up(distance.sqrt()) }
    }
}

/// Returns an `f32` that is at least `value`, which is computed in f64 with some thousands of roundings at most.
pub(super) fn round_up(value: f64) -> f32 {
    ((value * (1.0 + 1e-9)) as f32).next_up()
}
