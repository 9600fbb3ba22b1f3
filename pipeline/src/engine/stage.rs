//! What a step of the pipeline is. Knows nothing of threads, channels or tickets: the runner does.

use crate::engine::fault::{Outage, Poison};

/// The stages in order.
pub(crate) const STAGES: [&str; 8] =
    ["feed", "fetch", "decode", "resize", "detect", "embed", "read", "index"];

/// One answer per photo of a batch, in order.
pub type BatchResults<T> = Vec<Result<T, Poison>>;

/// A step of the pipeline. It is built on the thread that runs it and never leaves it.
pub trait Stage {
    /// What comes in: its type says what has been done to the photo.
    type In: Send + 'static;
    /// What goes on.
    type Out: Send + 'static;

    /// Works on a batch, at least one photo; one answer per photo, in order. A bad photo never fails its mates.
    ///
    /// Takes the batch by reference so that after a panic it can be run again photo by photo, by a new stage; what
    /// a stage has changed in the world until then it must be able to change again.
    ///
    /// # Errors
    /// When no photo can be worked on now.
    fn run(&mut self, batch: &[Self::In]) -> Result<BatchResults<Self::Out>, Outage>;
}
