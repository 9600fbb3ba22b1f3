//! The confidence that the score of a selfie search stands for: a logistic curve per embedding network, fitted by
//! `cargo xtask eval calibrate` (see docs/EVALUATION.md); its constants are in `models/models.toml`.

use crate::model::hit::SelfieScale;

/// `confidence = 100 / (1 + exp(-slope * (score - midpoint)))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The score of confidence 50.
    pub midpoint: f64,
    /// Steepness; positive.
    pub slope: f64,
    /// How the network's cosines make scores.
    pub scale: SelfieScale,
}

impl Calibration {
    /// Returns the confidence of a score, 0 to 100.
    pub fn confidence(&self, score: f64) -> f64 {
        100.0 / (1.0 + (-self.slope * (score - self.midpoint)).exp())
    }

    /// Returns the score of a confidence: the lowest of all for 0 and below, infinity for 100 and above.
    pub fn score(&self, confidence: f64) -> f64 {
        if confidence <= 0.0 {
            return f64::NEG_INFINITY;
        }
        if confidence >= 100.0 {
            return f64::INFINITY;
        }
        self.midpoint - ((100.0 / confidence - 1.0).ln()) / self.slope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_and_score_are_inverse() {
        let scale = SelfieScale { sure_cosine: 0.6, bib_weight: 0.2, few_faces_level: 0.0 };
        let calibration = Calibration { midpoint: 0.4, slope: 14.0, scale };
        for confidence in [1.0, 25.0, 50.0, 75.0, 99.0] {
            let there_and_back = calibration.confidence(calibration.score(confidence));
            assert!((there_and_back - confidence).abs() < 1e-9, "{confidence} became {there_and_back}");
        }
    }
}
