//! Fits a weighted logistic curve to right and wrong hits: `confidence = 100 / (1 + exp(-slope (score - midpoint)))`.

/// A hit of a search with its weight in the fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedHit {
    /// Score of the hit.
    pub score: f64,
    /// Whether it shows the same person.
    pub right: bool,
    /// Number of hits in a real album that it represents.
    pub weight: f64,
}

/// A logistic curve from score to confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogisticCurve {
    /// The score of confidence 50.
    pub midpoint: f64,
    /// Steepness of the curve.
    pub slope: f64,
}

impl LogisticCurve {
    /// Returns the confidence of a score, 0 to 100.
    pub fn confidence(&self, score: f64) -> f64 {
        100.0 / (1.0 + (-self.slope * (score - self.midpoint)).exp())
    }

    /// Returns the score of a confidence between 0 and 100.
    pub fn score(&self, confidence: f64) -> f64 {
        self.midpoint - (100.0 / confidence - 1.0).ln() / self.slope
    }
}

/// Limit of Newton's method, which needs about ten iterations.
const MAX_ITERATIONS: usize = 100;

/// Returns the maximum-likelihood curve. `None` when the samples do not determine one: all right, all wrong, or separated by
/// a threshold without overlap.
pub fn fit_curve(samples: &[WeightedHit]) -> Option<LogisticCurve> {
    let scores =
        |right: bool| samples.iter().filter(move |sample| sample.right == right).map(|sample| sample.score);
    let least_right = scores(true).reduce(f64::min)?;
    let most_wrong = scores(false).reduce(f64::max)?;
    if least_right > most_wrong {
        return None;
    }
    // Centring makes the two parameters nearly independent and keeps the steps small.
    let centre = scores(true).sum::<f64>() / scores(true).count() as f64;
    let mut line = LinearPredictor { centre, offset: 0.0, slope: 1.0 };
    for _ in 0..MAX_ITERATIONS {
        let next = line.improve(samples)?;
        let moved = (next.offset - line.offset).abs() + (next.slope - line.slope).abs();
        line = next;
        if moved < 1e-9 {
            break;
        }
    }
    (line.slope > 0.0)
        .then(|| LogisticCurve { midpoint: centre - line.offset / line.slope, slope: line.slope })
}

/// `z = offset + slope (score - centre)`, whose logistic is the probability of a right hit.
#[derive(Clone, Copy)]
struct LinearPredictor {
    centre: f64,
    offset: f64,
    slope: f64,
}

impl LinearPredictor {
    fn evaluate(&self, score: f64) -> f64 {
        self.offset + self.slope * (score - self.centre)
    }

    /// Makes one Newton step, halved until the likelihood grows; returns the same line at the maximum. `None` when the samples
    /// do not determine a parameter.
    fn improve(&self, samples: &[WeightedHit]) -> Option<Self> {
        let (along_offset, along_slope) = self.newton_step(samples);
        if !along_offset.is_finite() || !along_slope.is_finite() {
            return None;
        }
        let now = self.log_likelihood(samples);
        let mut length = 1.0;
        while length > 1e-9 {
            let next = Self {
                offset: self.offset + length * along_offset,
                slope: self.slope + length * along_slope,
                ..*self
            };
            if next.log_likelihood(samples) > now {
                return Some(next);
            }
            length /= 2.0;
        }
        Some(*self)
    }

    fn newton_step(&self, samples: &[WeightedHit]) -> (f64, f64) {
        let (mut g0, mut g1, mut h00, mut h01, mut h11) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for sample in samples {
            let x = sample.score - self.centre;
            let p = 1.0 / (1.0 + (-self.evaluate(sample.score)).exp());
            let error = sample.weight * (f64::from(u8::from(sample.right)) - p);
            let curvature = sample.weight * p * (1.0 - p);
            g0 += error;
            g1 += error * x;
            h00 += curvature;
            h01 += curvature * x;
            h11 += curvature * x * x;
        }
        let determinant = h00 * h11 - h01 * h01;
        ((h11 * g0 - h01 * g1) / determinant, (h00 * g1 - h01 * g0) / determinant)
    }

    fn log_likelihood(&self, samples: &[WeightedHit]) -> f64 {
        let one = |sample: &WeightedHit| {
            let z = self.evaluate(sample.score);
            let z = if sample.right { z } else { -z };
            // ln(logistic(z)) in a form that is stable for large |z|.
            -sample.weight * if z > 0.0 { (-z).exp().ln_1p() } else { z.exp().ln_1p() - z }
        };
        samples.iter().map(one).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_curve_is_found_again() {
        let truth = LogisticCurve { midpoint: 0.45, slope: 18.0 };
        let mut samples = Vec::new();
        for i in 0..1000 {
            let score = -0.2 + f64::from(i) / 1000.0;
            let right = truth.confidence(score) / 100.0;
            samples.push(WeightedHit { score, right: true, weight: right });
            samples.push(WeightedHit { score, right: false, weight: 1.0 - right });
        }
        let found = fit_curve(&samples).unwrap();
        assert!((found.midpoint - truth.midpoint).abs() < 1e-6, "{found:?}");
        assert!((found.slope - truth.slope).abs() < 1e-4, "{found:?}");
        assert!((found.score(found.confidence(0.3)) - 0.3).abs() < 1e-9);
    }

    #[test]
    fn hits_separated_without_overlap_determine_no_curve() {
        let sample = |score, right| WeightedHit { score, right, weight: 1.0 };
        assert_eq!(
            fit_curve(&[sample(0.1, false), sample(0.2, false), sample(0.8, true), sample(0.9, true)]),
            None
        );
        assert_eq!(fit_curve(&[sample(0.8, true), sample(0.9, true)]), None);
    }

    #[test]
    fn rarer_right_hits_move_the_midpoint_up() {
        let samples = |weight: f64| {
            let mut samples = Vec::new();
            for i in 0..200 {
                let score = f64::from(i) / 200.0;
                samples.push(WeightedHit { score, right: true, weight: score });
                samples.push(WeightedHit { score, right: false, weight: weight * (1.0 - score) });
            }
            samples
        };
        let (common, rare) = (fit_curve(&samples(1.0)).unwrap(), fit_curve(&samples(20.0)).unwrap());
        assert!(rare.midpoint > common.midpoint + 0.2, "{common:?} {rare:?}");
    }
}
