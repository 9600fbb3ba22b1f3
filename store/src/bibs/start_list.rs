//! A start list, prepared for judging.

use std::collections::{HashMap, HashSet};

use photofinish_kernels::lattice::Trie;
use regex::Regex;

use crate::model::album::AlbumConfig;
use crate::model::start_list::StartListEntry;

/// The longest bib of a list, characters.
const LONGEST: usize = 12;

/// The texts that a list may take for the same bib as this one: with any number of zeros before it, itself among them.
pub(crate) fn zero_spellings(text: &str) -> Vec<String> {
    let short = text.trim_start_matches('0');
    let mut spellings = vec![text.to_owned()];
    if !short.is_empty() {
        let most = LONGEST.saturating_sub(short.chars().count());
        let padded = (0..=most).map(|zeros| "0".repeat(zeros) + short);
        spellings.extend(padded.filter(|padded| padded != text));
    }
    spellings
}

/// The bibs of an event.
pub(crate) struct StartList {
    /// The bibs as they are printed.
    bibs: HashSet<Box<str>>,
    /// Bibs with leading zeros by what is left without them, as not every reader of bibs sees or writes these; `None` where
    /// that is left of several.
    without_zeros: HashMap<Box<str>, Option<Box<str>>>,
    /// All spellings of all bibs.
    spellings: Trie,
    /// Numbers that nobody wears.
    excluded: HashSet<Box<str>>,
    /// The part of the runners who are not on the list, 0 to 1: late registrations.
    off_list_share: f64,
    /// What a bib of this album looks like; `None` for one that does not compile, which the API refuses.
    pattern: Option<Regex>,
}

/// The numbers that nobody wears; none if the album does not use its list.
pub(crate) fn find_excluded(entries: &[StartListEntry], config: &AlbumConfig) -> HashSet<Box<str>> {
    let used = entries.iter().filter(|entry| entry.excluded && config.start_list.enabled);
    used.map(|entry| entry.bib.as_str().into()).collect()
}

impl StartList {
    /// Returns the list; `None` if it has no bib or the album does not use it.
    pub(crate) fn new(entries: &[StartListEntry], config: &AlbumConfig) -> Option<Self> {
        let on_list = entries.iter().filter(|entry| !entry.excluded);
        let bibs: HashSet<Box<str>> = on_list.map(|entry| entry.bib.as_str().into()).collect();
        if bibs.is_empty() || !config.start_list.enabled {
            return None;
        }
        let mut without_zeros: HashMap<Box<str>, Option<Box<str>>> = HashMap::new();
        for bib in bibs.iter().filter(|bib| bib.starts_with('0')) {
            let short = bib.trim_start_matches('0');
            if !short.is_empty() {
                let only = without_zeros.entry(short.into());
                only.and_modify(|only| *only = None).or_insert_with(|| Some(bib.clone()));
            }
        }
        let mut list = Self {
            excluded: find_excluded(entries, config),
            off_list_share: config.start_list.off_list_share,
            pattern: Regex::new(&format!("^(?:{})$", config.bib_pattern)).ok(),
            bibs,
            without_zeros,
            spellings: Trie::default(),
        };
        let short = list.without_zeros.keys().filter(|short| list.find(short).is_some());
        list.spellings = Trie::new(list.bibs.iter().chain(short).map(|text| &**text));
        Some(list)
    }

    /// The bib that a text spells: the same characters, else the only bib with these and other zeros before them. Timing
    /// software loses them (42 for 0042), and readers of bibs do.
    pub(crate) fn find(&self, text: &str) -> Option<&str> {
        if let Some(bib) = self.bibs.get(text) {
            return Some(bib);
        }
        if self.is_excluded(text) {
            return None;
        }
        let short = text.trim_start_matches('0');
        let with_zeros = self.without_zeros.get(short).map(Option::as_deref);
        match (self.bibs.get(short).map(|bib| &**bib), with_zeros) {
            (Some(bib), None) | (None, Some(Some(bib))) => Some(bib),
            _ => None,
        }
    }

    /// Whether this is the bib that a text spells: see [`Self::find`].
    pub(crate) fn spells(&self, text: &str, bib: &str) -> bool {
        self.find(text) == Some(bib)
    }

    /// Whether a text spells a bib with more zeros than the list has: the list's own spellings are without.
    pub(crate) fn is_padded(&self, text: &str) -> bool {
        text.starts_with('0') && !self.bibs.contains(text) && self.find(text).is_some()
    }

    pub(crate) fn spellings(&self) -> &Trie {
        &self.spellings
    }

    pub(crate) fn len(&self) -> usize {
        self.bibs.len()
    }

    pub(crate) fn off_list_share(&self) -> f64 {
        self.off_list_share
    }

    pub(crate) fn is_excluded(&self, text: &str) -> bool {
        self.excluded.contains(text)
    }

    /// Whether a text looks like a bib of this album.
    pub(crate) fn matches_pattern(&self, text: &str) -> bool {
        self.pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
    }
}
