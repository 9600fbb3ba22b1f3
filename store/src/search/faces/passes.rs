//! Passes over the faces of an album. Searches that come while one is under way share the next: a pass reads the whole album,
//! and reading it costs more than multiplying what was read with some more probes.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use photofinish_kernels::quantised::Scanner;
use tokio::sync::{RwLock, oneshot};

use super::gpu::GpuAlbums;
use super::matrix::pass::Pass;
use super::matrix::shortlist::ShortlistedFace;
use super::residency::AlbumFaces;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::cost::thread_cpu_time;
use crate::search::scoring::FaceQuery;
use crate::traits::Result;

/// Most probes of one pass. A pass of 32 takes three to four times as long as one of 1 with AVX-512 VNNI, six to eight times with
/// AVX2, and more than twenty times with neither (`cargo xtask bench search`), which is how much longer the first search of it
/// waits: see [`limit_probes`].
const MAX_PROBES: usize = 32;

/// Fewest probes that a pass is limited to: with fewer it mostly reads, and all searches together would take longer.
const MIN_PROBES: usize = 8;

/// How long a pass may take before those after it get fewer probes. A selfie takes two or three, and a client
/// that waits a second is to be answered.
const PASS_TIME: Duration = Duration::from_millis(100);

/// Rows times probes for which one thread more is worth starting: about two milliseconds of work, forty times what starting
/// a thread costs.
const THREAD_SCORES: usize = 128 * 1024;

/// Threads of a pass. Beyond this the memory of most machines gives no more.
const MAX_THREADS: usize = 8;

static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));

/// What makes passes.
#[derive(Clone)]
pub(super) struct PassDevices {
    pub(super) scanner: Scanner,
    pub(super) gpu: Option<Arc<GpuAlbums>>,
}

impl PassDevices {
    /// Returns a shortlist per query.
    fn make_pass(&self, faces: &AlbumFaces, queries: &[&FaceQuery]) -> Vec<Vec<ShortlistedFace>> {
        let threads = count_threads(faces.matrix.len(), queries.len());
        let gpu = self.gpu.as_ref().and_then(|albums| {
            let pass = albums.begin_pass(&faces.on_gpu, &faces.matrix, Instant::now())?;
            Some((albums, pass))
        });
        let pass = Pass { scanner: self.scanner, threads, gpu: gpu.as_ref().map(|(_, pass)| pass) };
        let shortlists = faces.matrix.shortlist(&pass, queries);
        if let Some((albums, pass)) = gpu {
            albums.end_pass(pass, Instant::now());
        }
        shortlists
    }
}

/// Which pass of its own a search waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its first.
    New,
    /// A later one: such searches go before new ones, so that what was begun is answered.
    Continued,
}

impl Progress {
    /// That of a search's first pass in this attempt, counted from 1.
    pub(super) fn of_attempt(attempt: usize) -> Self {
        if attempt == 1 { Self::New } else { Self::Continued }
    }
}

/// The searches of one album that wait for a pass over it.
#[derive(Default)]
pub(super) struct SharedPasses {
    state: Mutex<PassState>,
}

struct PassState {
    is_running: bool,
    waiting: Vec<WaitingSearch>,
    /// Probes of the next pass.
    max_probes: usize,
    #[cfg(test)]
    passes: usize,
}

impl Default for PassState {
    fn default() -> Self {
        Self {
            is_running: false,
            waiting: Vec::new(),
            max_probes: MAX_PROBES,
            #[cfg(test)]
            passes: 0,
        }
    }
}

/// A search that waits. It does not lock the faces meanwhile: a queue of searches keeps no update of the album waiting.
struct WaitingSearch {
    queries: Vec<FaceQuery>,
    progress: Progress,
    /// Those of all searches that wait here.
    faces: Arc<RwLock<AlbumFaces>>,
    /// Gets `None` if the faces have left memory.
    shortlists: oneshot::Sender<Option<Shortlists>>,
}

/// What a pass found for a search.
#[derive(Debug)]
pub(super) struct Shortlists {
    /// One for each query.
    pub(super) found: Vec<Vec<ShortlistedFace>>,
    /// Its share of the CPU time of the pass.
    pub(super) cpu: Duration,
}

impl SharedPasses {
    /// Returns a shortlist per query, after the next pass over `faces`, whose passes these are, as they are by then; `None` if
    /// they have been dropped by then, to be read again.
    pub(super) async fn shortlist(
        self: &Arc<Self>,
        devices: PassDevices,
        faces: Arc<RwLock<AlbumFaces>>,
        queries: Vec<FaceQuery>,
        progress: Progress,
    ) -> Result<Option<Shortlists>> {
        let (shortlists, outcome) = oneshot::channel();
        let was_running = {
            let mut state = self.lock();
            state.waiting.push(WaitingSearch { queries, progress, faces, shortlists });
            std::mem::replace(&mut state.is_running, true)
        };
        if !was_running {
            let mut running = RunningPasses { passes: Arc::clone(self), has_ended: false };
            tokio::task::spawn_blocking(move || while running.run_next(&devices) {});
        }
        // Fails when a pass panics or the runtime stops.
        outcome.await.map_err(|_| StoreError::new(StoreErrorKind::Unavailable, "score faces"))
    }

    fn lock(&self) -> MutexGuard<'_, PassState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that makes the passes. When it ends, by a panic too, the next search starts another one.
struct RunningPasses {
    passes: Arc<SharedPasses>,
    /// Whether it has found nobody waiting, so that the passes are not its own any more.
    has_ended: bool,
}

impl RunningPasses {
    /// Makes a pass for those that wait; returns false when nobody does, and another thread is then started for the next.
    fn run_next(&mut self, devices: &PassDevices) -> bool {
        let Some(lock) = self.find_faces() else { return false };
        // Locked for one pass only: an update that waits gets its turn between two of them.
        let faces = lock.blocking_read();
        let searches = {
            let mut state = self.passes.lock();
            // The clients of these have gone, also while an update was waited for.
            state.waiting.retain(|search| !search.shortlists.is_closed());
            let max_probes = state.max_probes;
            let next = take_next(&mut state.waiting, max_probes);
            #[cfg(test)]
            {
                state.passes += next.len().min(1);
            }
            next
        };
        if searches.is_empty() || faces.change.is_none() {
            for search in searches {
                drop(search.shortlists.send(None));
            }
            return true;
        }
        let queries: Vec<&FaceQuery> = searches.iter().flat_map(|search| &search.queries).collect();
        let probes = queries.len();
        let (before, start) = (thread_cpu_time(), Instant::now());
        let mut shortlists = devices.make_pass(&faces, &queries).into_iter();
        let cpu = thread_cpu_time().saturating_sub(before);
        // Where so few faces take long, it is the machine and not the pass. Only tests have so small an album here: the cache
        // scores it without a shared pass.
        if faces.matrix.len().saturating_mul(MAX_PROBES) > THREAD_SCORES {
            let mut state = self.passes.lock();
            state.max_probes = limit_probes(state.max_probes, probes, start.elapsed());
        }
        // Before the searches go on: a client that has its answer finds that nobody uses the faces for it any more.
        drop(faces);
        drop(lock);
        for search in searches {
            let own = search.queries.len();
            let found = shortlists.by_ref().take(own).collect();
            drop(search.faces);
            let cpu = cpu.mul_f64(own as f64 / probes as f64);
            // A client may have gone meanwhile.
            drop(search.shortlists.send(Some(Shortlists { found, cpu })));
        }
        true
    }

    /// Returns the faces for which searches wait; ends the passes if none does.
    fn find_faces(&mut self) -> Option<Arc<RwLock<AlbumFaces>>> {
        let mut state = self.passes.lock();
        let faces = state.waiting.first().map(|search| Arc::clone(&search.faces));
        state.is_running = faces.is_some();
        self.has_ended = faces.is_none();
        faces
    }
}

impl Drop for RunningPasses {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut state = self.passes.lock();
            state.is_running = false;
            // Those that wait fail: what they would meet is what ended this thread.
            let failed = std::mem::take(&mut state.waiting);
            drop(state);
            drop(failed);
        }
    }
}

/// Returns how many probes the next pass has, after one of `probes` under the limit `max_probes` took `time`: as many as take
/// [`PASS_TIME`] at that rate, in steps of at most a half or twice: a single pass may have waited for a processor. After a short
/// pass that was not full they are no more than before.
fn limit_probes(max_probes: usize, probes: usize, time: Duration) -> usize {
    let affordable = (probes as f64 * PASS_TIME.as_secs_f64() / time.as_secs_f64().max(1e-6)) as usize;
    let limit = if time > PASS_TIME {
        affordable.clamp(max_probes / 2, max_probes)
    } else {
        affordable.min(2 * probes).max(max_probes)
    };
    limit.clamp(MIN_PROBES, MAX_PROBES)
}

/// Takes the searches that share the next pass: all that fit in `max_probes`, and at least one.
///
/// Continued ones come first. Of the new ones the longest and the shortest waiting take turns: where more come than can be
/// answered, those that have waited longest are about to leave, and who is answered in the order of coming alone has left
/// by then, one after the other.
fn take_next(waiting: &mut Vec<WaitingSearch>, max_probes: usize) -> Vec<WaitingSearch> {
    let probes: Vec<(Progress, usize)> =
        waiting.iter().map(|search| (search.progress, search.queries.len())).collect();
    let mut is_taken = vec![false; waiting.len()];
    let mut free = max_probes;
    for (position, index) in order(&probes).into_iter().enumerate() {
        let (_, count) = probes[index];
        if count > free && position > 0 {
            break;
        }
        free = free.saturating_sub(count);
        is_taken[index] = true;
    }
    let mut is_taken = is_taken.into_iter();
    waiting.extract_if(.., |_| is_taken.next().unwrap_or(false)).collect()
}

/// Returns the indices of the searches in the order in which they are taken.
fn order(searches: &[(Progress, usize)]) -> Vec<usize> {
    let with = |progress: Progress| {
        (0..searches.len()).filter(move |index| searches[*index].0 == progress).collect::<Vec<_>>()
    };
    let (mut order, mut new) = (with(Progress::Continued), VecDeque::from(with(Progress::New)));
    while let Some(oldest) = new.pop_front() {
        order.push(oldest);
        order.extend(new.pop_back());
    }
    order
}

/// Returns how many threads make a pass.
fn count_threads(rows: usize, probes: usize) -> usize {
    (rows.saturating_mul(probes) / THREAD_SCORES).clamp(1, MAX_THREADS.min(*CORES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::encoding::vector_to_bytes;
    use crate::model::ids::{FaceId, PhotoId};
    use crate::model::photo::{BoundingBox, Embedding};
    use crate::search::faces::matrix::{FaceMatrix, IndexedFace, UnlimitedMemory};
    use crate::search::faces::source::Change;
    use crate::search::scoring::{HitsPer, ScoreRule};
    use photofinish_kernels::device::Device;

    fn cpu() -> PassDevices {
        PassDevices { scanner: Scanner::new(&Device::Cpu), gpu: None }
    }

    /// Faces in all directions of a plane, one per degree.
    fn make_faces() -> AlbumFaces {
        let mut matrix = FaceMatrix::default();
        for degree in 0..360 {
            let face = IndexedFace {
                id: FaceId(degree),
                photo: PhotoId::generate(),
                bounding_box: BoundingBox { top: 0.0, left: 0.0, width: 0.1, height: 0.1 },
                model: "net@1",
                vector: &vector_to_bytes(&direction(degree)),
            };
            matrix.push(&face, &UnlimitedMemory).unwrap();
        }
        AlbumFaces { change: Some(Change::new(1)), matrix, ..AlbumFaces::default() }
    }

    fn direction(degree: i64) -> [f32; 2] {
        let angle = (degree as f32).to_radians();
        [angle.cos(), angle.sin()]
    }

    fn make_query(degree: i64) -> FaceQuery {
        let probe = Embedding { model: "net@1".into(), vector: direction(degree).to_vec() };
        FaceQuery { probe, k: 1, per: HitsPer::Face, scores: 0.5..2.0, rule: ScoreRule::default() }
    }

    fn make_waiting(
        progress: Progress,
        probes: usize,
    ) -> (WaitingSearch, oneshot::Receiver<Option<Shortlists>>) {
        let (shortlists, receiver) = oneshot::channel();
        let queries = (0..probes as i64).map(make_query).collect();
        (WaitingSearch { queries, progress, faces: Arc::default(), shortlists }, receiver)
    }

    /// Calls `test` with a runtime whose one thread for passes is busy, and with what makes it free.
    fn with_busy_pass_thread<F: Future<Output = ()>>(test: impl FnOnce(std::sync::mpsc::Sender<()>) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async move {
            drop(tokio::task::spawn_blocking(move || released.recv()));
            test(release).await;
        });
    }

    /// Starts searches of two probes each, and returns when they wait.
    async fn start_searches(
        faces: &Arc<RwLock<AlbumFaces>>,
        probes: impl Iterator<Item = i64>,
    ) -> Vec<tokio::task::JoinHandle<Option<Shortlists>>> {
        let passes = Arc::clone(&faces.read().await.passes);
        let start = |number: i64| {
            let (faces, passes) = (Arc::clone(faces), Arc::clone(&passes));
            tokio::spawn(async move {
                let queries = vec![make_query(number), make_query(number + 180)];
                passes.shortlist(cpu(), faces, queries, Progress::New).await.unwrap()
            })
        };
        let searches = probes.map(start).collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        searches
    }

    #[test]
    fn searches_that_wait_share_a_pass_and_each_gets_its_own_faces() {
        with_busy_pass_thread(async |release| {
            let faces = Arc::new(RwLock::new(make_faces()));
            let passes = Arc::clone(&faces.read().await.passes);
            let mut searches = start_searches(&faces, 0..41).await;
            let gone = searches.pop().unwrap();
            gone.abort();
            assert!(gone.await.unwrap_err().is_cancelled());
            release.send(()).unwrap();
            for (number, search) in searches.into_iter().enumerate() {
                let shortlists = search.await.unwrap().unwrap().found;
                for (degree, faces) in [number, number + 180].into_iter().zip(shortlists) {
                    assert!(faces.iter().any(|face| face.face.0 == degree as i64), "degree {degree}");
                    assert!(faces.len() < 30, "{} faces for degree {degree}", faces.len());
                }
            }
            // 80 probes, 32 at once.
            assert_eq!(passes.lock().passes, 3);
            // The next search starts another thread.
            let again = passes.shortlist(cpu(), faces, vec![make_query(7)], Progress::Continued).await;
            assert_eq!(again.unwrap().unwrap().found.len(), 1);
        });
    }

    #[test]
    fn searches_that_wait_hold_up_no_update_and_see_what_it_made() {
        with_busy_pass_thread(async |release| {
            let faces = Arc::new(RwLock::new(make_faces()));
            let searches = start_searches(&faces, 0..2).await;
            let mut updated = faces.try_write().unwrap();
            updated.matrix = FaceMatrix::default();
            drop(updated);
            release.send(()).unwrap();
            for search in searches {
                assert!(search.await.unwrap().unwrap().found.iter().all(Vec::is_empty));
            }
        });
    }

    #[test]
    fn searches_are_told_when_the_faces_they_wait_for_have_left_memory() {
        with_busy_pass_thread(async |release| {
            let faces = Arc::new(RwLock::new(make_faces()));
            // More than one pass takes.
            let searches = start_searches(&faces, 0..40).await;
            faces.try_write().unwrap().clear();
            release.send(()).unwrap();
            for search in searches {
                assert!(search.await.unwrap().is_none());
            }
        });
    }

    #[test]
    fn continued_searches_come_first_and_of_new_ones_old_and_young_take_turns() {
        let (new, continued) = (Progress::New, Progress::Continued);
        let searches = [(new, 2), (continued, 1), (new, 2), (new, 2), (continued, 1), (new, 2)];
        assert_eq!(order(&searches), [1, 4, 0, 5, 2, 3]);
        assert!(order(&[]).is_empty());
    }

    /// Searches of three passes each come faster than they can be answered, and leave after four: some are answered, the
    /// patient one too.
    #[test]
    fn searches_that_leave_soon_are_answered_although_more_come_than_can_be() {
        const PATIENCE: usize = 4;
        let mut waiting = Vec::new();
        let (mut answered, mut is_patient_answered) = (0, false);
        let mut receivers: Vec<(usize, usize, oneshot::Receiver<Option<Shortlists>>)> = Vec::new();
        for time in 0..40 {
            for number in 0..20 {
                let (search, receiver) = make_waiting(Progress::New, 2);
                waiting.push(search);
                let is_patient = (time, number) == (10, 10);
                receivers.push((if is_patient { usize::MAX } else { time + PATIENCE }, 1, receiver));
            }
            waiting.retain(|search| !search.shortlists.is_closed());
            for search in take_next(&mut waiting, MAX_PROBES) {
                drop(search.shortlists.send(None));
            }
            let mut left = Vec::new();
            for (until, passes, mut receiver) in receivers {
                match receiver.try_recv() {
                    Ok(_) if passes == 3 => {
                        answered += 1;
                        is_patient_answered |= until == usize::MAX;
                    }
                    Ok(_) if until > time => {
                        let (search, receiver) = make_waiting(Progress::Continued, 1);
                        waiting.push(search);
                        left.push((until, passes + 1, receiver));
                    }
                    Ok(_) => {}
                    Err(_) if until > time => left.push((until, passes, receiver)),
                    Err(_) => {}
                }
            }
            receivers = left;
        }
        // 32 probes a pass, four a search: eight a pass at best.
        // In the order of coming alone 17, with continued ones first 46.
        assert!(answered > 150, "{answered} answered of at most 320");
        assert!(is_patient_answered);
    }

    #[test]
    fn a_pass_has_as_many_probes_as_the_time_of_those_before_allows() {
        let seconds = Duration::from_secs_f64;
        // Passes whose time is what reading costs, and so much a probe.
        let settle = |reading: f64, probe: f64| {
            (0..20).fold(MAX_PROBES, |limit, _| {
                limit_probes(limit, limit, seconds(reading + probe * limit as f64))
            })
        };
        assert_eq!(settle(0.002, 0.0005), MAX_PROBES);
        let limit = settle(0.03, 0.007);
        assert!((8..=10).contains(&limit), "{limit} probes");
        assert_eq!(settle(0.5, 0.1), MIN_PROBES);
        assert_eq!(limit_probes(MAX_PROBES, 1, seconds(9.0)), MAX_PROBES / 2);
        // Back to many when the machine is idle again, and not because a search alone was fast.
        assert_eq!(
            (0..2).fold(MIN_PROBES, |limit, _| limit_probes(limit, limit, seconds(0.001))),
            MAX_PROBES
        );
        assert_eq!(limit_probes(16, 1, seconds(0.001)), 16);
        assert_eq!(limit_probes(16, 1, seconds(0.2)), MIN_PROBES);
        assert_eq!(limit_probes(8, 8, Duration::ZERO), 16);
    }

    #[test]
    fn only_large_albums_and_many_probes_are_worth_several_threads() {
        assert_eq!(count_threads(20_000, 1), 1);
        assert_eq!(count_threads(1_000_000, 1), MAX_THREADS.min(*CORES).min(7));
        assert_eq!(count_threads(usize::MAX, 32), MAX_THREADS.min(*CORES));
    }
}
