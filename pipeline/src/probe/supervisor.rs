//! Passes selfies to a worker, one after the other, and replaces a worker that hangs. Never calls native code, so it
//! always responds. A thread that hangs cannot be ended: at most [`MAX_HANGING`] of them are left behind.
//!
//! A device that this process cannot use any more is given up. Once none is left, the supervisor says so and ends.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use photofinish_store::model::cost::CostMeter;
use tokio::sync::oneshot;
use tracing::Span;

use super::devices::ProbeDevices;
use super::error::ProbeServiceError;
use super::extractor::ProbeFace;
use super::state::{ProbeState, ProbeStatus};
use super::turns::Turn;
use super::worker::{LoadJob, LoadKind, ProbeWorker, SelfieJob, WorkerContext};
use crate::engine::cpu_shares::ReservedCores;

/// With so many threads that hang, no other is started until one of them ends: each keeps its models in memory and
/// perhaps a core busy.
const MAX_HANGING: usize = 4;

/// The pause before a worker is started, or its models are loaded, again.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// The number of selfies that took too long which are remembered.
const REMEMBERED: usize = 64;

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

/// How long things may take.
#[derive(Clone, Copy)]
pub(super) struct TimeLimits {
    /// One selfie.
    pub(super) selfie: Duration,
    /// One call of a device. One that takes longer never returns.
    pub(super) device_call: Duration,
}

impl TimeLimits {
    /// Whether a call of a device never returns that has been running for so long.
    fn is_endless(&self, call: &Duration) -> bool {
        *call >= self.device_call
    }
}

/// The thread beside the worker.
pub(super) struct ProbeSupervisor {
    requests: Receiver<ProbeRequest>,
    devices: ProbeDevices,
    context: WorkerContext,
    time_limits: TimeLimits,
    state: Arc<ProbeState>,
    /// Of which each selfie takes one from the photos.
    cores: ReservedCores,
    /// The worker whose models are loaded, or that can be told to load them.
    worker: Option<ProbeWorker>,
    hanging: Vec<JoinHandle<()>>,
    /// Digests of the latest selfies that took too long once.
    timed_out: VecDeque<u64>,
    workers_started: usize,
    restored_at: Instant,
}

impl ProbeSupervisor {
    pub(super) fn new(
        requests: Receiver<ProbeRequest>,
        devices: ProbeDevices,
        context: WorkerContext,
        time_limits: TimeLimits,
        state: Arc<ProbeState>,
        cores: ReservedCores,
    ) -> Self {
        Self {
            requests,
            devices,
            context,
            time_limits,
            state,
            cores,
            worker: None,
            hanging: Vec::new(),
            timed_out: VecDeque::new(),
            workers_started: 0,
            restored_at: Instant::now(),
        }
    }

    /// Serves requests until all senders are dropped, or all devices are given up.
    pub(super) fn run(mut self) {
        let mut is_working = self.restore();
        while self.state.device_failure().is_none() {
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
        worker.extract(SelfieJob { selfie: selfie.clone(), span, waited: asked_at.elapsed(), spent });
        let (result, is_working) = match worker.extracted.recv_timeout(self.time_limits.selfie) {
            Ok(extraction) => {
                extraction.outage.iter().for_each(|outage| self.devices.record_outage(outage));
                (extraction.result, !extraction.must_reload)
            }
            Err(RecvTimeoutError::Timeout) => {
                // It may have waited for a call of others, such as one that compiles kernels, or that hangs.
                let is_others = self.devices.longest_call().is_some_and(|call| call > started_at.elapsed());
                // Beside others that still hang nothing is excused: each one takes a thread for good.
                self.hanging.retain(|thread| !thread.is_finished());
                let is_excused = is_others || self.hanging.is_empty() && !self.timed_out_before(&selfie);
                self.abandon_worker();
                let error =
                    if is_excused { ProbeServiceError::Unavailable } else { ProbeServiceError::TimedOut };
                (Err(error), false)
            }
            Err(RecvTimeoutError::Disconnected) => {
                tracing::error!("probe thread panicked, starting another one");
                self.worker = None;
                (Err(ProbeServiceError::Unavailable), false)
            }
        };
        if !is_working {
            // Whatever it was: another device may do better, and where there is none this changes nothing.
            self.devices.advance();
        }
        drop(core);
        self.state.rate.record(started_at.elapsed());
        drop(turn);
        // The caller may have given up meanwhile.
        drop(reply.send(result));
        is_working
    }

    /// Starts a worker where there is none and has it load its models. Returns whether selfies can be examined.
    fn restore(&mut self) -> bool {
        self.hanging.retain(|thread| !thread.is_finished());
        let restored = self.load_on_a_device();
        self.restored_at = Instant::now();
        let is_working = restored.is_ok();
        self.state.set_status(match restored {
            Ok(()) => ProbeStatus::Running,
            Err(reason) => ProbeStatus::Down(reason),
        });
        self.report_failure();
        is_working
    }

    /// Loads the models on the device whose turn it is, or else on the next one that works.
    fn load_on_a_device(&mut self) -> Result<(), String> {
        let mut loaded = Err("no device is left".to_owned());
        for _ in 0..self.devices.count() {
            loaded = self.start_worker().and_then(|()| self.load_models());
            if loaded.is_ok() {
                break;
            }
            self.give_hanging_device_up();
            self.devices.advance();
        }
        loaded
    }

    /// Gives a device up on which models could not be loaded and of which a call never returns.
    fn give_hanging_device_up(&mut self) {
        let limits = self.time_limits;
        let reason =
            |time: Duration| format!("a call of the device has not returned for {} s", time.as_secs());
        if self.worker.is_none() && self.hanging.len() >= MAX_HANGING {
            // No device can be used without another thread, whichever it is that hangs.
            if let Some(time) = self.devices.longest_call_of_all().filter(|call| limits.is_endless(call)) {
                self.devices.give_all_up(&reason(time));
            }
        } else if let Some(time) = self.devices.longest_call().filter(|call| limits.is_endless(call)) {
            self.devices.give_up(reason(time));
        }
    }

    /// Says that no device is left, if so.
    fn report_failure(&self) {
        if let Some(reason) = self.devices.failure().filter(|_| self.state.device_failure().is_none()) {
            self.state.give_device_up(reason.to_owned());
        }
    }

    /// Whether a call of the device whose turn it is never returns.
    fn has_timed_out_call(&self) -> bool {
        self.devices.longest_call().is_some_and(|call| self.time_limits.is_endless(&call))
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

    /// Waits until the models are loaded, however long that takes, unless a call of the device never returns: compiling
    /// them for a device may take minutes.
    fn load_models(&mut self) -> Result<(), String> {
        let Some(worker) = &self.worker else { return Err("no thread".into()) };
        let Some(models) = self.devices.models() else { return Err("there is no device".into()) };
        let kind = if self.devices.is_suspect() { LoadKind::Proven } else { LoadKind::Unproven };
        worker.load(LoadJob { models, kind });
        loop {
            match worker.loaded.recv_timeout(self.time_limits.selfie) {
                Ok(Ok(())) => {
                    self.devices.record_success();
                    return Ok(());
                }
                Ok(Err(outage)) => {
                    self.devices.record_outage(&outage);
                    return Err("the models cannot be loaded".into());
                }
                Err(RecvTimeoutError::Timeout) if self.has_timed_out_call() => {
                    self.hanging.extend(self.worker.take().map(ProbeWorker::abandon));
                    return Err("the models are never loaded".into());
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.state.set_status(ProbeStatus::Down("the models are still being loaded".into()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.worker = None;
                    return Err("the thread panicked".into());
                }
            }
        }
    }

    /// Whether this selfie took too long before, as it did now. Once may be the machine's fault: a process that was stopped or
    /// paused for as long as the limit has used it up.
    fn timed_out_before(&mut self, selfie: &Bytes) -> bool {
        let mut hasher = DefaultHasher::new();
        selfie.hash(&mut hasher);
        let digest = hasher.finish();
        if self.timed_out.contains(&digest) {
            return true;
        }
        self.timed_out.truncate(REMEMBERED - 1);
        self.timed_out.push_front(digest);
        false
    }

    /// Leaves the worker behind: its thread ends if what it does ever returns.
    fn abandon_worker(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        self.hanging.push(worker.abandon());
        tracing::error!(
            hanging = self.hanging.len(),
            "selfie took more than {:?}, leaving its thread behind",
            self.time_limits.selfie
        );
    }

    /// Ends the worker's thread, which is idle, and leaves those that hang.
    fn join_worker(&mut self) {
        if self.worker.take().is_some_and(|worker| worker.join().is_err()) {
            tracing::error!("probe thread panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use crossbeam_channel::bounded;
    use photofinish_kernels::image::frame::Frame;
    use photofinish_models::fakes::FakeModels;
    use photofinish_models::traits::{
        BatchSizes, BibReader, FaceBox, FaceDetector, FaceEmbedder, ModelError, ModelFactory, ModelIdentity,
    };
    use photofinish_store::model::ids::OrganizationId;

    use super::*;
    use crate::engine::stage_stats::StageStats;
    use crate::probe::turns::Turns;
    use crate::probe::worker::STAGE;
    use crate::settings::Limits;

    /// Detectors wait until it is open.
    #[derive(Default)]
    struct Gate {
        is_open: Mutex<bool>,
        changed: Condvar,
    }

    impl Gate {
        fn set_open(&self, is_open: bool) {
            *self.is_open.lock().unwrap() = is_open;
            self.changed.notify_all();
        }

        fn pass(&self) {
            let is_open = self.is_open.lock().unwrap();
            drop(self.changed.wait_while(is_open, |is_open| !*is_open).unwrap());
        }
    }

    struct GatedModels(Arc<Gate>);

    struct GatedDetector {
        gate: Arc<Gate>,
        detector: Box<dyn FaceDetector>,
    }

    impl FaceDetector for GatedDetector {
        fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
            self.gate.pass();
            self.detector.detect(frames, long_side)
        }

        fn identity(&self) -> &ModelIdentity {
            self.detector.identity()
        }
    }

    impl ModelFactory for GatedModels {
        fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
            let detector = FakeModels::default().create_face_detector()?;
            Ok(Box::new(GatedDetector { gate: Arc::clone(&self.0), detector }))
        }

        fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
            FakeModels::default().create_face_embedder()
        }

        fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
            Err(ModelError::Runtime("selfies need no bib reader".into()))
        }

        fn batch_sizes(&self) -> BatchSizes {
            FakeModels::default().batch_sizes()
        }
    }

    fn new_supervisor(gate: &Arc<Gate>) -> ProbeSupervisor {
        let models: Arc<dyn ModelFactory> = Arc::new(GatedModels(Arc::clone(gate)));
        let limits = Limits { max_file_bytes: 1 << 20, max_pixels: 1_000_000, reads_heic: false };
        let context = WorkerContext { limits, stats: Arc::new(StageStats::new(STAGE)) };
        let time_limits = TimeLimits { selfie: Duration::from_millis(50), device_call: Duration::MAX };
        let (devices, cores) = (ProbeDevices::new(vec![models]), ReservedCores::default());
        ProbeSupervisor::new(bounded(1).1, devices, context, time_limits, Arc::default(), cores)
    }

    /// Encodes a grey JPEG of one colour.
    fn grey_selfie(width: usize, height: usize) -> Bytes {
        let (pixels, format) = (vec![120_u8; width * height], turbojpeg::PixelFormat::GRAY);
        let image = turbojpeg::Image { pixels: pixels.as_slice(), width, pitch: width, height, format };
        turbojpeg::compress(image, 80, turbojpeg::Subsamp::Gray).unwrap().to_vec().into()
    }

    /// Has a selfie take too long and waits until its thread has ended all the same. Returns what its caller was told.
    fn time_out(
        supervisor: &mut ProbeSupervisor,
        gate: &Gate,
        selfie: &Bytes,
    ) -> Result<ProbeFace, ProbeServiceError> {
        gate.set_open(false);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let turn = runtime.block_on(Turns::new(1, 1).take(OrganizationId::generate())).unwrap();
        let (reply, mut response) = oneshot::channel();
        let (selfie, span, asked_at) = (selfie.clone(), Span::none(), Instant::now());
        let request = ProbeRequest { selfie, reply, span, asked_at, spent: Arc::default(), turn };
        assert!(!supervisor.serve(request), "it takes too long");
        assert!(supervisor.restore(), "another thread takes over");
        assert!(!supervisor.hanging.is_empty(), "its own is still there");
        gate.set_open(true);
        let deadline = Instant::now() + Duration::from_secs(600);
        while !supervisor.hanging.iter().all(JoinHandle::is_finished) {
            assert!(Instant::now() < deadline, "timed out waiting for the thread");
            std::thread::sleep(Duration::from_millis(1));
        }
        response.try_recv().unwrap()
    }

    #[test]
    fn each_selfie_is_excused_once_if_those_before_have_ended() {
        let gate = Arc::new(Gate::default());
        let mut supervisor = new_supervisor(&gate);
        assert!(supervisor.restore());
        let [first, second] = [grey_selfie(300, 200), grey_selfie(200, 300)];
        assert_eq!(time_out(&mut supervisor, &gate, &first), Err(ProbeServiceError::Unavailable));
        assert_eq!(time_out(&mut supervisor, &gate, &second), Err(ProbeServiceError::Unavailable));
        assert_eq!(time_out(&mut supervisor, &gate, &second), Err(ProbeServiceError::TimedOut));
    }
}
