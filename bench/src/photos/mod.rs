//! The labelled photos: their labels, how readings are scored against them, and camera-size copies of them.

pub(crate) mod enlarge;
pub(crate) mod labels;
pub(crate) mod score;
