//! The bib of a person as evidence: sure hits vote for it, and other faces are compared with it.

use std::collections::BTreeMap;
use std::sync::Arc;

/// How much heavier the votes for a bib must be than those for the second one.
const CLEAR_MAJORITY: f64 = 1.5;

/// Photos that were taken further apart may be of two races. Not measured: a day's race ends within it, and the races of
/// two days are further apart.
const RACE_HOURS: i32 = 12;

/// The bib that a face wears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WornBib<'a> {
    /// Its text, without leading zeros.
    pub text: &'a str,
    /// When the photo was taken, hours since 1970; `None` if the photo does not say.
    pub taken_hour: Option<i32>,
}

/// The same, apart from the album's bibs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceBib {
    /// See [`WornBib::text`].
    pub text: Arc<str>,
    /// See [`WornBib::taken_hour`].
    pub taken_hour: Option<i32>,
}

impl FaceBib {
    /// Borrows it.
    pub fn worn(&self) -> WornBib<'_> {
        WornBib { text: &self.text, taken_hour: self.taken_hour }
    }
}

/// A sure hit's vote for the bib it wears.
pub(crate) struct Vote<'a> {
    pub(crate) bib: WornBib<'a>,
    pub(crate) weight: f64,
}

/// The bib of the person who is searched for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PersonBib {
    text: String,
    /// When it was seen, where photos say.
    hours: Vec<i32>,
}

/// What the bib of a face says about whose face it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BibEvidence {
    /// It is the person's.
    Same,
    /// It is clearly another one.
    Different,
    /// Nothing: it may be a misread or half hidden bib of the person, or one of another race.
    None,
}

/// Returns the bib that has a clear majority of the votes; `None` without one.
pub(crate) fn elect_bib<'a>(votes: impl Iterator<Item = Vote<'a>>) -> Option<PersonBib> {
    let mut weights: BTreeMap<&str, f64> = BTreeMap::new();
    let mut hours: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for Vote { bib, weight } in votes {
        *weights.entry(bib.text).or_default() += weight;
        hours.entry(bib.text).or_default().extend(bib.taken_hour);
    }
    let mut ranking: Vec<(&str, f64)> = weights.into_iter().collect();
    ranking.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let (text, weight) = *ranking.first()?;
    let second = ranking.get(1).map_or(0.0, |(_, weight)| *weight);
    (weight >= CLEAR_MAJORITY * second)
        .then(|| PersonBib { text: text.to_owned(), hours: hours.remove(text).unwrap_or_default() })
}

impl PersonBib {
    /// Compares the bib of a face with the person's. Bibs of two races say nothing about each other.
    pub(crate) fn compare(&self, worn: WornBib<'_>) -> BibEvidence {
        if self.is_of_another_race(worn) {
            BibEvidence::None
        } else if worn.text == self.text {
            BibEvidence::Same
        } else if may_be_one_bib(worn.text, &self.text) {
            BibEvidence::None
        } else {
            BibEvidence::Different
        }
    }

    /// Whether the times of the photos say that the bib was worn in another race. Photos without times say nothing.
    fn is_of_another_race(&self, worn: WornBib<'_>) -> bool {
        let Some(taken) = worn.taken_hour else { return false };
        let apart = |hour: &i32| taken.abs_diff(*hour) > RACE_HOURS.unsigned_abs();
        !self.hours.is_empty() && self.hours.iter().all(apart)
    }
}

/// Whether one text may be a reading of the other bib: a part of it, or one edit away.
fn may_be_one_bib(a: &str, b: &str) -> bool {
    a.contains(b) || b.contains(a) || is_one_edit_apart(a, b)
}

/// Whether at most one character was replaced, lost or added.
fn is_one_edit_apart(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let shorter = a.len().min(b.len());
    let same = |(a, b): &(&char, &char)| a == b;
    let prefix = a.iter().zip(&b).take_while(same).count();
    let suffix = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
    a.len().max(b.len()) - prefix - suffix.min(shorter - prefix) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bib that these votes of equal weight elect.
    fn elected(votes: &[WornBib<'_>]) -> PersonBib {
        elect_bib(votes.iter().map(|bib| Vote { bib: *bib, weight: 0.9 })).unwrap()
    }

    fn worn(text: &str) -> WornBib<'_> {
        WornBib { text, taken_hour: None }
    }

    #[test]
    fn a_bib_needs_a_clear_majority_of_the_votes() {
        let elect = |votes: &[(&'static str, f64)]| {
            let votes = votes.iter().map(|(text, weight)| Vote { bib: worn(text), weight: *weight });
            elect_bib(votes).map(|bib| bib.text)
        };
        assert_eq!(elect(&[]), None);
        assert_eq!(elect(&[("12", 0.6)]).as_deref(), Some("12"));
        assert_eq!(elect(&[("12", 0.7), ("34", 0.7)]), None);
        assert_eq!(elect(&[("12", 0.8), ("34", 0.7), ("34", 0.7)]).as_deref(), Some("34"));
        assert_eq!(elect(&[("12", 1.0), ("34", 0.7), ("34", 0.7)]), None);
    }

    #[test]
    fn a_misread_or_half_hidden_bib_is_no_evidence() {
        let bib = elected(&[worn("1234")]);
        for (text, evidence) in [
            ("1234", BibEvidence::Same),
            ("234", BibEvidence::None),
            ("23", BibEvidence::None),
            ("12345", BibEvidence::None),
            ("1284", BibEvidence::None),
            ("1294", BibEvidence::None),
            ("124", BibEvidence::None),
            ("12934", BibEvidence::None),
            ("1243", BibEvidence::Different),
            ("1299", BibEvidence::Different),
            ("4321", BibEvidence::Different),
            ("87", BibEvidence::Different),
        ] {
            assert_eq!(bib.compare(worn(text)), evidence, "{text}");
        }
    }

    #[test]
    fn bibs_of_two_races_say_nothing_about_each_other() {
        let at = |text, hour| WornBib { text, taken_hour: hour };
        let bib = elected(&[at("12", Some(100)), at("12", None)]);
        assert_eq!(bib.compare(at("12", Some(112))), BibEvidence::Same);
        assert_eq!(bib.compare(at("12", Some(113))), BibEvidence::None);
        assert_eq!(bib.compare(at("77", Some(88))), BibEvidence::Different);
        assert_eq!(bib.compare(at("77", Some(87))), BibEvidence::None);
        assert_eq!(bib.compare(at("77", None)), BibEvidence::Different);
        let undated = elected(&[at("12", None)]);
        assert_eq!(undated.compare(at("77", Some(5))), BibEvidence::Different);
    }
}
