//! Which texts a lattice spells: prefix beam search (Graves and Jaitly 2014; Hannun et al. 2014), over all texts or
//! over those of a [`Trie`].

use std::collections::HashMap;
use std::ops::Range;

use super::{BLANK, Cell, Lattice, Trie};

/// Longer texts are not looked for: no bib is as long.
const MAX_LENGTH: usize = 15;

/// A text that a lattice spells.
#[derive(Clone, Debug, PartialEq)]
pub struct SpelledText {
    /// Letters, in the case that was read, and digits.
    pub text: String,
    /// The probability of all its paths that the search has followed.
    pub likelihood: f64,
}

/// The beginning of a text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Prefix {
    characters: [u8; MAX_LENGTH],
    length: u8,
}

impl Prefix {
    fn last(&self) -> Option<u8> {
        self.as_bytes().last().copied()
    }

    fn as_bytes(&self) -> &[u8] {
        &self.characters[..usize::from(self.length)]
    }

    fn with(mut self, next: u8) -> Option<Self> {
        *self.characters.get_mut(usize::from(self.length))? = next;
        self.length += 1;
        Some(self)
    }
}

/// The paths that spell a prefix so far.
#[derive(Clone, Default)]
struct Paths {
    /// Probability of those that end with a blank.
    blank: f64,
    /// Probability of those that end with the prefix's last character.
    character: f64,
    /// The texts of the trie that begin so.
    place: Range<usize>,
}

impl Paths {
    fn sum(&self) -> f64 {
        self.blank + self.character
    }
}

impl Lattice {
    /// Returns the most probable texts, best first: those of `trie`, or any, following the `beam` best beginnings at
    /// each column.
    pub fn spell(&self, trie: Option<&Trie>, beam: usize) -> Vec<SpelledText> {
        let place = trie.map_or(0..0, Trie::root);
        let paths = Paths { blank: 1.0, character: 0.0, place };
        let mut beams = vec![Beam { prefix: Prefix::default(), paths }];
        for column in self.columns() {
            let mut next = HashMap::with_capacity(2 * beams.len());
            for beam in &beams {
                for cell in column.clone() {
                    beam.extend(&mut next, trie, cell);
                }
            }
            beams = next.into_iter().map(|(prefix, paths)| Beam { prefix, paths }).collect();
            beams.sort_unstable_by(|a, b| {
                let by_sum = b.paths.sum().total_cmp(&a.paths.sum());
                by_sum.then_with(|| a.prefix.as_bytes().cmp(b.prefix.as_bytes()))
            });
            beams.truncate(beam);
        }
        beams.into_iter().filter_map(|beam| beam.into_text(trie)).collect()
    }
}

/// A beginning of a text that the search follows.
struct Beam {
    prefix: Prefix,
    paths: Paths,
}

impl Beam {
    /// Adds what the paths of the prefix become with one class more.
    fn extend(&self, next: &mut HashMap<Prefix, Paths>, trie: Option<&Trie>, cell: Cell) {
        let Cell { class, probability } = cell;
        let mut stay = |blank: f64, character: f64| {
            let place = self.paths.place.clone();
            let same = next.entry(self.prefix).or_insert_with(|| Paths { place, ..Paths::default() });
            same.blank += blank;
            same.character += character;
        };
        if class == BLANK {
            stay(self.paths.sum() * probability, 0.0);
            return;
        }
        let is_repeated = self.prefix.last() == Some(class);
        if is_repeated {
            stay(0.0, self.paths.character * probability);
        }
        // The same character again is another one only after a blank.
        let before = if is_repeated { self.paths.blank } else { self.paths.sum() };
        if before <= 0.0 {
            return;
        }
        let place = match trie {
            Some(trie) => trie.step(&self.paths.place, usize::from(self.prefix.length), class),
            None => Some(0..0),
        };
        if let (Some(longer), Some(place)) = (self.prefix.with(class), place) {
            let paths = next.entry(longer).or_insert_with(|| Paths { place, ..Paths::default() });
            paths.character += before * probability;
        }
    }

    /// The whole text, if it is one.
    fn into_text(self, trie: Option<&Trie>) -> Option<SpelledText> {
        let Self { prefix, paths } = self;
        let is_whole = trie.is_none_or(|trie| trie.is_whole(&paths.place, usize::from(prefix.length)));
        let text = prefix.as_bytes().iter().copied().map(char::from).collect();
        (is_whole && paths.sum() > 0.0).then(|| SpelledText { text, likelihood: paths.sum() })
    }
}
