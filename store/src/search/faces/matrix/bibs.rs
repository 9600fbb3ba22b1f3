//! The bibs of an album's faces: each text once, with the photos in which it is worn.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::ids::PhotoId;

/// The number of a bib in its [`BibIndex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BibId(std::num::NonZeroU32);

/// Bibs by number and by text.
#[derive(Default)]
pub(super) struct BibIndex {
    numbers: HashMap<Arc<str>, BibId>,
    /// Entry `i` is that of number `i + 1`.
    bibs: Vec<IndexedBib>,
    /// Numbers of bibs that nobody wears any more.
    unused: Vec<BibId>,
}

struct IndexedBib {
    text: Arc<str>,
    /// One entry for each face that wears it.
    photos: Vec<PhotoId>,
}

impl BibIndex {
    /// Counts a face of `photo` that wears a bib.
    pub(super) fn add(&mut self, text: &str, photo: PhotoId) -> BibId {
        let id = match self.numbers.get(text) {
            Some(id) => *id,
            None => self.insert(text),
        };
        self.bibs[id.index()].photos.push(photo);
        id
    }

    /// Removes a face of `photo` that wore a bib.
    pub(super) fn remove(&mut self, id: BibId, photo: PhotoId) {
        let bib = &mut self.bibs[id.index()];
        if let Some(at) = bib.photos.iter().position(|worn| *worn == photo) {
            bib.photos.swap_remove(at);
        }
        if bib.photos.is_empty() {
            bib.photos = Vec::new();
            self.numbers.remove(&bib.text);
            self.unused.push(id);
        }
    }

    /// Returns the number of a bib and the photos in which it is worn, once for each face.
    pub(super) fn find(&self, text: &str) -> Option<(BibId, &[PhotoId])> {
        let id = *self.numbers.get(text)?;
        Some((id, &self.bibs[id.index()].photos))
    }

    pub(super) fn text(&self, id: BibId) -> &str {
        &self.bibs[id.index()].text
    }

    /// Returns the allocated memory in bytes; the texts themselves count with their table entry.
    pub(super) fn bytes(&self) -> usize {
        const TEXT_BYTES: usize = 32;
        let photos: usize = self.bibs.iter().map(|bib| bib.photos.capacity() * size_of::<PhotoId>()).sum();
        let entry = size_of::<IndexedBib>() + TEXT_BYTES;
        photos
            + self.bibs.capacity() * entry
            + self.numbers.capacity() * size_of::<(Arc<str>, BibId)>()
            + self.unused.capacity() * size_of::<BibId>()
    }

    fn insert(&mut self, text: &str) -> BibId {
        let text: Arc<str> = text.into();
        let bib = IndexedBib { text: Arc::clone(&text), photos: Vec::new() };
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
