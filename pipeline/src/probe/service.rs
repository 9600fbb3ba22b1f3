//! The probe desk: turns selfies into vectors, on a thread and with networks of its own, so that a runner's search
//! neither waits for photos nor falls with the pipeline. Knows nothing of HTTP, albums or rows.
//!
//! It has a bounded number of seats; who finds none taken is told when to come again.

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

/// Why a selfie has no vector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeServiceError {
    /// Nobody is in it.
    #[error("no face in the picture")]
    NoFace,
    /// It is no picture, a damaged one, or one beyond the limits.
    #[error("not a picture that can be read")]
    Unreadable,
    /// All seats are taken.
    #[error("busy, try again in {retry_after:?}")]
    Busy {
        /// When a seat should be free.
        retry_after: Duration,
    },
    /// The networks do not serve now.
    #[error("the networks do not serve now")]
    Unavailable,
}

/// The desk. Dropped or stopped it takes no more selfies; those seated are still answered.
#[derive(Debug)]
pub struct ProbeService {
    requests: Mutex<Option<Sender<ProbeRequest>>>,
    rate: Arc<ServiceRate>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A selfie that waits.
struct ProbeRequest {
    selfie: Bytes,
    reply: oneshot::Sender<Result<ProbeFace, ProbeServiceError>>,
    /// Of the request that brought it.
    span: Span,
    queued_at: Instant,
}

/// How fast the desk works, for those who have to come again.
#[derive(Debug)]
struct ServiceRate {
    waiting: AtomicUsize,
    /// A running mean.
    micros_per_selfie: AtomicU64,
}

/// What a selfie takes until one was measured.
const INITIAL_ESTIMATE: Duration = Duration::from_millis(200);

/// How long a network that does not come up is left alone.
const LOAD_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The stage name in metrics.
const STAGE: &str = "probe";

impl ProbeService {
    /// Opens a desk with `seats` seats, at least one. Its networks come up in the background.
    pub fn start(models: Arc<dyn ModelFactory>, limits: Limits, seats: usize) -> Self {
        let (sender, receiver) = bounded(seats.max(1));
        let guess = u64::try_from(INITIAL_ESTIMATE.as_micros()).unwrap_or(u64::MAX);
        let rate =
            Arc::new(ServiceRate { waiting: AtomicUsize::new(0), micros_per_selfie: AtomicU64::new(guess) });
        let clerk = ProbeWorker { models, limits, rate: Arc::clone(&rate), stats: StageStats::new(STAGE) };
        let thread = std::thread::Builder::new().name("probe-0".into()).spawn(move || clerk.run(&receiver));
        let thread = thread
            .inspect_err(
                |error| tracing::error!(error = %error, "the probe desk has no thread, selfies are refused"),
            )
            .ok();
        Self { requests: Mutex::new(Some(sender)), rate, thread: Mutex::new(thread) }
    }

    /// The vector of the selfie's largest face.
    ///
    /// # Errors
    /// See [`DeskError`].
    pub async fn embed(&self, selfie: Bytes) -> Result<ProbeFace, ProbeServiceError> {
        let (answer, answered) = oneshot::channel();
        let seated = ProbeRequest { selfie, reply: answer, span: Span::current(), queued_at: Instant::now() };
        let answer = match self.enqueue(seated) {
            // The thread ended before it came to this one.
            Ok(()) => answered.await.unwrap_or(Err(ProbeServiceError::Unavailable)),
            Err(refused) => Err(refused),
        };
        metrics::counter!(names::PROBES, "answer" => result_label(&answer)).increment(1);
        answer
    }

    fn enqueue(&self, seated: ProbeRequest) -> Result<(), ProbeServiceError> {
        let seats = lock(&self.requests);
        let seats = seats.as_ref().ok_or(ProbeServiceError::Unavailable)?;
        self.rate.waiting.fetch_add(1, Ordering::AcqRel);
        seats.try_send(seated).map_err(|refused| {
            self.rate.waiting.fetch_sub(1, Ordering::AcqRel);
            match refused {
                TrySendError::Full(_) => ProbeServiceError::Busy { retry_after: self.rate.estimated_wait() },
                TrySendError::Disconnected(_) => ProbeServiceError::Unavailable,
            }
        })
    }

    /// Takes no more selfies, answers those seated, ends the thread. Blocks.
    pub fn stop(&self) {
        lock(&self.requests).take();
        let Some(thread) = lock(&self.thread).take() else { return };
        if thread.join().is_err() {
            tracing::error!("the probe desk panicked");
        }
    }
}

impl ServiceRate {
    /// How long all who wait will take, in whole seconds, at least one.
    fn estimated_wait(&self) -> Duration {
        let waiting = self.waiting.load(Ordering::Acquire) as u64;
        let micros = waiting.saturating_mul(self.micros_per_selfie.load(Ordering::Relaxed));
        Duration::from_secs(micros.div_ceil(1_000_000).max(1))
    }

    /// Notes that somebody left without an answer: that says nothing of how fast answers are.
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

/// The thread behind the desk.
struct ProbeWorker {
    models: Arc<dyn ModelFactory>,
    limits: Limits,
    rate: Arc<ServiceRate>,
    stats: StageStats,
}

impl ProbeWorker {
    fn run(&self, seats: &Receiver<ProbeRequest>) {
        let mut examiner = self.load_extractor();
        let mut tried_at = Instant::now();
        while let Ok(ProbeRequest { selfie, reply: answer, span, queued_at: since }) = seats.recv() {
            // Who gave up while waiting has nobody to read an answer, and keeps others from theirs.
            if answer.is_closed() {
                self.rate.record_cancelled();
                continue;
            }
            if examiner.is_none() && tried_at.elapsed() >= LOAD_RETRY_DELAY {
                examiner = self.load_extractor();
                tried_at = Instant::now();
            }
            let began = Instant::now();
            let work = StageSpan::new(span, STAGE, (1, since.elapsed()));
            let measured = self.stats.start_batch();
            let result = {
                let _entered = work.enter();
                self.extract_face(&mut examiner, &selfie)
            };
            measured.finish(1);
            // Before the answer: the request's span must not end while one of its own is open.
            drop(work);
            self.rate.record_served(began.elapsed());
            // The runner may have gone.
            let _gone = answer.send(result);
        }
    }

    /// Examines a selfie; the examiner is another one afterwards when it did not survive it, or none.
    fn extract_face(
        &self,
        examiner: &mut Option<FaceExtractor>,
        selfie: &[u8],
    ) -> Result<ProbeFace, ProbeServiceError> {
        let Some(present) = examiner.as_mut() else { return Err(ProbeServiceError::Unavailable) };
        let refusal = match catch_unwind(AssertUnwindSafe(|| present.extract(selfie))) {
            Ok(Ok(face)) => return Ok(face),
            Ok(Err(refusal)) => refusal,
            Err(panic) => {
                self.stats.record_panic();
                tracing::warn!(message = panic_message(panic.as_ref()), "a selfie panicked");
                *examiner = self.load_extractor();
                return Err(ProbeServiceError::Unreadable);
            }
        };
        match refusal {
            ExtractionError::NoFace => Err(ProbeServiceError::NoFace),
            ExtractionError::Unreadable(poison) => {
                tracing::debug!(detail = %poison, "a selfie cannot be read");
                Err(ProbeServiceError::Unreadable)
            }
            ExtractionError::Unavailable(outage) => {
                tracing::error!(reason = %outage, "the probe desk's networks fail, selfies are refused");
                *examiner = self.load_extractor();
                Err(ProbeServiceError::Unavailable)
            }
        }
    }

    fn load_extractor(&self) -> Option<FaceExtractor> {
        let hired = catch_unwind(AssertUnwindSafe(|| FaceExtractor::new(self.models.as_ref(), self.limits)));
        match hired {
            Ok(Ok(examiner)) => Some(examiner),
            Ok(Err(outage)) => {
                tracing::error!(reason = %outage, "the probe desk has no networks, selfies are refused");
                None
            }
            Err(panic) => {
                tracing::error!(reason = panic_message(panic.as_ref()), "the probe desk's networks panic");
                None
            }
        }
    }
}

fn result_label(answer: &Result<ProbeFace, ProbeServiceError>) -> &'static str {
    match answer {
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

    fn serve_all(seated: Vec<ProbeRequest>, pace: &Arc<ServiceRate>) {
        let clerk = ProbeWorker {
            models: Arc::new(FakeModels::default()),
            limits: LIMITS,
            rate: Arc::clone(pace),
            stats: StageStats::new(STAGE),
        };
        let (seats, waiting) = bounded(seated.len().max(1));
        for selfie in seated {
            seats.send(selfie).unwrap();
        }
        drop(seats);
        clerk.run(&waiting);
    }

    fn new_request() -> (ProbeRequest, oneshot::Receiver<Result<ProbeFace, ProbeServiceError>>) {
        let (answer, answered) = oneshot::channel();
        let (selfie, span, since) = (Bytes::from_static(b"no picture"), Span::none(), Instant::now());
        (ProbeRequest { selfie, reply: answer, span, queued_at: since }, answered)
    }

    #[test]
    fn a_cancelled_request_is_not_processed() {
        let (gone, answered) = new_request();
        drop(answered);
        let pace = rate_of_one_second(1);
        serve_all(vec![gone], &pace);
        assert_eq!(pace.waiting.load(Ordering::Acquire), 0);
        assert_eq!(pace.micros_per_selfie.load(Ordering::Relaxed), 1_000_000, "it was examined");
    }

    #[test]
    fn a_request_behind_a_cancelled_one_is_served() {
        let (gone, answered) = new_request();
        drop(answered);
        let (present, mut answered) = new_request();
        let pace = rate_of_one_second(2);
        serve_all(vec![gone, present], &pace);
        assert_eq!(answered.try_recv(), Ok(Err(ProbeServiceError::Unreadable)));
        assert_eq!(pace.waiting.load(Ordering::Acquire), 0);
        assert!(pace.micros_per_selfie.load(Ordering::Relaxed) < 1_000_000);
    }
}
