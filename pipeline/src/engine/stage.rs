//! The trait of a pipeline stage. Stages know nothing of threads, channels or tickets: the runner handles those.

use crate::engine::fault::{Outage, Poison};

/// The names of all stages, in the order in which a photo passes them.
pub(crate) const STAGES: [&str; 8] =
    ["feed", "fetch", "decode", "resize", "detect", "embed", "read", "index"];

/// One result per photo of a batch, in the order of the batch.
pub type BatchResults<T> = Vec<Result<T, Poison>>;

/// A step of the pipeline. It is built on the thread that runs it and never leaves that thread.
pub trait Stage {
    /// The input; its type says what has been done to the photo so far.
    type In: Send + 'static;
    /// The output, which is the input of the next stage.
    type Out: Send + 'static;

    /// Processes a batch of at least one photo and returns one result per photo, in order. A bad photo must not fail
    /// the others of its batch.
    ///
    /// The batch is borrowed so that after a panic a new stage can process it again, photo by photo. Side effects,
    /// such as writes to the store, must therefore be repeatable.
    ///
    /// # Errors
    /// When no photo can be processed now.
    fn run(&mut self, batch: &[Self::In]) -> Result<BatchResults<Self::Out>, Outage>;
}
