//! The texts that a lattice may spell, as a tree of their beginnings: a range of a sorted list is a place in it.

use std::ops::Range;

/// A set of texts.
#[derive(Clone, Debug, Default)]
pub struct Trie {
    /// Sorted, each once.
    texts: Vec<Box<str>>,
}

impl Trie {
    /// Takes the texts in any order.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut texts: Vec<Box<str>> = texts.into_iter().map(Box::from).collect();
        texts.sort_unstable();
        texts.dedup();
        Self { texts }
    }

    /// The texts that begin with nothing: all.
    pub(super) fn root(&self) -> Range<usize> {
        0..self.texts.len()
    }

    /// Of the texts at `place`, which begin with the same `length` characters, those that have `next` after them.
    pub(super) fn step(&self, place: &Range<usize>, length: usize, next: u8) -> Option<Range<usize>> {
        let texts = &self.texts[place.clone()];
        let at = |text: &str| text.as_bytes().get(length).copied();
        let start = place.start + texts.partition_point(|text| at(text) < Some(next));
        let end = place.start + texts.partition_point(|text| at(text) <= Some(next));
        (start < end).then_some(start..end)
    }

    /// Whether the text of `length` characters that the texts at `place` begin with is one of them.
    pub(super) fn is_whole(&self, place: &Range<usize>, length: usize) -> bool {
        // The shortest is the first.
        self.texts.get(place.start).is_some_and(|text| text.len() == length && !place.is_empty())
    }
}
