//! Search by face and by bib: vectors in memory, fuzzy matching of texts, confidences.

pub mod calibration;
pub(crate) mod faces;
pub(crate) mod texts;
pub mod variants;
