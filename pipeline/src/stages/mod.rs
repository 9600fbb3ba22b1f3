//! The stages of the pipeline, in order: feed, fetch, decode, resize, detect, embed, read, index; and what they share:
//! the photo types that travel between them, inference with fault isolation, grid cells, face quality, sizes.

pub(crate) mod closer_look;
pub(crate) mod decode;
pub(crate) mod detect;
pub(crate) mod embed;
pub(crate) mod feed;
pub(crate) mod fetch;
pub(crate) mod grid;
pub(crate) mod index;
pub(crate) mod inference;
pub(crate) mod long_photos;
pub(crate) mod lookout;
pub(crate) mod photo;
pub(crate) mod quality;
pub(crate) mod read;
pub(crate) mod resize;
pub(crate) mod sizes;
pub(crate) mod watermarks;
