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

use crate::meters::StageMeter;
use crate::metric_names as names;
use crate::probe::{Examiner, Refusal};
use crate::runner::panic_message;
use crate::settings::Limits;
use crate::spans::Work;
use crate::sync::lock;

/// A selfie's largest face.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeFace {
    /// Unit length.
    pub vector: Vec<f32>,
    /// Name and version of the network that made it.
    pub model: String,
}

/// Why a selfie has no vector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeskError {
    /// Nobody is in it.
    #[error("no face in the picture")]
    NoFace,
    /// It is no picture, a damaged one, or one beyond the limits.
    #[error("not a picture that can be read")]
    Unreadable,
    /// All seats are taken.
    #[error("busy, try again in {try_again_in:?}")]
    Busy {
        /// When a seat should be free.
        try_again_in: Duration,
    },
    /// The networks do not serve now.
    #[error("the networks do not serve now")]
    Unavailable,
}

/// The desk. Dropped or stopped it takes no more selfies; those seated are still answered.
#[derive(Debug)]
pub struct ProbeDesk {
    seats: Mutex<Option<Sender<Seated>>>,
    pace: Arc<Pace>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A selfie that waits.
struct Seated {
    selfie: Bytes,
    answer: oneshot::Sender<Result<ProbeFace, DeskError>>,
    /// Of the request that brought it.
    span: Span,
    since: Instant,
}

/// How fast the desk works, for those who have to come again.
#[derive(Debug)]
struct Pace {
    waiting: AtomicUsize,
    /// A running mean.
    micros_a_selfie: AtomicU64,
}

/// What a selfie takes until one was measured.
const FIRST_GUESS: Duration = Duration::from_millis(200);

/// How long a network that does not come up is left alone.
const PAUSE: Duration = Duration::from_secs(2);

/// The stage name in metrics.
const STAGE: &str = "probe";

impl ProbeDesk {
    /// Opens a desk with `seats` seats, at least one. Its networks come up in the background.
    pub fn start(models: Arc<dyn ModelFactory>, limits: Limits, seats: usize) -> Self {
        let (sender, receiver) = bounded(seats.max(1));
        let guess = u64::try_from(FIRST_GUESS.as_micros()).unwrap_or(u64::MAX);
        let pace = Arc::new(Pace { waiting: AtomicUsize::new(0), micros_a_selfie: AtomicU64::new(guess) });
        let clerk = Clerk { models, limits, pace: Arc::clone(&pace), meter: StageMeter::new(STAGE) };
        let thread = std::thread::Builder::new().name("probe-0".into()).spawn(move || clerk.work(&receiver));
        let thread = thread
            .inspect_err(
                |error| tracing::error!(error = %error, "the probe desk has no thread, selfies are refused"),
            )
            .ok();
        Self { seats: Mutex::new(Some(sender)), pace, thread: Mutex::new(thread) }
    }

    /// The vector of the selfie's largest face.
    ///
    /// # Errors
    /// See [`DeskError`].
    pub async fn embed(&self, selfie: Bytes) -> Result<ProbeFace, DeskError> {
        let (answer, answered) = oneshot::channel();
        let seated = Seated { selfie, answer, span: Span::current(), since: Instant::now() };
        let answer = match self.take_seat(seated) {
            // The thread ended before it came to this one.
            Ok(()) => answered.await.unwrap_or(Err(DeskError::Unavailable)),
            Err(refused) => Err(refused),
        };
        metrics::counter!(names::PROBES, "answer" => label(&answer)).increment(1);
        answer
    }

    fn take_seat(&self, seated: Seated) -> Result<(), DeskError> {
        let seats = lock(&self.seats);
        let seats = seats.as_ref().ok_or(DeskError::Unavailable)?;
        self.pace.waiting.fetch_add(1, Ordering::AcqRel);
        seats.try_send(seated).map_err(|refused| {
            self.pace.waiting.fetch_sub(1, Ordering::AcqRel);
            match refused {
                TrySendError::Full(_) => DeskError::Busy { try_again_in: self.pace.until_free() },
                TrySendError::Disconnected(_) => DeskError::Unavailable,
            }
        })
    }

    /// Takes no more selfies, answers those seated, ends the thread. Blocks.
    pub fn stop(&self) {
        lock(&self.seats).take();
        let Some(thread) = lock(&self.thread).take() else { return };
        if thread.join().is_err() {
            tracing::error!("the probe desk panicked");
        }
    }
}

impl Pace {
    /// How long all who wait will take, in whole seconds, at least one.
    fn until_free(&self) -> Duration {
        let waiting = self.waiting.load(Ordering::Acquire) as u64;
        let micros = waiting.saturating_mul(self.micros_a_selfie.load(Ordering::Relaxed));
        Duration::from_secs(micros.div_ceil(1_000_000).max(1))
    }

    /// Notes that somebody left without an answer: that says nothing of how fast answers are.
    fn left(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    fn note(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let before = self.micros_a_selfie.load(Ordering::Relaxed);
        self.micros_a_selfie.store((before.saturating_mul(3).saturating_add(micros)) / 4, Ordering::Relaxed);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The thread behind the desk.
struct Clerk {
    models: Arc<dyn ModelFactory>,
    limits: Limits,
    pace: Arc<Pace>,
    meter: StageMeter,
}

impl Clerk {
    fn work(&self, seats: &Receiver<Seated>) {
        let mut examiner = self.hire();
        let mut tried_at = Instant::now();
        while let Ok(Seated { selfie, answer, span, since }) = seats.recv() {
            // Who gave up while waiting has nobody to read an answer, and keeps others from theirs.
            if answer.is_closed() {
                self.pace.left();
                continue;
            }
            if examiner.is_none() && tried_at.elapsed() >= PAUSE {
                examiner = self.hire();
                tried_at = Instant::now();
            }
            let began = Instant::now();
            let work = Work::begin(span, STAGE, (1, since.elapsed()));
            let measured = self.meter.measure();
            let result = {
                let _entered = work.enter();
                self.examine(&mut examiner, &selfie)
            };
            measured.settle(1);
            // Before the answer: the request's span must not end while one of its own is open.
            drop(work);
            self.pace.note(began.elapsed());
            // The runner may have gone.
            let _gone = answer.send(result);
        }
    }

    /// Examines a selfie; the examiner is another one afterwards when it did not survive it, or none.
    fn examine(&self, examiner: &mut Option<Examiner>, selfie: &[u8]) -> Result<ProbeFace, DeskError> {
        let Some(present) = examiner.as_mut() else { return Err(DeskError::Unavailable) };
        let refusal = match catch_unwind(AssertUnwindSafe(|| present.examine(selfie))) {
            Ok(Ok(face)) => return Ok(face),
            Ok(Err(refusal)) => refusal,
            Err(panic) => {
                self.meter.panicked();
                tracing::warn!(message = panic_message(panic.as_ref()), "a selfie panicked");
                *examiner = self.hire();
                return Err(DeskError::Unreadable);
            }
        };
        match refusal {
            Refusal::NoFace => Err(DeskError::NoFace),
            Refusal::Unreadable(poison) => {
                tracing::debug!(detail = %poison, "a selfie cannot be read");
                Err(DeskError::Unreadable)
            }
            Refusal::Down(outage) => {
                tracing::error!(reason = %outage, "the probe desk's networks fail, selfies are refused");
                *examiner = self.hire();
                Err(DeskError::Unavailable)
            }
        }
    }

    fn hire(&self) -> Option<Examiner> {
        let hired = catch_unwind(AssertUnwindSafe(|| Examiner::new(self.models.as_ref(), self.limits)));
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

fn label(answer: &Result<ProbeFace, DeskError>) -> &'static str {
    match answer {
        Ok(_) => "face",
        Err(DeskError::NoFace) => "no_face",
        Err(DeskError::Unreadable) => "unreadable",
        Err(DeskError::Busy { .. }) => "busy",
        Err(DeskError::Unavailable) => "unavailable",
    }
}

#[cfg(test)]
mod tests {
    use photofinish_models::fakes::FakeModels;

    use super::*;

    const LIMITS: Limits = Limits { max_file_bytes: 1 << 20, max_pixels: 1_000_000 };

    fn pace_of_one_second(waiting: usize) -> Arc<Pace> {
        Arc::new(Pace { waiting: AtomicUsize::new(waiting), micros_a_selfie: AtomicU64::new(1_000_000) })
    }

    fn work_on(seated: Vec<Seated>, pace: &Arc<Pace>) {
        let clerk = Clerk {
            models: Arc::new(FakeModels::default()),
            limits: LIMITS,
            pace: Arc::clone(pace),
            meter: StageMeter::new(STAGE),
        };
        let (seats, waiting) = bounded(seated.len().max(1));
        for selfie in seated {
            seats.send(selfie).unwrap();
        }
        drop(seats);
        clerk.work(&waiting);
    }

    fn seat() -> (Seated, oneshot::Receiver<Result<ProbeFace, DeskError>>) {
        let (answer, answered) = oneshot::channel();
        let (selfie, span, since) = (Bytes::from_static(b"no picture"), Span::none(), Instant::now());
        (Seated { selfie, answer, span, since }, answered)
    }

    #[test]
    fn who_has_gone_is_not_examined() {
        let (gone, answered) = seat();
        drop(answered);
        let pace = pace_of_one_second(1);
        work_on(vec![gone], &pace);
        assert_eq!(pace.waiting.load(Ordering::Acquire), 0);
        assert_eq!(pace.micros_a_selfie.load(Ordering::Relaxed), 1_000_000, "it was examined");
    }

    #[test]
    fn who_waits_behind_one_who_has_gone_is_answered() {
        let (gone, answered) = seat();
        drop(answered);
        let (present, mut answered) = seat();
        let pace = pace_of_one_second(2);
        work_on(vec![gone, present], &pace);
        assert_eq!(answered.try_recv(), Ok(Err(DeskError::Unreadable)));
        assert_eq!(pace.waiting.load(Ordering::Acquire), 0);
        assert!(pace.micros_a_selfie.load(Ordering::Relaxed) < 1_000_000);
    }
}
