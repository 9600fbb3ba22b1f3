//! Runs networks on tensors and gives back faces, embeddings and text in photo coordinates.
//!
//! Knows nothing of files of photos, threads, rows or HTTP. The pipeline asks through [`traits`]; `src` chooses the
//! factory: the real networks of the zoo, or the fakes of [`traits::ModelFactory`] for tests.

pub mod traits;
