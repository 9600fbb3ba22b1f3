//! The probe service turns selfies into face embeddings. It has its own thread and models, so that a search neither
//! waits for photos nor fails when the pipeline is down. It knows nothing of HTTP, albums or the database.
//!
//! Its request queue is bounded: when it is full, the caller is told when to retry.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use photofinish_models::traits::ModelFactory;
use tokio::sync::oneshot;
use tracing::Span;

use crate::engine::metrics as names;
use crate::engine::runner::panic_message;
use crate::engine::spans::StageSpan;
use crate::engine::stage_stats::StageStats;
use crate::engine::sync::lock;
use crate::probe::extractor::{ExtractionError, FaceExtractor, ProbeFace};
use crate::settings::Limits;

/// Why a selfie has no embedding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeServiceError {
    /// No face was found.
    #[error("no face in the image")]
    NoFace,
    /// The file is not an image, is damaged, or exceeds the limits.
    #[error("not a readable image")]
    Unreadable,
    /// The request queue is full.
    #[error("busy, retry in {} s", retry_after.as_secs())]
    Busy {
        /// When the queue should have space, in whole seconds, at least one.
        retry_after: Duration,
    },
    /// The models are not available, or the service has stopped.
    #[error("the models are not available")]
    Unavailable,
}

/// The service, running on its own thread. When it is stopped or dropped it accepts no more requests; those in the queue
/// are still processed.
#[derive(Debug)]
pub struct ProbeService {
    requests: Mutex<Option<Sender<ProbeRequest>>>,
    rate: Arc<ServiceRate>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A selfie in the queue.
struct ProbeRequest {
    selfie: Bytes,
    reply: oneshot::Sender<Result<ProbeFace, ProbeServiceError>>,
    /// The span of the caller's request.
    span: Span,
    queued_at: Instant,
}

/// How fast requests are processed, for the estimate of when to retry.
#[derive(Debug)]
struct ServiceRate {
    /// Requests queued or being processed.
    waiting: AtomicUsize,
    /// A moving average.
    micros_per_selfie: AtomicU64,
}

/// The assumed time per selfie until one was measured.
const INITIAL_ESTIMATE: Duration = Duration::from_millis(200);

/// The pause before the models are loaded again after a failure.
const LOAD_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The name of the thread's stage in metrics and spans.
const STAGE: &str = "probe";

impl ProbeService {
    /// Starts the service with a queue of `queue_capacity` requests, at least one. The models are loaded in the
    /// background.
    pub fn start(models: Arc<dyn ModelFactory>, limits: Limits, queue_capacity: usize) -> Self {
        let (sender, receiver) = bounded(queue_capacity.max(1));
        let estimate = u64::try_from(INITIAL_ESTIMATE.as_micros()).unwrap_or(u64::MAX);
        let rate = Arc::new(ServiceRate {
            waiting: AtomicUsize::new(0),
            micros_per_selfie: AtomicU64::new(estimate),
        });
        let worker = ProbeWorker { models, limits, rate: Arc::clone(&rate), stats: StageStats::new(STAGE) };
        let thread = std::thread::Builder::new()
            .name("probe-0".into())
            .spawn(move || worker.run(&receiver))
            .inspect_err(|error| {
                tracing::error!(error = %error, "failed to start probe thread, selfies are refused");
            })
            .ok();
        Self { requests: Mutex::new(Some(sender)), rate, thread: Mutex::new(thread) }
    }

    /// Returns the embedding of the largest face in the selfie, a JPEG, PNG or WebP file.
    ///
    /// # Errors
    /// See [`ProbeServiceError`].
    pub async fn embed(&self, selfie: Bytes) -> Result<ProbeFace, ProbeServiceError> {
        let (reply, response) = oneshot::channel();
        let request = ProbeRequest { selfie, reply, span: Span::current(), queued_at: Instant::now() };
        let result = match self.enqueue(request) {
            // The reply is dropped if the thread ends before it gets to this request.
            Ok(()) => response.await.unwrap_or(Err(ProbeServiceError::Unavailable)),
            Err(error) => Err(error),
        };
        metrics::counter!(names::PROBES, "answer" => result_label(&result)).increment(1);
        result
    }

    fn enqueue(&self, request: ProbeRequest) -> Result<(), ProbeServiceError> {
        let requests = lock(&self.requests);
        let requests = requests.as_ref().ok_or(ProbeServiceError::Unavailable)?;
        self.rate.waiting.fetch_add(1, Ordering::AcqRel);
        requests.try_send(request).map_err(|refused| {
            self.rate.waiting.fetch_sub(1, Ordering::AcqRel);
            match refused {
                TrySendError::Full(_) => ProbeServiceError::Busy { retry_after: self.rate.estimated_wait() },
                TrySendError::Disconnected(_) => ProbeServiceError::Unavailable,
            }
        })
    }

    /// Accepts no more requests, processes those in the queue and ends the thread. Blocks.
    pub fn stop(&self) {
        lock(&self.requests).take();
        let Some(thread) = lock(&self.thread).take() else { return };
        if thread.join().is_err() {
            tracing::error!("probe thread panicked");
        }
    }
}

impl ServiceRate {
    /// Returns how long all waiting requests will take, in whole seconds, at least one.
    fn estimated_wait(&self) -> Duration {
        let waiting = self.waiting.load(Ordering::Acquire) as u64;
        let micros = waiting.saturating_mul(self.micros_per_selfie.load(Ordering::Relaxed));
        Duration::from_secs(micros.div_ceil(1_000_000).max(1))
    }

    /// Records a request whose caller gave up. It was not processed, so it does not change the average.
    fn record_cancelled(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    fn record_served(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let before = self.micros_per_selfie.load(Ordering::Relaxed);
        self.micros_per_selfie
            .store((before.saturating_mul(3).saturating_add(micros)) / 4, Ordering::Relaxed);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The thread of the service.
struct ProbeWorker {
    models: Arc<dyn ModelFactory>,
    limits: Limits,
    rate: Arc<ServiceRate>,
    stats: StageStats,
}

impl ProbeWorker {
    fn run(&self, requests: &Receiver<ProbeRequest>) {
        let mut extractor = self.load_extractor();
        let mut loaded_at = Instant::now();
        while let Ok(ProbeRequest { selfie, reply, span, queued_at }) = requests.recv() {
            // Nobody would read the reply, and others are waiting.
            if reply.is_closed() {
                self.rate.record_cancelled();
                continue;
            }
            if extractor.is_none() && loaded_at.elapsed() >= LOAD_RETRY_DELAY {
                extractor = self.load_extractor();
                loaded_at = Instant::now();
            }
            let started_at = Instant::now();
            let span = StageSpan::new(span, STAGE, 1, queued_at.elapsed());
            let timer = self.stats.start_batch();
            let result = {
                let _entered = span.enter();
                self.extract_face(&mut extractor, &selfie)
            };
            timer.finish(1);
            // Before the reply: the span of the request must not end while a child of it is open.
            drop(span);
            self.rate.record_served(started_at.elapsed());
            // The caller may have given up meanwhile.
            let _gone = reply.send(result);
        }
    }

    /// Processes a selfie. After a panic or a failure of the models the extractor is replaced, or `None` if loading
    /// fails.
    fn extract_face(
        &self,
        extractor: &mut Option<FaceExtractor>,
        selfie: &[u8],
    ) -> Result<ProbeFace, ProbeServiceError> {
        let Some(current) = extractor.as_mut() else { return Err(ProbeServiceError::Unavailable) };
        let error = match catch_unwind(AssertUnwindSafe(|| current.extract(selfie))) {
            Ok(Ok(face)) => return Ok(face),
            Ok(Err(error)) => error,
            Err(panic) => {
                self.stats.record_panic();
                tracing::warn!(
                    message = panic_message(panic.as_ref()),
                    "selfie panicked, reloading probe models"
                );
                *extractor = self.load_extractor();
                return Err(ProbeServiceError::Unreadable);
            }
        };
        match error {
            ExtractionError::NoFace => Err(ProbeServiceError::NoFace),
            ExtractionError::Unreadable(poison) => {
                tracing::debug!(detail = %poison, "failed to read selfie");
                Err(ProbeServiceError::Unreadable)
            }
            ExtractionError::Unavailable(outage) => {
                tracing::error!(reason = %outage, "probe models failed, reloading them");
                *extractor = self.load_extractor();
                Err(ProbeServiceError::Unavailable)
            }
        }
    }

    fn load_extractor(&self) -> Option<FaceExtractor> {
        let loaded = catch_unwind(AssertUnwindSafe(|| FaceExtractor::new(self.models.as_ref(), self.limits)));
        let reason = match loaded {
            Ok(Ok(extractor)) => return Some(extractor),
            Ok(Err(outage)) => outage.to_string(),
            Err(panic) => panic_message(panic.as_ref()),
        };
        tracing::error!(reason, "failed to load probe models, selfies are refused");
        None
    }
}

/// Returns the value of the metric label `answer`.
fn result_label(result: &Result<ProbeFace, ProbeServiceError>) -> &'static str {
    match result {
        Ok(_) => "face",
        Err(ProbeServiceError::NoFace) => "no_face",
        Err(ProbeServiceError::Unreadable) => "unreadable",
        Err(ProbeServiceError::Busy { .. }) => "busy",
        Err(ProbeServiceError::Unavailable) => "unavailable",
    }
}

#[cfg(test)]
mod tests {
    use photofinish_models::fakes::FakeModels;

    use super::*;

    const LIMITS: Limits = Limits { max_file_bytes: 1 << 20, max_pixels: 1_000_000 };

    fn rate_of_one_second(waiting: usize) -> Arc<ServiceRate> {
        Arc::new(ServiceRate {
            waiting: AtomicUsize::new(waiting),
            micros_per_selfie: AtomicU64::new(1_000_000),
        })
    }

    fn serve_all(requests: Vec<ProbeRequest>, rate: &Arc<ServiceRate>) {
        let worker = ProbeWorker {
            models: Arc::new(FakeModels::default()),
            limits: LIMITS,
            rate: Arc::clone(rate),
            stats: StageStats::new(STAGE),
        };
        let (sender, receiver) = bounded(requests.len().max(1));
        for request in requests {
            sender.send(request).unwrap();
        }
        drop(sender);
        worker.run(&receiver);
    }

    fn new_request() -> (ProbeRequest, oneshot::Receiver<Result<ProbeFace, ProbeServiceError>>) {
        let (reply, response) = oneshot::channel();
        let (selfie, span, queued_at) = (Bytes::from_static(b"not an image"), Span::none(), Instant::now());
        (ProbeRequest { selfie, reply, span, queued_at }, response)
    }

    #[test]
    fn a_cancelled_request_is_not_processed() {
        let (cancelled, response) = new_request();
        drop(response);
        let rate = rate_of_one_second(1);
        serve_all(vec![cancelled], &rate);
        assert_eq!(rate.waiting.load(Ordering::Acquire), 0);
        assert_eq!(rate.micros_per_selfie.load(Ordering::Relaxed), 1_000_000, "it was processed");
    }

    #[test]
    fn a_request_behind_a_cancelled_one_is_served() {
        let (cancelled, response) = new_request();
        drop(response);
        let (waiting, mut response) = new_request();
        let rate = rate_of_one_second(2);
        serve_all(vec![cancelled, waiting], &rate);
        assert_eq!(response.try_recv(), Ok(Err(ProbeServiceError::Unreadable)));
        assert_eq!(rate.waiting.load(Ordering::Acquire), 0);
        assert!(rate.micros_per_selfie.load(Ordering::Relaxed) < 1_000_000);
    }
}
