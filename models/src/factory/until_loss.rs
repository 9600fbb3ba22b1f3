//! What networks share until their device is lost.

use std::sync::{Mutex, PoisonError, TryLockError};

use crate::onnx::kernels::KernelDevice;
use crate::traits::ModelError;

/// A value on the device that is made on first use, and again where it cannot be used any more.
pub(super) struct UntilLoss<T>(Mutex<Option<Made<T>>>);

struct Made<T> {
    value: T,
    /// How often the device was lost before.
    losses: u64,
}

impl<T> Default for UntilLoss<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> UntilLoss<T> {
    /// Returns the value, which `make` makes where there is none that is usable, or the device was lost since. One thread makes
    /// it while the others wait.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make(
        &self,
        kernels: &KernelDevice,
        is_usable: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let losses = kernels.losses();
        if let Some(current) = made.as_ref()
            && current.losses == losses
            && is_usable(&current.value)
        {
            return Ok(current.value.clone());
        }
        // First, as `free_if_lost` says.
        *made = None;
        let value = make()?;
        Ok(made.insert(Made { value, losses }).value.clone())
    }

    /// Frees the value if the device was lost since it was made. To be called before anything is loaded: the sessions of ONNX
    /// Runtime's WebGPU provider share a device, which is opened again only once none of the lost one is left. Does not wait
    /// for a thread that makes a value: that one has freed the old one.
    pub fn free_if_lost(&self, kernels: &KernelDevice) {
        let mut made = match self.0.try_lock() {
            Ok(made) => made,
            Err(TryLockError::Poisoned(made)) => made.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let losses = kernels.losses();
        if made.as_ref().is_some_and(|current| current.losses != losses) {
            *made = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use photofinish_kernels::gpu::GpuError;

    use super::*;

    #[test]
    fn what_was_made_on_a_lost_device_is_freed_before_anything_else_is_loaded() {
        let kernels = KernelDevice::opened_by(|| Err(GpuError::Failed("it is not opened here".into())));
        let shared = UntilLoss::default();
        let get = |number: u32| {
            let make = || {
                // As a network does that is loaded.
                shared.free_if_lost(&kernels);
                Ok(Arc::new(number))
            };
            shared.get_or_make(&kernels, |value: &Arc<u32>| **value > 0, make).unwrap()
        };
        let old = Arc::downgrade(&get(1));
        shared.free_if_lost(&kernels);
        assert_eq!(old.upgrade().as_deref(), Some(&1), "its device is not lost");

        let lost = ModelError::Device { device: "wgpu".into(), detail: "device was lost".into() };
        kernels.note_failure(&lost, 0);
        shared.free_if_lost(&kernels);
        assert!(old.upgrade().is_none());
        assert_eq!([*get(0), *get(2), *get(3)], [0, 2, 2], "the first one is not usable");

        let old = Arc::downgrade(&get(4));
        kernels.note_failure(&lost, 1);
        assert_eq!(*get(5), 5);
        assert!(old.upgrade().is_none());
    }
}
