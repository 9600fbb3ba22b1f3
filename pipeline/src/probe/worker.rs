//! The thread that owns the models for selfies and does as it is told: load them, or examine one selfie. It decides
//! nothing, and a native call may keep it forever: whoever gives the commands limits the time and drops it then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use photofinish_models::traits::ModelFactory;
use photofinish_store::model::cost::{CostMeter, SELFIE_STAGE};
use photofinish_store::panic_message;
use tracing::Span;

use super::error::ProbeServiceError;
use super::extractor::{ExtractionError, FaceExtractor, ProbeFace};
use crate::engine::fault::{Component, Outage};
use crate::engine::spans::StageSpan;
use crate::engine::stage_stats::StageStats;
use crate::image::pool::IDLE_LIFETIME;
use crate::settings::Limits;

/// The name of the stage in metrics and spans.
pub(super) const STAGE: &str = SELFIE_STAGE;

/// What every worker needs.
#[derive(Clone)]
pub(super) struct WorkerContext {
    pub(super) limits: Limits,
    pub(super) stats: Arc<StageStats>,
}

/// A running worker. Its thread ends when this is dropped, or, if it hangs, once it no longer does.
pub(super) struct ProbeWorker {
    thread: JoinHandle<()>,
    commands: Sender<Command>,
    /// Gets one value for each command to load: why the models are not loaded, if they are not.
    pub(super) loaded: Receiver<Result<(), Outage>>,
    /// Gets one value for each selfie.
    pub(super) extracted: Receiver<Extraction>,
}

enum Command {
    Load(LoadJob),
    Extract(SelfieJob),
}

/// Models to load.
pub(super) struct LoadJob {
    /// Loads them on a device.
    pub(super) models: Arc<dyn ModelFactory>,
    pub(super) kind: LoadKind,
}

/// How models are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadKind {
    /// Loaded, no more.
    Unproven,
    /// Tried too, because the device was lost: a device may load what it cannot run.
    Proven,
}

/// A selfie to examine.
pub(super) struct SelfieJob {
    pub(super) selfie: Bytes,
    /// The span of the caller's request.
    pub(super) span: Span,
    /// How long it has waited.
    pub(super) waited: Duration,
    /// What examining it costs is added here.
    pub(super) spent: Arc<CostMeter>,
}

/// What examining a selfie gave.
pub(super) struct Extraction {
    pub(super) result: Result<ProbeFace, ProbeServiceError>,
    /// Whether the models were dropped and must be loaded again.
    pub(super) must_reload: bool,
    /// Why the models failed, if that is why they were dropped.
    pub(super) outage: Option<Outage>,
}

impl ProbeWorker {
    /// Starts a worker without models.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub(super) fn start(number: usize, context: WorkerContext) -> std::io::Result<Self> {
        // One command is given at a time, so nobody ever waits for space.
        let (commands, to_do) = bounded(1);
        let (loaded_sender, loaded) = bounded(1);
        let (extracted_sender, extracted) = bounded(1);
        let thread = std::thread::Builder::new().name(format!("probe-{number}")).spawn(move || {
            let mut extractor: Option<FaceExtractor> = None;
            loop {
                let command = match to_do.recv_timeout(IDLE_LIFETIME) {
                    Ok(command) => command,
                    Err(RecvTimeoutError::Timeout) => {
                        extractor.iter().for_each(FaceExtractor::free_buffers);
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let is_delivered = match command {
                    Command::Load(job) => {
                        // The old models first: both at once may not fit the device.
                        drop(extractor.take());
                        let loaded = context.load_extractor(&job).map(|loaded| extractor = Some(loaded));
                        loaded_sender.send(loaded).is_ok()
                    }
                    Command::Extract(job) => {
                        extracted_sender.send(context.process_selfie(&mut extractor, job)).is_ok()
                    }
                };
                if !is_delivered {
                    // Given up meanwhile.
                    return;
                }
            }
        })?;
        Ok(Self { thread, commands, loaded, extracted })
    }

    /// Tells the worker to load its models; [`Self::loaded`] gets whether that worked.
    pub(super) fn load(&self, job: LoadJob) {
        self.send(Command::Load(job));
    }

    /// Tells the worker to examine a selfie; [`Self::extracted`] gets what it gave.
    pub(super) fn extract(&self, job: SelfieJob) {
        self.send(Command::Extract(job));
    }

    /// Ends the thread, which is idle.
    ///
    /// # Errors
    /// When it has panicked.
    pub(super) fn join(self) -> std::thread::Result<()> {
        drop(self.commands);
        self.thread.join()
    }

    /// Returns the thread, which ends by itself if what it does ever returns.
    pub(super) fn abandon(self) -> JoinHandle<()> {
        self.thread
    }

    fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            // Its channels are closed then, so the caller notices when it waits for the outcome.
            tracing::error!("probe thread has ended");
        }
    }
}

impl WorkerContext {
    fn process_selfie(&self, extractor: &mut Option<FaceExtractor>, job: SelfieJob) -> Extraction {
        let SelfieJob { selfie, span, waited, spent } = job;
        // Dropped before the result is delivered: the span of the request must not end while a child of it is open.
        let span = StageSpan::new(span, STAGE, 1, waited);
        let timer = self.stats.start_batch();
        let extraction = {
            let _entered = span.enter();
            self.extract_face(extractor, &selfie)
        };
        spent.add(STAGE, timer.finish_step(1, 1));
        extraction
    }

    /// Examines a selfie. After a panic or a failure of the models the extractor is dropped.
    fn extract_face(&self, extractor: &mut Option<FaceExtractor>, selfie: &[u8]) -> Extraction {
        let Some(current) = extractor.as_mut() else {
            let result = Err(ProbeServiceError::Unavailable);
            return Extraction { result, must_reload: true, outage: None };
        };
        let keep = |result| Extraction { result, must_reload: false, outage: None };
        let error = match catch_unwind(AssertUnwindSafe(|| current.extract(selfie))) {
            Ok(Ok(face)) => return keep(Ok(face)),
            Ok(Err(error)) => error,
            Err(panic) => {
                self.stats.record_panic();
                let message = panic_message(panic.as_ref());
                tracing::warn!(message, "selfie panicked, reloading probe models");
                *extractor = None;
                let result = Err(ProbeServiceError::Unreadable);
                return Extraction { result, must_reload: true, outage: None };
            }
        };
        match error {
            ExtractionError::NoFace => keep(Err(ProbeServiceError::NoFace)),
            ExtractionError::Unreadable(poison) => {
                tracing::debug!(detail = %poison, "failed to read selfie");
                keep(Err(ProbeServiceError::Unreadable))
            }
            ExtractionError::Unavailable(outage) => {
                tracing::error!(reason = %outage, "probe models failed, reloading them");
                *extractor = None;
                let result = Err(ProbeServiceError::Unavailable);
                Extraction { result, must_reload: true, outage: Some(outage) }
            }
        }
    }

    fn load_extractor(&self, job: &LoadJob) -> Result<FaceExtractor, Outage> {
        let load = || -> Result<FaceExtractor, Outage> {
            let mut extractor = FaceExtractor::new(job.models.as_ref(), self.limits)?;
            if job.kind == LoadKind::Proven {
                extractor.try_networks()?;
            }
            Ok(extractor)
        };
        let loaded = catch_unwind(AssertUnwindSafe(load))
            .unwrap_or_else(|panic| Err(Outage::new(Component::Stage(STAGE), panic_message(panic.as_ref()))));
        loaded.inspect_err(|outage| {
            tracing::error!(reason = %outage, "failed to load probe models, selfies are refused");
        })
    }
}
