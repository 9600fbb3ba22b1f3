//! What the threads of the probe service tell those who ask: whether selfies can be examined, how long one takes, and
//! whether the device of this process is gone for good.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::engine::sync::lock;

/// The assumed time per selfie until one was measured.
const INITIAL_ESTIMATE: Duration = Duration::from_millis(200);

/// Whether selfies can be examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeStatus {
    /// The models are being loaded for the first time.
    Starting,
    /// They can.
    Running,
    /// They cannot, for this reason. The service keeps trying.
    Down(String),
}

/// The state of the service.
#[derive(Debug)]
pub(super) struct ProbeState {
    /// How long a selfie takes.
    pub(super) rate: ServiceRate,
    status: Mutex<ProbeStatus>,
    device_failure: OnceLock<String>,
}

impl Default for ProbeState {
    fn default() -> Self {
        Self {
            rate: ServiceRate::default(),
            status: Mutex::new(ProbeStatus::Starting),
            device_failure: OnceLock::new(),
        }
    }
}

impl ProbeState {
    pub(super) fn status(&self) -> ProbeStatus {
        lock(&self.status).clone()
    }

    pub(super) fn set_status(&self, status: ProbeStatus) {
        *lock(&self.status) = status;
    }

    /// Returns why this process cannot use its device any more.
    pub(super) fn device_failure(&self) -> Option<&str> {
        self.device_failure.get().map(String::as_str)
    }

    /// Says that this process cannot use its device any more, so that it ends.
    pub(super) fn give_device_up(&self, reason: String) {
        tracing::error!(reason, "selfies are not examined any more, their process has to be replaced");
        // The first reason is kept.
        let _first = self.device_failure.set(reason);
    }
}

/// How long a selfie takes: a moving average in microseconds, for the estimate of when to retry.
#[derive(Debug)]
pub(super) struct ServiceRate(AtomicU64);

impl Default for ServiceRate {
    fn default() -> Self {
        Self(AtomicU64::new(to_micros(INITIAL_ESTIMATE)))
    }
}

impl ServiceRate {
    /// Returns how long so many selfies take, in whole seconds, at least one.
    pub(super) fn estimate(&self, selfies: usize) -> Duration {
        let micros = (selfies as u64).saturating_mul(self.0.load(Ordering::Relaxed));
        Duration::from_secs(micros.div_ceil(1_000_000).max(1))
    }

    pub(super) fn record(&self, took: Duration) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store((before.saturating_mul(3).saturating_add(to_micros(took))) / 4, Ordering::Relaxed);
    }
}

fn to_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
