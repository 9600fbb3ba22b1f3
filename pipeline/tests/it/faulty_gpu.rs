//! A device with a fault, and what is known of its calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::Receiver;
use photofinish_kernels::gpu::{Buffer, Gpu, GpuError, Program, Resident};
use photofinish_kernels::image::frame::Size;

/// What the network under test takes of a frame.
pub const CANVAS: Size = Size { width: 64, height: 64 };
const CANVAS_BYTES: usize = 3 * 64 * 64 * 4;

/// What goes wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This call fails, counted from 1.
    Call(usize),
    /// There is memory for so many frames.
    Memory(usize),
    /// From this call on the device is gone, until it is opened again.
    Disappears(usize),
    /// From this call on the device is gone, however often it is opened.
    IsGone(usize),
    /// This call finds no answer before the device is given up.
    Hangs(usize),
    /// This call never returns.
    NeverReturns(usize),
    /// None.
    Nothing,
}

/// What is known of all devices that were opened.
#[derive(Debug)]
pub struct Log {
    pub fault: Fault,
    /// How long the first call takes: photos wait for it then, and batches form.
    pub patience: Duration,
    pub opened: AtomicUsize,
    pub calls: AtomicUsize,
    /// The most frames of a call that was done, and of one that was refused.
    pub most_done: AtomicUsize,
    pub most_refused: AtomicUsize,
    /// The frames of all calls that were done.
    pub done: AtomicUsize,
    /// Calls wait until its sender is dropped.
    pub gate: Option<Receiver<()>>,
}

/// A device that writes zeros, until its fault.
pub struct FaultyGpu {
    log: Arc<Log>,
    is_lost: AtomicBool,
}

impl Log {
    pub fn new(fault: Fault, patience: Duration) -> Arc<Self> {
        Arc::new(Self::with_gate(fault, patience, None))
    }

    /// Of a device without a fault, whose calls wait until the sender of the gate is dropped.
    pub fn gated(gate: Receiver<()>) -> Arc<Self> {
        Arc::new(Self::with_gate(Fault::Nothing, Duration::ZERO, Some(gate)))
    }

    fn with_gate(fault: Fault, patience: Duration, gate: Option<Receiver<()>>) -> Self {
        Self {
            fault,
            patience,
            opened: AtomicUsize::default(),
            calls: AtomicUsize::default(),
            most_done: AtomicUsize::default(),
            most_refused: AtomicUsize::default(),
            done: AtomicUsize::default(),
            gate,
        }
    }
}

impl fmt::Debug for FaultyGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a device with a fault")
    }
}

impl FaultyGpu {
    /// Opens the device, which is then whole again.
    pub fn open(log: &Arc<Log>) -> Arc<dyn Gpu> {
        log.opened.fetch_add(1, Ordering::SeqCst);
        Arc::new(Self { log: Arc::clone(log), is_lost: AtomicBool::default() })
    }

    fn lose(&self) -> GpuError {
        self.is_lost.store(true, Ordering::SeqCst);
        GpuError::Lost("it fell off the bus".into())
    }

    /// Does nothing, or what the fault does at this call.
    fn fail(&self, call: usize, frames: usize) -> Result<(), GpuError> {
        let is_first = self.log.opened.load(Ordering::SeqCst) == 1;
        if call == 1 && is_first {
            thread::sleep(self.log.patience);
        }
        match self.log.fault {
            _ if self.is_lost.load(Ordering::SeqCst) => Err(self.lose()),
            Fault::Call(bad) if call == bad => Err(GpuError::Failed("a kernel was rejected".into())),
            Fault::Memory(most) if frames > most => Err(GpuError::OutOfMemory("none left".into())),
            Fault::Disappears(last) if is_first && call >= last => Err(self.lose()),
            Fault::IsGone(last) if call >= last => Err(self.lose()),
            Fault::Hangs(bad) if is_first && call == bad => {
                thread::sleep(Duration::from_millis(500));
                Err(self.lose())
            }
            Fault::NeverReturns(bad) if call == bad => loop {
                thread::park();
            },
            _ => Ok(()),
        }
    }
}

impl Gpu for FaultyGpu {
    fn name(&self) -> String {
        "a device with a fault".into()
    }

    fn max_buffer_bytes(&self) -> usize {
        1 << 30
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        Ok(Resident { bytes: bytes.len(), memory: Arc::new(()) })
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        let sizes = program.buffers.iter().filter_map(|buffer| match buffer {
            Buffer::Output(bytes) => Some(*bytes),
            _ => None,
        });
        let outputs: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
        let frames = outputs.iter().map(Vec::len).sum::<usize>() / CANVAS_BYTES;
        let call = self.log.calls.fetch_add(1, Ordering::SeqCst) + 1;
        // Nothing is ever sent.
        let _opened = self.log.gate.as_ref().map(Receiver::recv);
        let result = self.fail(call, frames);
        if result.is_ok() {
            self.log.done.fetch_add(frames, Ordering::SeqCst);
        }
        let most = if result.is_ok() { &self.log.most_done } else { &self.log.most_refused };
        most.fetch_max(frames, Ordering::SeqCst);
        result.map(|()| outputs)
    }
}
