//! The confidence that a cosine between two faces stands for: a logistic curve per embedding network, fitted by
//! `cargo xtask eval` (see docs/EVALUATION.md); its constants are in `models/models.toml`.

/// `confidence = 100 / (1 + exp(-slope * (cosine - midpoint)))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The cosine of confidence 50.
    pub midpoint: f64,
    /// Steepness; positive.
    pub slope: f64,
}

impl Calibration {
    /// Returns the confidence of a cosine, 0 to 100.
    pub fn confidence(&self, cosine: f64) -> f64 {
        100.0 / (1.0 + (-self.slope * (cosine - self.midpoint)).exp())
    }

    /// Returns the cosine of a confidence: -1 for 0 and below, 2 (never reached) for 100 and above.
    pub fn cosine(&self, confidence: f64) -> f64 {
        if confidence <= 0.0 {
            return -1.0;
        }
        if confidence >= 100.0 {
            return 2.0;
        }
        self.midpoint - ((100.0 / confidence - 1.0).ln()) / self.slope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_and_cosine_are_inverse() {
        let calibration = Calibration { midpoint: 0.4, slope: 14.0 };
        for confidence in [1.0, 25.0, 50.0, 75.0, 99.0] {
            let there_and_back = calibration.confidence(calibration.cosine(confidence));
            assert!((there_and_back - confidence).abs() < 1e-9, "{confidence} became {there_and_back}");
        }
    }
}
