//! Scores readings against labels: sets of texts per photo, without leading zeros. The labels of the race photos are
//! incomplete (bibs of runners in the background), so precision is a lower bound.

use std::collections::BTreeSet;

/// Counts of bibs over all photos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BibScore {
    /// Labelled bibs that were accepted.
    pub right: usize,
    /// Accepted texts without a label.
    pub unlabelled: usize,
    /// Labelled bibs that were not accepted.
    pub missed: usize,
}

impl BibScore {
    /// Adds one photo. Optional bibs count neither as found nor as missed.
    pub fn add_photo(
        &mut self,
        accepted: &BTreeSet<String>,
        labels: &BTreeSet<String>,
        optional: &BTreeSet<String>,
    ) {
        let (accepted, labels, optional) =
            (without_zeros(accepted), without_zeros(labels), without_zeros(optional));
        self.right += accepted.intersection(&labels).count();
        self.unlabelled += accepted.difference(&labels).filter(|text| !optional.contains(*text)).count();
        self.missed += labels.difference(&accepted).count();
    }

    /// Returns the part of the labelled bibs that was accepted, 0 to 1.
    pub fn recall(&self) -> f64 {
        ratio(self.right, self.right + self.missed)
    }

    /// Returns the part of the accepted texts that is labelled, 0 to 1.
    pub fn precision(&self) -> f64 {
        ratio(self.right, self.right + self.unlabelled)
    }
}

/// Returns `part / whole`; NaN when `whole` is 0.
pub fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { f64::NAN } else { part as f64 / whole as f64 }
}

/// Returns a bib without leading zeros; `000` stays `000`.
pub fn trim_zeros(text: &str) -> &str {
    let short = text.trim_start_matches('0');
    if short.is_empty() { text } else { short }
}

fn without_zeros(texts: &BTreeSet<String>) -> BTreeSet<String> {
    texts.iter().map(|text| trim_zeros(text).to_owned()).collect()
}

/// Returns the peer's text as a bib: its letters and digits in upper case, if they match the default pattern of an album,
/// `^[A-Z]{0,2}[0-9]{2,5}[A-Z]?$`.
pub fn to_bib(text: &str) -> Option<String> {
    let text: String =
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_uppercase()).collect();
    let after_letters = text.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let digits = after_letters.trim_end_matches(|c: char| c.is_ascii_uppercase());
    let fits = text.len() - after_letters.len() <= 2
        && (2..=5).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && after_letters.len() - digits.len() <= 1;
    fits.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|&bib| bib.to_owned()).collect()
    }

    #[test]
    fn photos_are_scored_as_sets_without_leading_zeros() {
        let mut score = BibScore::default();
        score.add_photo(&set(&["891", "12", "77"]), &set(&["0891", "34"]), &set(&["77"]));
        assert_eq!(score, BibScore { right: 1, unlabelled: 1, missed: 1 });
        assert_eq!((score.recall(), score.precision()), (0.5, 0.5));
    }

    #[test]
    fn only_what_looks_like_a_bib_is_one() {
        for (text, bib) in [("1:33.04", Some("13304")), ("ab12c", Some("AB12C")), ("No 17", Some("NO17"))] {
            assert_eq!(to_bib(text).as_deref(), bib, "{text}");
        }
        for text in ["", "7", "ABC12", "123456", "12AB", "1A2", "RUN"] {
            assert_eq!(to_bib(text), None, "{text}");
        }
    }
}
