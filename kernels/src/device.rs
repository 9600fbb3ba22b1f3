//! Where kernels run. Callers create every kernel with a [`Device`], so that another device needs no `cfg` outside this
//! crate.

use std::sync::Arc;

use crate::gpu::Gpu;

/// A device that kernels run on. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// The processor: each kernel runs on the thread that calls it.
    Cpu,
    /// A GPU: the kernels of [`crate::batch`] run there. Those that take one picture run on the processor.
    Gpu(Arc<dyn Gpu>),
}
