//! A start list, prepared for judging.

use std::collections::{HashMap, HashSet};

use photofinish_kernels::lattice::Trie;
use regex::Regex;

use crate::model::album::AlbumConfig;
use crate::model::start_list::StartListEntry;

/// The bibs of an event.
pub(crate) struct StartList {
    /// The bibs as they are printed.
    bibs: HashSet<Box<str>>,
    /// Bibs with leading zeros by what is left without them, as not every reader of bibs sees or writes these.
    without_zeros: HashMap<Box<str>, Box<str>>,
    /// All spellings of all bibs.
    spellings: Trie,
    /// Numbers that nobody wears.
    excluded: HashSet<Box<str>>,
    /// The part of the runners who are not on the list, 0 to 1: late registrations.
    off_list_share: f64,
    /// What a bib of this album looks like; `None` for one that does not compile, which the API refuses.
    pattern: Option<Regex>,
}

impl StartList {
    /// Returns the list; `None` if it has no bib or the album does not use it.
    pub(crate) fn new(entries: &[StartListEntry], config: &AlbumConfig) -> Option<Self> {
        let of = |excluded: bool| entries.iter().filter(move |entry| entry.excluded == excluded);
        let bibs: HashSet<Box<str>> = of(false).map(|entry| entry.bib.as_str().into()).collect();
        if bibs.is_empty() || !config.start_list.enabled {
            return None;
        }
        let without_zeros: HashMap<Box<str>, Box<str>> = bibs
            .iter()
            .filter_map(|bib| {
                Some((bib.trim_start_matches('0'), bib.strip_prefix('0').map(|_| bib.clone())?))
            })
            .filter(|(short, _)| !short.is_empty() && !bibs.contains(*short))
            .map(|(short, bib)| (short.into(), bib))
            .collect();
        let spellings = Trie::new(bibs.iter().chain(without_zeros.keys()).map(|text| &**text));
        Some(Self {
            excluded: of(true).map(|entry| entry.bib.as_str().into()).collect(),
            off_list_share: config.start_list.off_list_share,
            pattern: Regex::new(&format!("^(?:{})$", config.bib_pattern)).ok(),
            bibs,
            without_zeros,
            spellings,
        })
    }

    /// The bib that a text spells.
    pub(crate) fn find(&self, text: &str) -> Option<&str> {
        self.bibs.get(text).or_else(|| self.without_zeros.get(text)).map(|bib| &**bib)
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
