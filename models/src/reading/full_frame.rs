//! The text detector for full frames, which all readers of a process share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::Quad;
use photofinish_kernels::image::frame::Frame;

use super::postprocess::POSTPROCESS;
use super::text_detector::TextDetector;
use crate::bucket::Bucket;
use crate::onnx::kernels::DEVICE_CALL_LIMIT;
use crate::onnx::session::Network;
use crate::traits::{Interrupt, ModelError};

/// Long side, in pixels, of a full frame that is read because no bib was accepted (step 15).
const FULL_FRAME_LONG_SIDE: u32 = 960;

/// How long a call waits until it looks again whether the one before it has ended.
const POLL: Duration = Duration::from_millis(1);

/// A text detector for full frames that all readers share, because it is rarely used and takes much memory. Cheap to
/// clone; one call runs at a time.
#[derive(Clone)]
pub struct SharedTextDetector(Arc<Shared<TextDetector>>);

impl SharedTextDetector {
    /// Wraps a loaded network, with as many frames per call as the bucket says.
    pub fn new(device: &Device, network: Network, bucket: Bucket) -> Self {
        let detector = TextDetector::new(device, network, &POSTPROCESS, bucket);
        Self(Arc::new(Shared::new(detector, DEVICE_CALL_LIMIT)))
    }

    /// Whether calls may still succeed: none has lost its device, and none hangs. If not, the detector is to be replaced.
    pub fn is_usable(&self) -> bool {
        self.0.is_usable()
    }

    pub(super) fn detect_full_frames(
        &self,
        frames: &[Frame<'_>],
        interrupt: &Interrupt,
    ) -> Result<Vec<Vec<Quad>>, ModelError> {
        self.0
            .call(interrupt, |detector| detector.detect_full_frames(frames, FULL_FRAME_LONG_SIDE, interrupt))
    }
}

/// What one call uses at a time.
struct Shared<T> {
    value: Mutex<T>,
    /// When the running call began.
    call_began: Mutex<Option<Instant>>,
    is_lost: AtomicBool,
    /// A call that takes longer hangs.
    hang_limit: Duration,
}

impl<T> Shared<T> {
    fn new(value: T, hang_limit: Duration) -> Self {
        Self {
            value: Mutex::new(value),
            call_began: Mutex::default(),
            is_lost: AtomicBool::new(false),
            hang_limit,
        }
    }

    fn is_usable(&self) -> bool {
        let hangs = lock(&self.call_began).is_some_and(|began| began.elapsed() >= self.hang_limit);
        !hangs && !self.is_lost.load(Ordering::Acquire)
    }

    /// Waits until no other call runs, then calls.
    ///
    /// # Errors
    /// `Interrupted` when the interrupt is set meanwhile, `Runtime` when the call before this one hangs, and those of `call`.
    fn call<R>(
        &self,
        interrupt: &Interrupt,
        call: impl FnOnce(&mut T) -> Result<R, ModelError>,
    ) -> Result<R, ModelError> {
        let mut value = self.wait(interrupt)?;
        let _running = RunningCall::begin(&self.call_began);
        let result = call(&mut value);
        if let Err(ModelError::Device { .. }) = &result {
            self.is_lost.store(true, Ordering::Release);
        }
        result
    }

    fn wait(&self, interrupt: &Interrupt) -> Result<MutexGuard<'_, T>, ModelError> {
        loop {
            match self.value.try_lock() {
                Ok(value) => return Ok(value),
                // Each call rewrites all buffers, so a panic in an earlier call left nothing that matters.
                Err(TryLockError::Poisoned(value)) => return Ok(value.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            interrupt.check()?;
            if !self.is_usable() {
                return Err(ModelError::Runtime("the text detector for full frames hangs".to_owned()));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Says that a call is running until it is dropped, by a panic too.
struct RunningCall<'a>(&'a Mutex<Option<Instant>>);

impl<'a> RunningCall<'a> {
    fn begin(call_began: &'a Mutex<Option<Instant>>) -> Self {
        *lock(call_began) = Some(Instant::now());
        Self(call_began)
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        *lock(self.0) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn who_waits_for_a_call_that_hangs_is_told_and_others_are_not() {
        let shared = Shared::new(0, Duration::from_millis(20));
        let (interrupt, begun, ended) = (Interrupt::default(), Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let hang = |_: &mut i32| {
                    begun.wait();
                    ended.wait();
                    Ok(())
                };
                shared.call(&Interrupt::default(), hang).unwrap();
            });
            begun.wait();
            let refused = shared.call(&interrupt, |_| Ok(())).unwrap_err();
            assert!(matches!(refused, ModelError::Runtime(_)), "{refused}");
            assert!(!shared.is_usable());
            interrupt.set();
            let interrupted = shared.call(&interrupt, |_| Ok(())).unwrap_err();
            assert!(matches!(interrupted, ModelError::Interrupted), "{interrupted}");
            ended.wait();
        });
        assert!(shared.is_usable());
        shared.call(&Interrupt::default(), |_| Ok(())).unwrap();
    }

    #[test]
    fn a_lost_device_stays_lost_and_a_call_that_fails_or_panics_leaves_others_theirs() {
        let shared = Shared::new((), LONG);
        let interrupt = Interrupt::default();
        let failure = ModelError::Inference { name: "detector".into(), detail: "a test".into() };
        shared.call(&interrupt, |()| Err::<(), _>(failure)).unwrap_err();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            shared.call(&interrupt, |()| -> Result<(), ModelError> { panic!("a test") })
        }));
        assert!(panicked.is_err() && shared.is_usable());
        shared.call(&interrupt, |()| Ok(())).unwrap();
        let lost = ModelError::Device { device: "cuda".into(), detail: "a test".into() };
        shared.call(&interrupt, |()| Err::<(), _>(lost)).unwrap_err();
        assert!(!shared.is_usable());
    }
}
