//! A device that computes nothing, knows what it holds, and has faults at known calls: now and then it lacks memory, and
//! now and then it is lost, until it is opened again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use photofinish_kernels::gpu::{Buffer, Gpu, GpuError, Program, Resident, padded_bytes};
use photofinish_kernels::image::frame::Size;

/// What a call writes for a frame.
pub const CANVAS: Size = Size { width: 64, height: 64 };
const CANVAS_BYTES: u64 = 3 * 64 * 64 * 4;

/// When the device fails.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Of so many calls one lacks memory.
    pub calls_per_lack: u64,
    /// Of so many frames one is in a call in which the device is lost.
    pub frames_per_loss: u64,
}

/// What is known of all devices that were opened.
#[derive(Debug)]
pub struct Counts {
    faults: Faults,
    opened: AtomicU64,
    open: AtomicU64,
    live_bytes: AtomicU64,
    calls: AtomicU64,
    frames: AtomicU64,
    most_frames: AtomicU64,
    lacks: AtomicU64,
    lacks_of_batches: AtomicU64,
    losses: AtomicU64,
}

/// The counts at a moment.
#[derive(Clone, Copy, Debug)]
pub struct CountsNow {
    /// Devices that were opened, and those that are open.
    pub opened: u64,
    /// Of them, those that are not freed.
    pub open: u64,
    /// Bytes on all of them that are not freed.
    pub live_bytes: u64,
    /// Calls, those that failed too.
    pub calls: u64,
    /// Frames of all calls.
    pub frames: u64,
    /// Most frames of a call.
    pub most_frames: u64,
    /// Calls that lacked memory.
    pub lacks: u64,
    /// Of them, those that were halved.
    pub lacks_of_batches: u64,
    /// How often a device was lost.
    pub losses: u64,
}

/// An open device.
pub struct CountingGpu {
    counts: Arc<Counts>,
    is_lost: AtomicBool,
}

/// Bytes on a device until this is dropped.
struct Held {
    bytes: u64,
    counts: Arc<Counts>,
}

impl Counts {
    /// Of a device with these faults that was never opened.
    pub fn new(faults: Faults) -> Arc<Self> {
        Arc::new(Self {
            faults,
            opened: AtomicU64::default(),
            open: AtomicU64::default(),
            live_bytes: AtomicU64::default(),
            calls: AtomicU64::default(),
            frames: AtomicU64::default(),
            most_frames: AtomicU64::default(),
            lacks: AtomicU64::default(),
            lacks_of_batches: AtomicU64::default(),
            losses: AtomicU64::default(),
        })
    }

    /// Reads all counts.
    pub fn read(&self) -> CountsNow {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        CountsNow {
            opened: read(&self.opened),
            open: read(&self.open),
            live_bytes: read(&self.live_bytes),
            calls: read(&self.calls),
            frames: read(&self.frames),
            most_frames: read(&self.most_frames),
            lacks: read(&self.lacks),
            lacks_of_batches: read(&self.lacks_of_batches),
            losses: read(&self.losses),
        }
    }
}

impl CountingGpu {
    /// Opens the device, which is then whole again.
    pub fn open(counts: &Arc<Counts>) -> Arc<dyn Gpu> {
        counts.opened.fetch_add(1, Ordering::SeqCst);
        counts.open.fetch_add(1, Ordering::SeqCst);
        Arc::new(Self { counts: Arc::clone(counts), is_lost: AtomicBool::default() })
    }

    fn hold(&self, bytes: usize) -> Held {
        let bytes = bytes as u64;
        self.counts.live_bytes.fetch_add(bytes, Ordering::SeqCst);
        Held { bytes, counts: Arc::clone(&self.counts) }
    }

    fn check_present(&self) -> Result<(), GpuError> {
        match self.is_lost.load(Ordering::SeqCst) {
            true => Err(GpuError::Lost("it is gone".into())),
            false => Ok(()),
        }
    }

    /// Does nothing, or what is wrong with this call.
    fn fail(&self, frames: u64) -> Result<(), GpuError> {
        self.check_present()?;
        let counts = &self.counts;
        let call = counts.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let before = counts.frames.fetch_add(frames, Ordering::SeqCst);
        counts.most_frames.fetch_max(frames, Ordering::SeqCst);
        let losses = |frames: u64| frames / counts.faults.frames_per_loss;
        if losses(before) < losses(before + frames) {
            counts.losses.fetch_add(1, Ordering::SeqCst);
            self.is_lost.store(true, Ordering::SeqCst);
            return Err(GpuError::Lost("it fell off the bus".into()));
        }
        if call.is_multiple_of(counts.faults.calls_per_lack) {
            counts.lacks.fetch_add(1, Ordering::SeqCst);
            counts.lacks_of_batches.fetch_add(u64::from(frames > 1), Ordering::SeqCst);
            return Err(GpuError::OutOfMemory("none left".into()));
        }
        Ok(())
    }
}

impl Gpu for CountingGpu {
    fn name(&self) -> String {
        "a device that counts".into()
    }

    fn max_buffer_bytes(&self) -> usize {
        1 << 30
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        self.check_present()?;
        let memory = Arc::new(self.hold(padded_bytes(bytes.len())));
        Ok(Resident { bytes: bytes.len(), memory })
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        let output = |buffer: &Buffer<'_>| match buffer {
            Buffer::Output(bytes) => Some(*bytes),
            _ => None,
        };
        let sizes: Vec<usize> = program.buffers.iter().filter_map(output).collect();
        // What is resident is held by whoever uploaded it.
        let is_own = |buffer: &&Buffer<'_>| !matches!(buffer, Buffer::Resident(_));
        let bytes = program.buffers.iter().filter(is_own).map(Buffer::device_bytes).sum();
        let _held = self.hold(bytes);
        self.fail(sizes.iter().sum::<usize>() as u64 / CANVAS_BYTES)?;
        Ok(sizes.into_iter().map(|bytes| vec![0; bytes]).collect())
    }
}

impl fmt::Debug for CountingGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Drop for CountingGpu {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.counts.live_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(gpu: &Arc<dyn Gpu>, frames: usize) -> Result<(), GpuError> {
        let mut program = Program::default();
        program.output(frames * CANVAS_BYTES as usize);
        gpu.run(&program).map(drop)
    }

    #[test]
    fn what_is_held_is_counted_until_it_is_freed() {
        let counts = Counts::new(Faults { calls_per_lack: 100, frames_per_loss: 100 });
        let gpu = CountingGpu::open(&counts);
        let resident = gpu.upload(&[1; 100]).unwrap();
        call(&gpu, 3).unwrap();
        assert_eq!((counts.read().live_bytes, counts.read().frames), (100, 3));
        drop(gpu);
        assert_eq!((counts.read().open, counts.read().live_bytes), (0, 100));
        drop(resident);
        assert_eq!(counts.read().live_bytes, 0);
    }

    #[test]
    fn it_lacks_memory_and_is_lost_at_known_calls() {
        let counts = Counts::new(Faults { calls_per_lack: 2, frames_per_loss: 10 });
        let gpu = CountingGpu::open(&counts);
        assert_eq!(call(&gpu, 4), Ok(()));
        assert!(matches!(call(&gpu, 4), Err(GpuError::OutOfMemory(_))));
        assert!(matches!(call(&gpu, 4), Err(GpuError::Lost(_))), "the tenth frame");
        assert!(matches!(gpu.upload(&[1]), Err(GpuError::Lost(_))), "until it is opened again");
        assert_eq!(call(&CountingGpu::open(&counts), 1), Err(GpuError::OutOfMemory("none left".into())));
        let CountsNow { lacks, lacks_of_batches, losses, most_frames, .. } = counts.read();
        assert_eq!((lacks, lacks_of_batches, losses, most_frames), (2, 1, 1, 4));
    }
}
