//! Face search in memory: the embeddings of the albums that are searched, kept in step with the database.
//!
//! [`source`] defines what is read from the database, [`matrix`] stores the faces of one album, [`residency`] decides
//! which albums stay in memory, and [`cache`] makes the [`FaceIndex`](crate::traits::FaceIndex) of the three.

pub(crate) mod cache;
pub(crate) mod matrix;
mod residency;
pub(crate) mod source;

pub(crate) use self::cache::FaceCache;
pub(crate) use self::source::{Change, FaceChanges, FaceSource};
