//! The device of the kernels: opened when networks are created, and again after it was lost.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::{Gpu, GpuError};

use crate::onnx::calls::{DeviceCall, DeviceCalls};
use crate::traits::ModelError;

/// Opens a device.
type Open = dyn Fn() -> Result<Arc<dyn Gpu>, GpuError> + Send + Sync;

/// The device that kernels run on. Cheap to clone: clones share the device.
#[derive(Clone, Default)]
pub struct KernelDevice(Option<Arc<Slot>>);

struct Slot {
    open: Box<Open>,
    /// Of kernels, and of the networks on the same device.
    calls: DeviceCalls,
    /// `None` before it is opened, and once it is lost.
    gpu: Mutex<Option<Arc<dyn Gpu>>>,
}

impl KernelDevice {
    /// The processor.
    pub fn cpu() -> Self {
        Self(None)
    }

    /// A GPU, which `open` opens when networks are created.
    pub fn opened_by(open: impl Fn() -> Result<Arc<dyn Gpu>, GpuError> + Send + Sync + 'static) -> Self {
        let (open, calls) = (Box::new(open), DeviceCalls::default());
        Self(Some(Arc::new(Slot { open, calls, gpu: Mutex::default() })))
    }

    /// Whether kernels run on a GPU.
    pub fn is_gpu(&self) -> bool {
        self.0.is_some()
    }

    /// Notes the beginning of a call of the device; nothing on the processor.
    pub(crate) fn begin_call(&self) -> Option<DeviceCall> {
        Some(self.0.as_ref()?.calls.begin())
    }

    /// For how long the oldest call of the device has been running, of kernels or of networks; `None` when there is none.
    pub fn longest_call(&self) -> Option<Duration> {
        self.0.as_ref()?.calls.longest()
    }

    /// Opens the device where it is not open. Called for each new network, so that the networks of a generation which
    /// replaces one that lost its device have one.
    ///
    /// # Errors
    /// `Device` when it cannot be opened.
    pub fn open(&self) -> Result<(), ModelError> {
        let Some(slot) = &self.0 else { return Ok(()) };
        let mut gpu = slot.lock();
        if gpu.is_none() {
            let _call = slot.calls.begin();
            *gpu = Some((slot.open)().map_err(|error| device_error(error.to_string()))?);
        }
        Ok(())
    }

    /// Runs kernels. A device that is lost stays so until [`Self::open`]: the networks on it are lost too.
    ///
    /// # Errors
    /// `Device` when the device is lost, `OutOfMemory` where a smaller batch may have enough, else `Inference`; the last
    /// two name `what` failed.
    pub fn run<T>(
        &self,
        what: &str,
        operation: impl FnOnce(&Device) -> Result<T, GpuError>,
    ) -> Result<T, ModelError> {
        let device = match &self.0 {
            None => Device::Cpu,
            Some(slot) => {
                let gpu = slot.lock().clone();
                Device::Gpu(gpu.ok_or_else(|| device_error("it is not open".into()))?)
            }
        };
        let name = || what.to_owned();
        let _call = self.begin_call();
        operation(&device).map_err(|error| match error {
            GpuError::Lost(detail) => {
                self.forget(&device);
                device_error(format!("it is lost: {detail}"))
            }
            GpuError::OutOfMemory(detail) => ModelError::OutOfMemory { name: name(), detail },
            other => ModelError::Inference { name: name(), detail: other.to_string() },
        })
    }

    /// Forgets a device that is lost, unless another thread has opened the next one already.
    fn forget(&self, lost: &Device) {
        if let (Some(slot), Device::Gpu(lost)) = (&self.0, lost) {
            slot.lock().take_if(|gpu| Arc::ptr_eq(gpu, lost));
        }
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn Gpu>>> {
        self.gpu.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KernelDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_gpu() { "a GPU" } else { "the processor" })
    }
}

fn device_error(detail: String) -> ModelError {
    ModelError::Device { device: "of the kernels".into(), detail }
}
