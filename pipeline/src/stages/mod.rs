//! The stages of the pipeline in order, and what they share: feed, fetch, decode, resize, detect, embed, read, index.

pub(crate) mod decode;
pub(crate) mod detect;
pub(crate) mod embed;
pub(crate) mod feed;
pub(crate) mod fetch;
pub(crate) mod grid;
pub(crate) mod index;
pub(crate) mod inference;
pub(crate) mod photo;
pub(crate) mod quality;
pub(crate) mod read;
pub(crate) mod resize;
pub(crate) mod sizes;
