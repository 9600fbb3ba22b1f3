//! Face search in memory: the embeddings of the albums that are searched, kept in step with the database.
//!
//! [`source`] defines what is read from the database, [`matrix`] stores the faces of one album, [`residency`] decides
//! which albums stay in memory, [`loader`] reads them in tasks that [`updates`] shares between searches, and [`cache`]
//! makes the [`FaceIndex`](crate::traits::FaceIndex) of these.

pub(crate) mod cache;
mod loader;
pub(crate) mod matrix;
mod residency;
pub(crate) mod source;
mod updates;

pub(crate) use self::cache::FaceCache;
pub(crate) use self::source::{Change, FaceChanges, FaceSource};
