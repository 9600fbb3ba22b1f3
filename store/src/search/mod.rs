//! Search by face and by bib: vectors in memory, fuzzy matching of texts, confidences.

pub mod calibration;
pub(crate) mod face_bibs;
pub(crate) mod faces;
pub mod scoring;
pub mod selfie;
pub(crate) mod texts;
pub mod variants;
