//! Medians, percentiles, and means with their intervals.

use std::fmt;
use std::time::Duration;

/// Factors of the standard error for a 95 % interval, for 1, 2, 3.. degrees of freedom (Student's t distribution).
const STUDENT_T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The same for more degrees of freedom.
const NORMAL_95: f64 = 1.96;

/// A mean with the interval in which the true one is with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// From the mean to either end of the interval; NaN for a single number.
    pub margin: f64,
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean, margin } = self;
        if margin.is_nan() { write!(f, "{mean:.3}") } else { write!(f, "{mean:.3} ± {margin:.3}") }
    }
}

/// Returns the mean of independent measurements.
pub fn estimate_mean(numbers: &[f64]) -> Estimate {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let degrees = numbers.len().saturating_sub(1);
    let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / degrees as f64;
    let factor = STUDENT_T_95.get(degrees.wrapping_sub(1)).copied().unwrap_or(NORMAL_95);
    Estimate { mean, margin: factor * (variance / count).sqrt() }
}

/// Returns the median: the mean of the two middle numbers if their count is even; NaN without numbers.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Returns the smallest time that at least `fraction` (0 to 1) of the times do not exceed; zero without times.
pub fn percentile(times: &[Duration], fraction: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

/// Converts to milliseconds, with fractions.
pub fn to_milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_empty_list_is_nan() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_mean_of_few_numbers_has_a_wide_interval() {
        let few = estimate_mean(&[0.90, 0.92, 0.94]);
        assert!((few.mean - 0.92).abs() < 1e-9 && (few.margin - 4.303 * 0.02 / 3_f64.sqrt()).abs() < 1e-9);
        assert_eq!(few.to_string(), "0.920 ± 0.050");
        assert_eq!(estimate_mean(&[0.9]).to_string(), "0.900");
    }

    #[test]
    fn the_interval_of_a_mean_follows_from_the_number_of_measurements() {
        // Half of the numbers are a half above their mean and half below it.
        for (count, factor) in
            [(2_u32, 12.706), (12, 2.201), (20, 2.093), (30, 2.045), (32, 1.96), (100, 1.96)]
        {
            let numbers: Vec<f64> = (0..count).map(|number| f64::from(number % 2)).collect();
            let count = f64::from(count);
            let error = (0.25 / (count - 1.0)).sqrt();
            let margin = estimate_mean(&numbers).margin;
            assert!((margin - factor * error).abs() < 1e-9, "{count}: {margin}");
        }
        assert_eq!(STUDENT_T_95[29], 2.042);
        assert!(STUDENT_T_95.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 0.5), Duration::from_millis(50));
        assert_eq!(percentile(&times, 0.99), Duration::from_millis(99));
        assert_eq!(percentile(&times[..1], 0.99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }
}
