//! The bibs of an album by shape.

use std::collections::HashMap;

use crate::model::bib_format::BibShape;

/// Longer texts are no bibs.
const MAX_LENGTH: usize = 12;

/// A bib that was surely read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) bib: String,
    /// In how many photos.
    pub(crate) photos: u64,
}

/// The bibs of one shape.
pub(super) struct OfShape<'a> {
    pub(super) shape: BibShape,
    pub(super) bibs: Vec<&'a Sighting>,
}

impl OfShape<'_> {
    /// Different bibs.
    pub(super) fn len(&self) -> u64 {
        self.bibs.len() as u64
    }

    /// Photos in which they were read.
    pub(super) fn readings(&self) -> u64 {
        self.bibs.iter().map(|bib| bib.photos).sum()
    }

    /// Bibs in more than one photo.
    pub(super) fn repeated(&self) -> u64 {
        self.bibs.iter().filter(|bib| bib.photos > 1).count() as u64
    }

    /// Different texts of the shape.
    pub(super) fn texts(&self) -> f64 {
        self.shape.as_str().bytes().map(|sign| if sign == b'9' { 10.0 } else { 26.0 }).product()
    }
}

/// The shapes of an album, most readings first.
pub(super) type Shapes<'a> = [OfShape<'a>];

/// Groups bibs by shape, most readings first.
pub(super) fn group(sightings: &[Sighting]) -> Vec<OfShape<'_>> {
    let mut by_shape: HashMap<BibShape, Vec<&Sighting>> = HashMap::new();
    for sighting in sightings.iter().filter(|it| (1..=MAX_LENGTH).contains(&it.bib.len())) {
        by_shape.entry(BibShape::of(&sighting.bib)).or_default().push(sighting);
    }
    let mut shapes: Vec<OfShape<'_>> =
        by_shape.into_iter().map(|(shape, bibs)| OfShape { shape, bibs }).collect();
    shapes.sort_by(|a, b| b.readings().cmp(&a.readings()).then_with(|| a.shape.cmp(&b.shape)));
    shapes
}
