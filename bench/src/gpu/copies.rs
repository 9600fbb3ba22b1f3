//! How fast the device copies, in each direction, memory that is not pinned, and what the copies of a call take of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_kernels::gpu::{Buffer, Gpu, GpuError, Program};

use crate::report::Table;

/// Calls of which the fastest counts; the first one compiles.
const CALLS: usize = 5;

/// Bytes of a copy.
const COPIED_BYTES: usize = 32 << 20;

/// What ends a call that only copies to the device: the answer says that all is there.
const ANSWER_BYTES: usize = 16;

/// What a call read and wrote.
pub struct Call {
    /// As numbers, to be compared.
    pub written: Vec<f32>,
    /// Bytes that are copied for it to the device.
    pub to_device: usize,
    /// Bytes that are copied back.
    pub from_device: usize,
}

/// Runs something several times; returns its last result and its shortest time.
///
/// # Errors
/// When the device fails.
pub fn fastest<T>(run: impl Fn() -> Result<T, GpuError>) -> anyhow::Result<(T, Duration)> {
    let mut result = (run()?, Duration::MAX);
    for _ in 0..CALLS {
        let start = Instant::now();
        let found = run()?;
        result = (found, result.1.min(start.elapsed()));
    }
    Ok(result)
}

/// Bytes per second.
pub struct CopyRates {
    to_device: f64,
    from_device: f64,
    /// To the device and back in one call, in both directions together.
    both: f64,
}

impl CopyRates {
    /// Measures them, with the time in which the device makes room for what it gets.
    ///
    /// # Errors
    /// When the device fails.
    pub fn measure(gpu: &Arc<dyn Gpu>) -> anyhow::Result<Self> {
        let bytes = vec![1_u8; COPIED_BYTES.min(gpu.max_buffer_bytes())];
        let rate = |to_device: bool, from_device: usize| {
            let copy = || {
                let mut program = Program::default();
                if to_device {
                    program.buffers.push(Buffer::Input(bytes.as_slice().into()));
                }
                program.buffers.push(Buffer::Output(from_device));
                gpu.run(&program)
            };
            let (_, time) = fastest(copy)?;
            let copied = if to_device { bytes.len() } else { 0 } + from_device;
            anyhow::Ok(copied as f64 / time.as_secs_f64())
        };
        Ok(Self {
            to_device: rate(true, ANSWER_BYTES)?,
            from_device: rate(false, bytes.len())?,
            both: rate(true, bytes.len())?,
        })
    }

    /// Seconds that the copies of a call alone take.
    pub fn time_of(&self, call: &Call) -> f64 {
        call.to_device as f64 / self.to_device + call.from_device as f64 / self.from_device
    }

    /// Formats them.
    pub fn to_table(&self) -> Table {
        let caption = format!(
            "Copies of {} MiB, of memory that is not pinned, with the time in which the device makes room",
            COPIED_BYTES >> 20
        );
        let mut table = Table::new(&caption, &["direction", "GB/s"]);
        for (direction, rate) in [
            ("to the device", self.to_device),
            ("from the device", self.from_device),
            ("there and back, together", self.both),
        ] {
            table.add_row([direction.to_owned(), format!("{:.2}", rate / 1e9)]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_take_the_time_of_both_directions() {
        let rates = CopyRates { to_device: 2e9, from_device: 1e9, both: 1.5e9 };
        let call = Call { written: Vec::new(), to_device: 4_000_000_000, from_device: 500_000_000 };
        assert_eq!(rates.time_of(&call), 2.5);
        assert_eq!(rates.to_table().rows.len(), 3);
    }
}
