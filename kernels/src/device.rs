//! Where kernels run. Callers create every kernel with a [`Device`], so that another device needs no `cfg` outside this
//! crate.

/// A device that kernels run on. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// The processor: each kernel runs on the thread that calls it.
    Cpu,
}
