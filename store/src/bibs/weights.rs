//! What the lattice of a text may say by a start list: Bayes' rule, as [`super::judge`] describes it.

use std::collections::HashSet;

use photofinish_kernels::lattice::Lattice;

use super::start_list::StartList;
use crate::model::photo::ReadText;

/// How many beginnings the search for texts follows, on the list and off it.
const BEAM: usize = 48;

/// What a lattice may say, by a list: texts with their prior probability times their likelihood.
pub(super) struct Weights<'a> {
    /// Bibs of the list, each once. In an order that is the same each time, as sums of floats depend on it.
    pub(super) bibs: Vec<(&'a str, f64)>,
    /// Other texts, in the case that was read.
    pub(super) others: Vec<(String, f64)>,
}

impl<'a> Weights<'a> {
    pub(super) fn sum(&self) -> f64 {
        self.bibs.iter().map(|(_, weight)| weight).sum::<f64>()
            + self.others.iter().map(|(_, weight)| weight).sum::<f64>()
    }

    /// The most probable bib; of two the first by name.
    pub(super) fn best_bib(&self) -> Option<(&'a str, f64)> {
        self.bibs.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(a.0)))
    }

    pub(super) fn best_other(&self) -> f64 {
        self.others.iter().map(|(_, weight)| *weight).fold(0.0, f64::max)
    }
}

impl StartList {
    /// Weighs what a lattice may say. Both spellings of a bib with leading zeros count for it.
    pub(super) fn weigh(&self, read: &ReadText, lattice: &Lattice, taken: &HashSet<String>) -> Weights<'_> {
        let is_free = |bib: &str| !taken.contains(bib) || self.spells(&read.text, bib);
        let prior = (1.0 - self.off_list_share()) / self.len() as f64;
        let mut bibs: Vec<(&str, f64)> = Vec::new();
        let any = lattice.spell(None, BEAM);
        let padded = any.iter().filter(|spelled| self.is_padded(&spelled.text));
        for spelled in lattice.spell(Some(self.spellings()), BEAM).iter().chain(padded) {
            let Some(bib) = self.find(&spelled.text).filter(|bib| is_free(bib)) else { continue };
            let weight = prior * lattice.likelihood(&spelled.text);
            match bibs.iter_mut().find(|(known, _)| *known == bib) {
                Some((_, sum)) => *sum += weight,
                None => bibs.push((bib, weight)),
            }
        }
        // An excluded number is printed in many photos, not a random stranger's: else its neighbour on the list would win.
        let prior_of = |text: &str| {
            let off_list = other_prior(text, self.off_list_share());
            if self.is_excluded(text) { off_list.max(prior) } else { off_list }
        };
        let others = any
            .into_iter()
            .map(|spelled| spelled.text)
            .filter(|text| !text.is_empty() && !self.find(text).is_some_and(is_free))
            .map(|text| {
                let weight = prior_of(&text) * lattice.likelihood(&text);
                (text, weight)
            })
            .collect();
        Weights { bibs, others }
    }
}

/// The prior probability of a text that is not on the list. Words are not as rare as random letters are: each counts as
/// a number of as many digits, whatever the share of runners off the list.
fn other_prior(text: &str, off_list_share: f64) -> f64 {
    let looks_like_bib = text.bytes().any(|byte| byte.is_ascii_digit()) && !has_small_letter(text);
    let texts_of_shape: f64 = text
        .bytes()
        .map(|byte| if looks_like_bib && byte.is_ascii_uppercase() { 26.0 } else { 10.0 })
        .product();
    if looks_like_bib { off_list_share / texts_of_shape } else { 1.0 / texts_of_shape }
}

pub(super) fn has_small_letter(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_lowercase())
}
