//! Tails of the binomial distribution, exact.

/// The probability of at least `count` successes in `trials` with probability `p` each.
pub(super) fn at_least(count: u64, trials: u64, p: f64) -> f64 {
    if count == 0 { 1.0 } else { sum(count, trials, p) }
}

/// The probability of at most `count` successes.
pub(super) fn at_most(count: u64, trials: u64, p: f64) -> f64 {
    if count >= trials { 1.0 } else { sum(0, trials, p) - sum(count + 1, trials, p) }
}

/// The probability of `from` to `trials` successes. Each term follows from the one before it, and the first is a product
/// of logarithms, so that nothing overflows.
fn sum(from: u64, trials: u64, p: f64) -> f64 {
    if from > trials || p <= 0.0 {
        return if from == 0 { 1.0 } else { 0.0 };
    }
    if p >= 1.0 {
        return 1.0;
    }
    let logarithm_of_choices: f64 =
        (0..from).map(|at| (((trials - at) as f64) / ((from - at) as f64)).ln()).sum();
    let mut logarithm = logarithm_of_choices + from as f64 * p.ln() + (trials - from) as f64 * (1.0 - p).ln();
    let mut sum = logarithm.exp();
    for count in from..trials {
        logarithm += ((trials - count) as f64 / (count + 1) as f64).ln() + (p / (1.0 - p)).ln();
        sum += logarithm.exp();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_the_binomial_distribution() {
        // Of four coins.
        assert!((at_least(3, 4, 0.5) - 5.0 / 16.0).abs() < 1e-12);
        assert!((at_most(1, 4, 0.5) - 5.0 / 16.0).abs() < 1e-12);
        for (trials, p) in [(1, 0.3), (30, 0.02), (500, 0.4), (200_000, 0.06)] {
            for count in [0, 1, trials / 10, trials / 2] {
                let both = at_most(count, trials, p) + at_least(count + 1, trials, p);
                assert!((both - 1.0).abs() < 1e-6, "{count} of {trials}: {both}");
            }
        }
        assert!(at_least(13_000, 200_000, 0.06) < 1e-10 && at_most(11_000, 200_000, 0.06) < 1e-6);
        assert_eq!((at_least(1, 10, 0.0), at_most(0, 10, 0.0), at_least(10, 10, 1.0)), (0.0, 1.0, 1.0));
    }
}
