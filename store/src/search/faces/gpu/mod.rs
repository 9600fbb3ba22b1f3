//! Which albums are on the GPU, and the passes over them there.
//!
//! An album is copied when it is searched for the second time within a minute, and stays until its memory is wanted for
//! another one. Copies belong to the rows that they are of, and go with each change of them and with the album
//! ([`photofinish_kernels::quantised`]): this decides only when there are any. Whatever fails, the processor answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::{Gpu, GpuError};
use photofinish_kernels::quantised::DeviceCopy;

use super::matrix::FaceMatrix;
use super::matrix::pass::GpuPass;
use crate::metric_names;

/// Returns the GPU of this process once it is open.
pub(crate) type FindGpu = dyn Fn() -> Option<Arc<dyn Gpu>> + Send + Sync;

/// Two passes within this time make an album hot. It is not evicted as long after its last one: where more albums are hot
/// than fit, each pass would else copy its album in the place of one that is copied again a moment later.
const HOT_TIME: Duration = Duration::from_mins(1);

/// How long a device that has failed is left alone.
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// An album of fewer faces is searched on the processor, in at most a millisecond on one core (`cargo xtask bench
/// search`), which is what the copies and waits of a device may take. Derived, not measured on a GPU. Few in tests.
const MIN_FACES: usize = if cfg!(test) { 64 } else { 65_536 };

/// The GPU of a process and the albums on it.
pub(crate) struct GpuAlbums {
    find_gpu: Box<FindGpu>,
    limit_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    gpu: Opened,
    /// It has failed and is left alone until then.
    retry_at: Option<Instant>,
    /// Those that were copied since they were loaded.
    albums: Vec<Weak<GpuAlbum>>,
}

#[derive(Default)]
enum Opened {
    #[default]
    NotYet,
    Open(Arc<dyn Gpu>),
    /// For good: what was on it is gone, and its memory may belong to a context that is.
    Lost,
}

/// What is known of one album since it was loaded.
#[derive(Default)]
pub(crate) struct GpuAlbum {
    last_pass: Mutex<Option<Instant>>,
    copies: Mutex<Vec<DeviceCopy>>,
    /// Bytes that its copies may take; 0 when it was evicted.
    reserved_bytes: AtomicUsize,
}

impl GpuAlbum {
    /// Notes a pass; returns whether another one was shortly before.
    fn note_pass(&self, now: Instant) -> bool {
        let before = lock(&self.last_pass).replace(now);
        before.is_some_and(|before| now.saturating_duration_since(before) < HOT_TIME)
    }

    fn last_pass(&self) -> Option<Instant> {
        *lock(&self.last_pass)
    }

    fn is_hot(&self, now: Instant) -> bool {
        self.last_pass().is_some_and(|last| now.saturating_duration_since(last) < HOT_TIME)
    }

    fn bytes(&self) -> usize {
        lock(&self.copies).iter().map(DeviceCopy::bytes).sum()
    }

    fn evict(&self) {
        // The places stay known: a pass that is under way may fill them again.
        lock(&self.copies).iter().for_each(DeviceCopy::clear);
        self.reserved_bytes.store(0, Ordering::Relaxed);
    }
}

impl GpuAlbums {
    /// Creates an empty set for at most `limit_bytes` on the GPU that `find_gpu` returns.
    pub(crate) fn new(find_gpu: Box<FindGpu>, limit_bytes: usize) -> Self {
        Self { find_gpu, limit_bytes, state: Mutex::default() }
    }

    /// Returns the part of the GPU in a pass over an album now; `None` where the processor makes it alone.
    pub(super) fn begin_pass(
        &self,
        album: &Arc<GpuAlbum>,
        matrix: &FaceMatrix,
        now: Instant,
    ) -> Option<GpuPass> {
        if matrix.len() < MIN_FACES || !album.note_pass(now) {
            return None;
        }
        // Not under the lock, for which others wait: the device may keep whoever asks for it waiting.
        let found = if self.is_sought() { (self.find_gpu)() } else { None };
        let mut state = lock(&self.state);
        let gpu = state.open(found).filter(|_| state.is_usable(now))?;
        let bytes = matrix.device_bytes();
        state.make_room(self.limit_bytes, album, bytes, now)?;
        album.reserved_bytes.store(bytes, Ordering::Relaxed);
        *lock(&album.copies) = matrix.device_copies();
        Some(GpuPass::new(Device::Gpu(gpu)))
    }

    /// Whether the device was not open yet when it was last asked for.
    fn is_sought(&self) -> bool {
        matches!(lock(&self.state).gpu, Opened::NotYet)
    }

    /// Ends a pass; after a failure of the device, which the processor has made up for, what was on it is given up. The
    /// networks that lack memory are such a failure too.
    pub(super) fn end_pass(&self, pass: GpuPass, now: Instant) {
        let failure = pass.into_failure();
        let outcome = if failure.is_some() { "failed" } else { "done" };
        metrics::counter!(metric_names::FACE_DEVICE_PASSES, "outcome" => outcome).increment(1);
        let mut state = lock(&self.state);
        if failure.is_some() || !state.is_usable(now) {
            // Passes that were under way when another one failed may have copied rows since.
            state.evict_all();
        }
        if let Some(error) = failure {
            if matches!(error, GpuError::Lost(_)) {
                tracing::warn!(%error, "searching faces on the CPU from now on");
                state.gpu = Opened::Lost;
            } else {
                let seconds = RETRY_DELAY.as_secs();
                tracing::warn!(%error, "searching faces on the CPU, retrying on the GPU in {seconds} s");
                state.retry_at = Some(now + RETRY_DELAY);
            }
        }
        drop(state);
        self.record_metrics();
    }

    /// Records how much is on the device.
    pub(super) fn record_metrics(&self) {
        metrics::gauge!(metric_names::FACE_DEVICE_BYTES).set(self.bytes() as f64);
    }

    /// Returns the bytes on the device.
    fn bytes(&self) -> usize {
        lock(&self.state).list_albums().iter().map(|album| album.bytes()).sum()
    }
}

impl State {
    /// Whether the device may be called: it is not lost, and has not failed a moment ago.
    fn is_usable(&self, now: Instant) -> bool {
        !matches!(self.gpu, Opened::Lost) && self.retry_at.is_none_or(|retry_at| now >= retry_at)
    }

    /// Returns the device, which is the one that was found first; `None` before one is found, and once it is lost.
    fn open(&mut self, found: Option<Arc<dyn Gpu>>) -> Option<Arc<dyn Gpu>> {
        if matches!(self.gpu, Opened::NotYet)
            && let Some(gpu) = found
        {
            tracing::info!(gpu = gpu.name(), "searching faces of hot albums on the GPU");
            self.gpu = Opened::Open(gpu);
        }
        match &self.gpu {
            Opened::Open(gpu) => Some(Arc::clone(gpu)),
            Opened::NotYet | Opened::Lost => None,
        }
    }

    /// Returns the albums that still exist.
    fn list_albums(&mut self) -> Vec<Arc<GpuAlbum>> {
        self.albums.retain(|album| album.strong_count() > 0);
        self.albums.iter().filter_map(Weak::upgrade).collect()
    }

    /// Evicts others, the least recently used first, until the album fits; `None` where only hot ones are left.
    fn make_room(
        &mut self,
        limit_bytes: usize,
        album: &Arc<GpuAlbum>,
        bytes: usize,
        now: Instant,
    ) -> Option<()> {
        let mut others = self.list_albums();
        if !others.iter().any(|other| Arc::ptr_eq(other, album)) {
            self.albums.push(Arc::downgrade(album));
        }
        others.retain(|other| !Arc::ptr_eq(other, album));
        let reserved = |other: &Arc<GpuAlbum>| other.reserved_bytes.load(Ordering::Relaxed);
        let mut free = limit_bytes.saturating_sub(others.iter().map(reserved).sum());
        if free < bytes {
            others.retain(|other| !other.is_hot(now));
            others.sort_by_key(|other| other.last_pass());
            // None leaves in vain.
            if free + others.iter().map(reserved).sum::<usize>() < bytes {
                album.evict();
                return None;
            }
            for other in others {
                if free >= bytes {
                    break;
                }
                free += reserved(&other);
                other.evict();
            }
        }
        Some(())
    }

    fn evict_all(&mut self) {
        self.list_albums().iter().for_each(|album| album.evict());
    }
}

/// Locks a value, also after a panic of another holder: each change is complete in itself.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests;
