//! Bib searches and their hits.

use crate::model::ids::PhotoId;
use crate::model::photo::BoundingBox;

/// A bib search.
#[derive(Clone, Debug)]
pub struct TextQuery {
    /// Upper-case letters and digits only, at least one: see [`crate::search::variants::normalise_bib`].
    pub text: String,
    /// No fuzzy matches.
    pub exact: bool,
}

/// How a text matches a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextMatch {
    /// It equals the query.
    Exact,
    /// It differs in characters that look alike: 0/O, 1/I/7, 5/S, 8/B, 6/G.
    Confusable,
    /// It lacks a character at one end: cut off by the frame or a fold.
    Truncated,
    /// It is one edit away.
    OneEdit,
}

/// A photo in which a bib was found.
#[derive(Clone, Debug, PartialEq)]
pub struct TextHit {
    /// The photo.
    pub photo: PhotoId,
    /// The text in the photo.
    pub text: String,
    /// Where in the photo.
    pub bounding_box: BoundingBox,
    /// 0 to 100: from the reader's score and the kind of match.
    pub confidence: f64,
    /// How it matches.
    pub match_kind: TextMatch,
}
