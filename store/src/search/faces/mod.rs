//! Face search in memory: the embeddings of the albums that are searched, kept in step with the database.
//!
//! [`source`] defines what is read from the database, [`matrix`] stores the faces of one album, [`residency`] decides
//! which albums stay in memory, and [`loader`] reads them in tasks that [`updates`] shares between searches. A search is a
//! pass over the album, which it shares with others ([`passes`]) and a GPU may take part in ([`gpu`]), and then a ranking of
//! what it found by the exact vectors ([`ranking`]). [`cache`] makes the [`FaceIndex`](crate::traits::FaceIndex) of these.

pub(crate) mod cache;
mod fingerprint;
pub(crate) mod gpu;
mod loader;
pub(crate) mod matrix;
mod passes;
mod ranking;
mod residency;
pub(crate) mod source;
mod updates;

pub(crate) use self::cache::FaceCache;
pub(crate) use self::gpu::{FindGpu, GpuAlbums};
pub(crate) use self::source::{Change, FaceChanges, FaceSource};
