//! The bibs of an album's faces: each text once.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of a bib in its [`BibTexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BibId(std::num::NonZeroU32);

/// Bibs by number and by text.
#[derive(Default)]
pub(super) struct BibTexts {
    numbers: HashMap<Arc<str>, BibId>,
    /// Entry `i` is that of number `i + 1`.
    bibs: Vec<CountedBib>,
    /// Numbers of bibs that nobody wears any more.
    unused: Vec<BibId>,
}

struct CountedBib {
    text: Arc<str>,
    /// How many faces wear it.
    wearers: u32,
}

impl BibTexts {
    /// Counts a face that wears a bib.
    pub(super) fn add(&mut self, text: &str) -> BibId {
        let id = match self.numbers.get(text) {
            Some(id) => *id,
            None => self.insert(text),
        };
        self.bibs[id.index()].wearers += 1;
        id
    }

    /// Removes a face that wore a bib.
    pub(super) fn remove(&mut self, id: BibId) {
        let bib = &mut self.bibs[id.index()];
        bib.wearers -= 1;
        if bib.wearers == 0 {
            self.numbers.remove(&bib.text);
            self.unused.push(id);
        }
    }

    pub(super) fn text(&self, id: BibId) -> &Arc<str> {
        &self.bibs[id.index()].text
    }

    /// Returns the allocated memory in bytes; the texts themselves count with their table entry.
    pub(super) fn bytes(&self) -> usize {
        const TEXT_BYTES: usize = 32;
        self.bibs.capacity() * (size_of::<CountedBib>() + TEXT_BYTES)
            + self.numbers.capacity() * size_of::<(Arc<str>, BibId)>()
            + self.unused.capacity() * size_of::<BibId>()
    }

    fn insert(&mut self, text: &str) -> BibId {
        let text: Arc<str> = text.into();
        let bib = CountedBib { text: Arc::clone(&text), wearers: 0 };
        let id = match self.unused.pop() {
            Some(id) => {
                self.bibs[id.index()] = bib;
                id
            }
            None => {
                self.bibs.push(bib);
                BibId::of_last(self.bibs.len())
            }
        };
        self.numbers.insert(text, id);
        id
    }
}

impl BibId {
    /// Returns the number of the last of `count` bibs; there is at least one, and fewer than four billion.
    fn of_last(count: usize) -> Self {
        Self(std::num::NonZeroU32::MIN.saturating_add(count as u32 - 1))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}
