//! Passes selfies to a worker, one after the other, and replaces a worker that hangs. Never calls native code, so it
//! always responds. A thread that hangs cannot be ended: at most [`MAX_HANGING`] of them are left behind.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use photofinish_store::model::cost::CostMeter;
use tokio::sync::oneshot;
use tracing::Span;

use super::error::ProbeServiceError;
use super::extractor::ProbeFace;
use super::turns::Turn;
use super::worker::{ProbeWorker, SelfieJob, WorkerContext};
use crate::engine::cpu_shares::ReservedCores;
use crate::engine::sync::lock;

/// With so many threads that hang, no other is started until one of them ends: each keeps its models in memory and
/// perhaps a core busy.
const MAX_HANGING: usize = 4;

/// The pause before a worker is started, or its models are loaded, again.
const RETRY_DELAY: Duration = Duration::from_secs(2);

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

/// A selfie whose turn has come.
pub(super) struct ProbeRequest {
    pub(super) selfie: Bytes,
    pub(super) reply: oneshot::Sender<Result<ProbeFace, ProbeServiceError>>,
    /// The span of the caller's request.
    pub(super) span: Span,
    /// When the caller began to wait for a turn.
    pub(super) asked_at: Instant,
    /// What examining it costs is added here.
    pub(super) spent: Arc<CostMeter>,
    /// Given back when the selfie was examined, also when its caller has gone.
    pub(super) turn: Turn,
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

    fn record(&self, took: Duration) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store((before.saturating_mul(3).saturating_add(to_micros(took))) / 4, Ordering::Relaxed);
    }
}

fn to_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The thread beside the worker.
pub(super) struct ProbeSupervisor {
    requests: Receiver<ProbeRequest>,
    context: WorkerContext,
    /// How long one selfie may take.
    time_limit: Duration,
    rate: Arc<ServiceRate>,
    status: Arc<Mutex<ProbeStatus>>,
    /// Of which each selfie takes one from the photos.
    cores: ReservedCores,
    /// The worker whose models are loaded, or that can be told to load them.
    worker: Option<ProbeWorker>,
    hanging: Vec<JoinHandle<()>>,
    workers_started: usize,
    restored_at: Instant,
}

impl ProbeSupervisor {
    pub(super) fn new(
        requests: Receiver<ProbeRequest>,
        context: WorkerContext,
        time_limit: Duration,
        rate: Arc<ServiceRate>,
        status: Arc<Mutex<ProbeStatus>>,
        cores: ReservedCores,
    ) -> Self {
        Self {
            requests,
            context,
            time_limit,
            rate,
            status,
            cores,
            worker: None,
            hanging: Vec::new(),
            workers_started: 0,
            restored_at: Instant::now(),
        }
    }

    /// Serves requests until all senders are dropped.
    pub(super) fn run(mut self) {
        let mut is_working = self.restore();
        loop {
            if !is_working && self.restored_at.elapsed() >= RETRY_DELAY {
                is_working = self.restore();
            }
            let next = if is_working {
                self.requests.recv().map_err(RecvTimeoutError::from)
            } else {
                self.requests.recv_timeout(RETRY_DELAY)
            };
            match next {
                Ok(request) if is_working => is_working = self.serve(request) || self.restore(),
                // Its caller may have gone.
                Ok(request) => drop(request.reply.send(Err(ProbeServiceError::Unavailable))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.join_worker();
    }

    /// Has a selfie examined and replies. Returns whether the next one can be examined without [`Self::restore`].
    fn serve(&mut self, request: ProbeRequest) -> bool {
        let ProbeRequest { selfie, reply, span, asked_at, spent, turn } = request;
        let Some(worker) = &self.worker else { return false };
        // Nobody would read the reply, and others are waiting.
        if reply.is_closed() {
            return true;
        }
        let started_at = Instant::now();
        let core = self.cores.reserve();
        worker.extract(SelfieJob { selfie, span, waited: asked_at.elapsed(), spent });
        let (result, is_working) = match worker.extracted.recv_timeout(self.time_limit) {
            Ok(extraction) => (extraction.result, !extraction.must_reload),
            Err(RecvTimeoutError::Timeout) => {
                self.abandon_worker();
                (Err(ProbeServiceError::TimedOut), false)
            }
            Err(RecvTimeoutError::Disconnected) => {
                tracing::error!("probe thread panicked, starting another one");
                self.worker = None;
                (Err(ProbeServiceError::Unavailable), false)
            }
        };
        drop(core);
        self.rate.record(started_at.elapsed());
        drop(turn);
        // The caller may have given up meanwhile.
        drop(reply.send(result));
        is_working
    }

    /// Starts a worker where there is none and has it load its models. Returns whether selfies can be examined.
    fn restore(&mut self) -> bool {
        self.hanging.retain(|thread| !thread.is_finished());
        let restored = self.start_worker().and_then(|()| self.load_models());
        self.restored_at = Instant::now();
        let is_working = restored.is_ok();
        *lock(&self.status) = match restored {
            Ok(()) => ProbeStatus::Running,
            Err(reason) => ProbeStatus::Down(reason),
        };
        is_working
    }

    fn start_worker(&mut self) -> Result<(), String> {
        if self.worker.is_some() {
            return Ok(());
        }
        if self.hanging.len() >= MAX_HANGING {
            return Err(format!("{} threads hang while they examine a selfie", self.hanging.len()));
        }
        let worker = ProbeWorker::start(self.workers_started, self.context.clone());
        self.worker = Some(worker.map_err(|error| format!("no thread: {error}"))?);
        self.workers_started += 1;
        Ok(())
    }

    /// Waits until the models are loaded, however long that takes: compiling them for a device may take minutes.
    fn load_models(&mut self) -> Result<(), String> {
        let Some(worker) = &self.worker else { return Err("no thread".into()) };
        worker.load();
        loop {
            match worker.loaded.recv_timeout(self.time_limit) {
                Ok(true) => return Ok(()),
                Ok(false) => return Err("the models cannot be loaded".into()),
                Err(RecvTimeoutError::Timeout) => {
                    *lock(&self.status) = ProbeStatus::Down("the models are still being loaded".into());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.worker = None;
                    return Err("the thread panicked".into());
                }
            }
        }
    }

    /// Leaves the worker behind: its thread ends if what it does ever returns.
    fn abandon_worker(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        self.hanging.push(worker.abandon());
        tracing::error!(
            hanging = self.hanging.len(),
            "selfie took more than {:?}, leaving its thread behind",
            self.time_limit
        );
    }

    /// Ends the worker's thread, which is idle, and leaves those that hang.
    fn join_worker(&mut self) {
        if self.worker.take().is_some_and(|worker| worker.join().is_err()) {
            tracing::error!("probe thread panicked");
        }
    }
}
