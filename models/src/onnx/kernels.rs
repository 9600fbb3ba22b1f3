//! The device of the kernels: opened when networks are created, and again after it was lost.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::{Gpu, GpuError, Program, Resident};

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

    /// Returns the device for other work than that of networks, while it is open. Its calls are noted as theirs are. Once it
    /// is lost, whoever noticed that, it stays lost, also when the networks have opened it again.
    pub fn lend(&self) -> Option<Arc<dyn Gpu>> {
        let slot = self.0.as_ref()?;
        let gpu = slot.lock().clone()?;
        Some(Arc::new(LentGpu { gpu, slot: Arc::clone(slot) }))
    }

    /// Forgets a device that is lost, unless another thread has opened the next one already.
    fn forget(&self, lost: &Device) {
        if let (Some(slot), Device::Gpu(lost)) = (&self.0, lost) {
            slot.forget(lost);
        }
    }
}

/// A device that networks have opened, for other work.
struct LentGpu {
    gpu: Arc<dyn Gpu>,
    slot: Arc<Slot>,
}

impl LentGpu {
    fn call<T>(&self, call: impl FnOnce(&dyn Gpu) -> Result<T, GpuError>) -> Result<T, GpuError> {
        let is_open = self.slot.lock().as_ref().is_some_and(|open| Arc::ptr_eq(open, &self.gpu));
        if !is_open {
            return Err(GpuError::Lost("the networks have lost it".into()));
        }
        let _call = self.slot.calls.begin();
        let result = call(&*self.gpu);
        if let Err(GpuError::Lost(_)) = result {
            self.slot.forget(&self.gpu);
        }
        result
    }
}

impl Gpu for LentGpu {
    fn name(&self) -> String {
        self.gpu.name()
    }

    fn max_buffer_bytes(&self) -> usize {
        self.gpu.max_buffer_bytes()
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        self.call(|gpu| gpu.upload(bytes))
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        self.call(|gpu| gpu.run(program))
    }
}

impl fmt::Debug for LentGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gpu.fmt(f)
    }
}

impl Slot {
    fn forget(&self, lost: &Arc<dyn Gpu>) {
        self.lock().take_if(|gpu| Arc::ptr_eq(gpu, lost));
    }

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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A device that is lost once it is told to.
    #[derive(Debug, Default)]
    struct FragileGpu {
        is_lost: AtomicBool,
    }

    impl Gpu for FragileGpu {
        fn name(&self) -> String {
            "fragile".into()
        }

        fn max_buffer_bytes(&self) -> usize {
            1 << 20
        }

        fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
            Ok(Resident { bytes: bytes.len(), memory: Arc::new(()) })
        }

        fn run(&self, _: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
            let is_lost = self.is_lost.load(Ordering::Relaxed);
            if is_lost { Err(GpuError::Lost("gone".into())) } else { Ok(Vec::new()) }
        }
    }

    #[test]
    fn a_lent_device_is_lost_for_its_borrower_when_the_networks_lose_it() {
        let kernels = KernelDevice::opened_by(|| Ok(Arc::new(FragileGpu::default())));
        assert!(kernels.lend().is_none(), "it is not open yet");
        kernels.open().unwrap();
        let lent = kernels.lend().unwrap();
        assert_eq!(lent.upload(&[1, 2, 3]).unwrap().bytes, 3);
        lent.run(&Program::default()).unwrap();
        assert_eq!(kernels.longest_call(), None, "each call has ended");

        let lost = kernels.run("network", |_| Err::<(), _>(GpuError::Lost("gone".into())));
        assert!(matches!(lost, Err(ModelError::Device { .. })));
        assert!(matches!(lent.run(&Program::default()), Err(GpuError::Lost(_))));
        kernels.open().unwrap();
        assert!(matches!(lent.upload(&[1]), Err(GpuError::Lost(_))), "what was on it is gone");
        kernels.lend().unwrap().run(&Program::default()).unwrap();
    }

    #[test]
    fn networks_open_a_device_again_that_its_borrower_has_lost() {
        let gpu = Arc::new(FragileGpu::default());
        let opened = Arc::clone(&gpu);
        let kernels = KernelDevice::opened_by(move || Ok(Arc::clone(&opened) as _));
        kernels.open().unwrap();
        let lent = kernels.lend().unwrap();
        gpu.is_lost.store(true, Ordering::Relaxed);
        assert!(matches!(lent.run(&Program::default()), Err(GpuError::Lost(_))));
        let closed = kernels.run("network", |_| Ok(()));
        assert!(matches!(closed, Err(ModelError::Device { .. })), "{closed:?}");
        gpu.is_lost.store(false, Ordering::Relaxed);
        kernels.open().unwrap();
        kernels.run("network", |_| Ok(())).unwrap();
    }

    #[test]
    fn a_processor_lends_no_device() {
        assert!(KernelDevice::cpu().lend().is_none());
    }
}
