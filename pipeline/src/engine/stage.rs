//! The traits of a pipeline stage. Stages know nothing of threads, channels or tickets: the runner handles those.

use std::convert::Infallible;

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

/// What a step did with a photo.
#[derive(Debug)]
pub enum Step<P, T> {
    /// It found a part of the results; the photo needs more steps.
    Part(P),
    /// It took no step, because the photo waits for memory that others use: photos of others are next. What it found before is
    /// a part; nothing when an earlier step found it.
    Wait(Option<P>),
    /// The photo is done.
    Done(T),
}

/// The results of one step of each photo of a batch, in order.
pub type StepResults<Part, Out> = BatchResults<Step<Part, Out>>;

/// A stage that works on a photo in steps, because some photos take long: a step is about one run of a network. Between
/// two steps of a photo the thread takes steps of other photos, and ends if its generation does.
///
/// A stage keeps nothing between steps: what they found is handed to it again.
pub trait SteppedStage {
    /// The input; its type says what has been done to the photo so far.
    type In: Send + 'static;
    /// What a step finds.
    type Part: Send + 'static;
    /// The output, which is the input of the next stage.
    type Out: Send + 'static;

    /// Takes the next step of each photo of a batch. `parts` has, for each photo, what its earlier steps found. Otherwise
    /// like [`Stage::run`].
    ///
    /// # Errors
    /// When no photo can be processed now.
    fn step(
        &mut self,
        batch: &[Self::In],
        parts: &[Vec<Self::Part>],
    ) -> Result<StepResults<Self::Part, Self::Out>, Outage>;

    /// Adds what a step found to what earlier steps of the photo found.
    fn add_part(parts: &mut Vec<Self::Part>, found: Self::Part) {
        parts.push(found);
    }

    /// Returns how much of the work of a batch is for this photo, in a unit of the stage: its share of the cost. `parts` is what
    /// its earlier steps found.
    fn weigh(_item: &Self::In, _parts: &[Self::Part]) -> u64 {
        1
    }
}

impl<S: Stage> SteppedStage for S {
    type In = S::In;
    type Part = Infallible;
    type Out = S::Out;

    fn step(
        &mut self,
        batch: &[S::In],
        _parts: &[Vec<Infallible>],
    ) -> Result<StepResults<Infallible, S::Out>, Outage> {
        let results = self.run(batch)?;
        Ok(results.into_iter().map(|result| result.map(Step::Done)).collect())
    }
}
