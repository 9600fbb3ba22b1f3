//! Intervals of figures over photos, by the bootstrap: the photos are drawn again and again, with repetition, and the
//! figure is computed each time (Efron, 1979). All readings of one photo are drawn together, as they are not independent.
//! For a difference of two variants both are computed on the same draw, so what both find hard cancels out.

use std::fmt;

use crate::photos::random::SplitMix;

/// Draws of the photos.
const DRAWS: usize = 2000;

/// Part of the draws below the interval, and above it.
const TAIL: f64 = 0.05;

/// A figure with the interval in which it is in 90 % of the draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The figure over all photos.
    pub figure: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Returns the interval of the figure multiplied by `factor`.
    pub fn times(self, factor: f64) -> Self {
        Self { figure: self.figure * factor, low: self.low * factor, high: self.high * factor }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} [{:.3}, {:.3}]", self.figure, self.low, self.high)
    }
}

/// Returns a figure with its interval. `figure` computes it over some photos of 0 to `count - 1`, of which some occur more
/// than once. The same on every run. Draws where it is not a number are left out.
pub fn bootstrap(count: usize, figure: impl Fn(&[usize]) -> f64) -> Interval {
    let all: Vec<usize> = (0..count).collect();
    let mut random = SplitMix(0xb007_57a9);
    let mut draw = vec![0; count];
    let mut figures: Vec<f64> = (0..DRAWS)
        .map(|_| {
            draw.fill_with(|| (random.next() % count.max(1) as u64) as usize);
            figure(&draw)
        })
        .filter(|figure| !figure.is_nan())
        .collect();
    figures.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let last = figures.len().saturating_sub(1);
        figures.get((part * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
    };
    Interval { figure: figure(&all), low: at(TAIL), high: at(1.0 - TAIL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_found(found: &[bool], photos: &[usize]) -> f64 {
        photos.iter().filter(|photo| found[**photo]).count() as f64 / photos.len() as f64
    }

    #[test]
    fn an_interval_is_as_wide_as_the_number_of_photos_says() {
        let found: Vec<bool> = (0..400).map(|photo| photo % 10 != 0).collect();
        let interval = bootstrap(found.len(), |photos| part_found(&found, photos));
        assert_eq!(interval.figure, 0.9);
        // 1.645 standard errors of .9 in 400.
        assert!((interval.low - 0.875).abs() < 0.006 && (interval.high - 0.925).abs() < 0.006, "{interval}");
    }

    #[test]
    fn what_two_variants_have_in_common_does_not_widen_their_difference() {
        let one: Vec<bool> = (0..400).map(|photo| photo % 3 != 0).collect();
        let other: Vec<bool> = (0..400).map(|photo| photo % 3 != 0 && photo != 1).collect();
        let difference = bootstrap(400, |photos| part_found(&one, photos) - part_found(&other, photos));
        assert!(difference.low >= 0.0 && difference.high <= 0.0076, "{difference}");
    }
}
