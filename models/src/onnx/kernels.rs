//! The device of the kernels: opened when networks are created, and again after it was lost.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::{Buffer, Gpu, GpuError, Program, Resident, Step};

use crate::onnx::calls::{DeviceCall, DeviceCalls};
use crate::traits::ModelError;

/// A call of a device that has been running for so long never returns: four times the longest one that was seen, the first of a
/// network on software Vulkan, on a busy machine, which compiles all its shaders.
pub const DEVICE_CALL_LIMIT: Duration = Duration::from_secs(300);

/// Opens a device.
type Open = dyn Fn() -> Result<Arc<dyn Gpu>, GpuError> + Send + Sync;

/// The device that kernels run on. Cheap to clone: clones share the device.
#[derive(Clone, Default)]
pub struct KernelDevice(Option<Arc<Slot>>);

struct Slot {
    open: Box<Open>,
    /// Of kernels, and of the networks on the same device.
    calls: DeviceCalls,
    /// A call that takes longer never returns.
    call_limit: Duration,
    /// Held while the device is opened, so that one thread does that.
    opening: Mutex<()>,
    /// `None` before it is opened, and once it is lost. Locked only to look and to store: searches of faces look too.
    gpu: Mutex<Option<Arc<dyn Gpu>>>,
    /// How often the device was lost. Changed while `gpu` is locked.
    losses: AtomicU64,
    /// How often networks lacked memory.
    shortages: AtomicU64,
    /// What borrowers have in the memory of the device.
    lent: Mutex<Vec<Weak<LentMemory>>>,
}

impl KernelDevice {
    /// The processor.
    pub fn cpu() -> Self {
        Self(None)
    }

    /// A GPU, which `open` opens when networks are created.
    pub fn opened_by(open: impl Fn() -> Result<Arc<dyn Gpu>, GpuError> + Send + Sync + 'static) -> Self {
        Self::with_call_limit(DEVICE_CALL_LIMIT, Box::new(open))
    }

    fn with_call_limit(call_limit: Duration, open: Box<Open>) -> Self {
        Self(Some(Arc::new(Slot {
            open,
            calls: DeviceCalls::default(),
            call_limit,
            opening: Mutex::default(),
            gpu: Mutex::default(),
            losses: AtomicU64::default(),
            shortages: AtomicU64::default(),
            lent: Mutex::default(),
        })))
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
        let _opening = lock(&slot.opening);
        if lock(&slot.gpu).is_none() {
            let _call = slot.calls.begin();
            let gpu = (slot.open)().map_err(|error| device_error(error.to_string()))?;
            *lock(&slot.gpu) = Some(gpu);
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
                let gpu = lock(&slot.gpu).clone();
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
            GpuError::OutOfMemory(detail) => {
                if let Some(slot) = &self.0 {
                    slot.reclaim_memory();
                }
                ModelError::OutOfMemory { name: name(), detail }
            }
            other => ModelError::Inference { name: name(), detail: other.to_string() },
        })
    }

    /// How often the device was lost, of which kernels or networks told: what was made before the last time is lost too.
    pub(crate) fn losses(&self) -> u64 {
        self.0.as_ref().map_or(0, |slot| slot.losses.load(Ordering::Acquire))
    }

    /// To be called when a network has failed on the device that was made after so many `losses`. Where it lacked memory, all
    /// that borrowers have there is freed before the next attempt: they may not call the device again for hours. Where it lost
    /// the device, kernels and borrowers have lost it too, unless that is known and it may be open again.
    pub(crate) fn note_failure(&self, error: &ModelError, losses: u64) {
        match (&self.0, error) {
            (Some(slot), ModelError::OutOfMemory { .. }) => slot.reclaim_memory(),
            (Some(slot), ModelError::Device { .. }) => slot.note_loss(losses),
            _ => {}
        }
    }

    /// Returns the device for other work than that of networks, while it is open. Its calls are noted as theirs are. Once it
    /// is lost, whoever noticed that, it stays lost, also when the networks have opened it again. A device of which a call never
    /// returns counts as lost: this process may go on with others, and whoever calls it would wait as long. When networks
    /// lack memory, what the borrower has there is freed, and its next call fails with `OutOfMemory`, so that it stops
    /// taking more.
    pub fn lend(&self) -> Option<Arc<dyn Gpu>> {
        let slot = self.0.as_ref().filter(|slot| !slot.hangs())?;
        let gpu = lock(&slot.gpu).clone()?;
        let seen_shortages = AtomicU64::new(slot.shortages.load(Ordering::Acquire));
        Some(Arc::new(LentGpu { gpu, slot: Arc::clone(slot), seen_shortages }))
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
    /// The lacks of memory that its borrower knows of.
    seen_shortages: AtomicU64,
}

/// Memory of the device that a borrower has. Empty once the networks needed it.
struct LentMemory(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

impl LentGpu {
    fn call<T>(&self, call: impl FnOnce(&dyn Gpu) -> Result<T, GpuError>) -> Result<T, GpuError> {
        if self.slot.hangs() {
            return Err(GpuError::Lost("a call of it does not return".into()));
        }
        let is_open = lock(&self.slot.gpu).as_ref().is_some_and(|open| Arc::ptr_eq(open, &self.gpu));
        if !is_open {
            return Err(GpuError::Lost("the networks have lost it".into()));
        }
        let shortages = self.slot.shortages.load(Ordering::Acquire);
        if self.seen_shortages.swap(shortages, Ordering::AcqRel) != shortages {
            return Err(needed_by_networks());
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
        let resident = self.call(|gpu| gpu.upload(bytes))?;
        let memory = Arc::new(LentMemory(Mutex::new(Some(resident.memory))));
        self.slot.note_lent(&memory);
        Ok(Resident { bytes: resident.bytes, memory })
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        self.call(|gpu| gpu.run(&with_own_memory(program)?))
    }
}

impl fmt::Debug for LentGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gpu.fmt(f)
    }
}

impl Slot {
    /// Whether a call never returns.
    fn hangs(&self) -> bool {
        self.calls.longest().is_some_and(|time| time >= self.call_limit)
    }

    fn forget(&self, lost: &Arc<dyn Gpu>) {
        let mut gpu = lock(&self.gpu);
        let forgotten = gpu.take_if(|open| Arc::ptr_eq(open, lost));
        if forgotten.is_some() {
            self.losses.fetch_add(1, Ordering::AcqRel);
        }
        // Closing it may take long: nothing may wait for the lock meanwhile.
        drop(gpu);
        drop(forgotten);
    }

    fn note_loss(&self, known: u64) {
        let mut gpu = lock(&self.gpu);
        if self.losses.load(Ordering::Acquire) == known {
            self.losses.fetch_add(1, Ordering::AcqRel);
            let forgotten = gpu.take();
            // As above.
            drop(gpu);
            drop(forgotten);
        }
    }

    fn note_lent(&self, memory: &Arc<LentMemory>) {
        let mut lent = lock(&self.lent);
        lent.retain(|memory| memory.strong_count() > 0);
        lent.push(Arc::downgrade(memory));
    }

    /// Frees all that borrowers have on the device, as soon as the programs that use it have ended.
    fn reclaim_memory(&self) {
        // First: what is lent from now on is told of it at the next call.
        self.shortages.fetch_add(1, Ordering::AcqRel);
        let lent = std::mem::take(&mut *lock(&self.lent));
        for memory in lent.iter().filter_map(Weak::upgrade) {
            let taken = lock(&memory.0).take();
            drop(taken);
        }
    }
}

/// Returns a program with the device's own memory in the place of what is lent of it.
fn with_own_memory<'p>(program: &'p Program<'_>) -> Result<Program<'p>, GpuError> {
    let copy =
        |step: &Step| Step { kernel: step.kernel, bindings: step.bindings.clone(), groups: step.groups };
    Ok(Program {
        buffers: program.buffers.iter().map(to_own_memory).collect::<Result<_, _>>()?,
        steps: program.steps.iter().map(copy).collect(),
    })
}

fn to_own_memory<'b>(buffer: &'b Buffer<'_>) -> Result<Buffer<'b>, GpuError> {
    Ok(match buffer {
        Buffer::Input(bytes) => Buffer::Input(Cow::Borrowed(bytes.as_ref())),
        Buffer::Scratch(bytes) => Buffer::Scratch(*bytes),
        Buffer::Output(bytes) => Buffer::Output(*bytes),
        Buffer::Resident(resident) => {
            let memory = match resident.memory.downcast_ref::<LentMemory>() {
                Some(lent) => lock(&lent.0).clone().ok_or_else(needed_by_networks)?,
                None => Arc::clone(&resident.memory),
            };
            Buffer::Resident(Resident { bytes: resident.bytes, memory })
        }
    })
}

fn needed_by_networks() -> GpuError {
    GpuError::OutOfMemory("the networks lacked some".into())
}

/// Locks a value, also after a panic of another holder: each change is complete in itself.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
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
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use super::*;

    /// A device that is lost once it is told to, and knows what is in its memory.
    #[derive(Debug, Default)]
    struct FragileGpu {
        is_lost: AtomicBool,
        uploads: Mutex<Vec<Weak<u8>>>,
    }

    impl FragileGpu {
        fn count_uploads(&self) -> usize {
            self.uploads.lock().unwrap().iter().filter(|memory| memory.strong_count() > 0).count()
        }
    }

    impl Gpu for FragileGpu {
        fn name(&self) -> String {
            "fragile".into()
        }

        fn max_buffer_bytes(&self) -> usize {
            1 << 20
        }

        fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
            let memory = Arc::new(0_u8);
            self.uploads.lock().unwrap().push(Arc::downgrade(&memory));
            Ok(Resident { bytes: bytes.len(), memory })
        }

        fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
            for buffer in &program.buffers {
                if let Buffer::Resident(resident) = buffer {
                    assert!(resident.memory.is::<u8>(), "memory of another device");
                }
            }
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
    fn what_a_session_loses_kernels_and_borrowers_lose_too_and_late_news_take_no_device() {
        let kernels = KernelDevice::opened_by(|| Ok(Arc::new(FragileGpu::default())));
        kernels.open().unwrap();
        let lent = kernels.lend().unwrap();
        let lost = ModelError::Device { device: "cuda".into(), detail: "CUDA failure 700".into() };
        kernels.note_failure(&lost, 0);
        assert_eq!(kernels.losses(), 1);
        assert!(matches!(lent.run(&Program::default()), Err(GpuError::Lost(_))));
        assert!(
            matches!(kernels.run("network", |_| Ok(())), Err(ModelError::Device { .. })),
            "until it is opened"
        );
        kernels.open().unwrap();
        // Another session of the first device.
        kernels.note_failure(&lost, 0);
        assert_eq!(kernels.losses(), 1);
        kernels.run("network", |_| Ok(())).unwrap();
        kernels.run("network", |_| Err::<(), _>(GpuError::Lost("gone".into()))).unwrap_err();
        assert_eq!(kernels.losses(), 2, "of kernels too");
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
    fn a_device_of_which_a_call_never_returns_is_lost_for_its_borrower() {
        let open: Box<Open> = Box::new(|| Ok(Arc::new(FragileGpu::default())));
        let kernels = KernelDevice::with_call_limit(Duration::ZERO, open);
        kernels.open().unwrap();
        let lent = kernels.lend().unwrap();
        lent.run(&Program::default()).unwrap();
        let call = kernels.begin_call();
        assert!(matches!(lent.run(&Program::default()), Err(GpuError::Lost(_))));
        assert!(kernels.lend().is_none());
        drop(call);
        kernels.lend().unwrap().run(&Program::default()).unwrap();
    }

    #[test]
    fn a_device_that_is_being_opened_keeps_no_borrower_waiting() {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let kernels = KernelDevice::opened_by(move || {
            // Ends although nothing comes, where the test has failed.
            let _released = released.lock().unwrap().recv_timeout(Duration::from_secs(20));
            Ok(Arc::new(FragileGpu::default()))
        });
        release.send(()).unwrap();
        kernels.open().unwrap();
        let lent = kernels.lend().unwrap();
        kernels.run("network", |_| Err::<(), _>(GpuError::Lost("gone".into()))).unwrap_err();
        std::thread::scope(|scope| {
            scope.spawn(|| kernels.open().unwrap());
            while kernels.longest_call().is_none() {
                std::thread::yield_now();
            }
            assert!(matches!(lent.run(&Program::default()), Err(GpuError::Lost(_))));
            assert!(kernels.lend().is_none());
            assert!(kernels.longest_call().is_some(), "it is still being opened");
            release.send(()).unwrap();
        });
        kernels.lend().unwrap().run(&Program::default()).unwrap();
    }

    #[test]
    fn what_a_borrower_has_on_the_device_gives_way_when_networks_lack_memory() {
        let gpu = Arc::new(FragileGpu::default());
        let opened = Arc::clone(&gpu);
        let kernels = KernelDevice::opened_by(move || Ok(Arc::clone(&opened) as _));
        kernels.open().unwrap();
        let lent = kernels.lend().unwrap();
        let upload = || {
            let mut program = Program::default();
            program.input(b"input".as_slice());
            program.add(Buffer::Resident(lent.upload(&[1, 2, 3])?));
            Ok::<_, GpuError>(program)
        };
        let program = upload().unwrap();
        lent.run(&program).unwrap();
        let fail = |error| kernels.run("network", |_| Err::<(), _>(error)).unwrap_err();
        fail(GpuError::Failed("a kernel was rejected".into()));
        lent.run(&program).unwrap();
        assert_eq!(gpu.count_uploads(), 1);

        let error = fail(GpuError::OutOfMemory("none left".into()));
        assert!(matches!(error, ModelError::OutOfMemory { .. }), "{error}");
        assert_eq!(gpu.count_uploads(), 0, "at once, without a call of the borrower");
        assert!(matches!(upload(), Err(GpuError::OutOfMemory(_))), "it is told once");
        assert!(matches!(lent.run(&program), Err(GpuError::OutOfMemory(_))), "its memory is gone");
        let again = upload().unwrap();
        lent.run(&again).unwrap();
        drop(again);
        assert_eq!(gpu.count_uploads(), 0, "what a borrower frees is free");

        // As a session does, whose errors are not those of kernels.
        let kept = upload().unwrap();
        kernels.note_failure(&error, kernels.losses());
        assert_eq!(gpu.count_uploads(), 0);
        assert!(lent.run(&kept).is_err());
    }

    #[test]
    fn a_processor_lends_no_device() {
        assert!(KernelDevice::cpu().lend().is_none());
    }
}
