//! What misreadings make of a bib: cuts at its ends, and slips of one letter.

use crate::model::bib_format::BibShape;

/// Letters and digits that are read as each other.
const LOOK_ALIKES: &[u8] = b"O0I1S5B8G6";

/// Whether a bib of the shape `whole` of which characters at the ends are missing has this shape.
pub(super) fn is_cut(shape: &BibShape, whole: &BibShape) -> bool {
    shape.len() < whole.len() && whole.as_str().contains(shape.as_str())
}

/// Whether a text may be what a misreading makes of a bib of the shape `whole`.
pub(super) fn is_part_of(text: &str, whole: &BibShape) -> bool {
    is_cut(&BibShape::of(text), whole) || is_slip(text, whole)
}

/// The place at which two shapes of the same length differ, if it is one place.
pub(super) fn one_difference(shape: &BibShape, other: &BibShape) -> Option<usize> {
    let (shape, other) = (shape.as_str().as_bytes(), other.as_str().as_bytes());
    if shape.len() != other.len() {
        return None;
    }
    let mut differences = (0..shape.len()).filter(|&at| shape[at] != other[at]);
    differences.next().filter(|_| differences.next().is_none())
}

/// Whether a text is a bib of the shape `whole` of which a digit was read as the letter that looks like it, or a letter as
/// the digit.
pub(super) fn is_slip(text: &str, whole: &BibShape) -> bool {
    let at = one_difference(&BibShape::of(text), whole);
    at.is_some_and(|at| text.as_bytes().get(at).is_some_and(|character| LOOK_ALIKES.contains(character)))
}
