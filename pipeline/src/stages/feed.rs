//! Leases photos and opens their tickets. Backpressure ends here: the feed leases only what the first edge has space for.
//! It knows nothing of what is done with a photo.
//!
//! While the edge is full, the feed looks now and then whether photos of organizations wait that have few in it, and then
//! leases a few, so that nobody waits behind the photos of others. Whose photos come is known only when they are leased: what
//! is of an organization with many goes back, which counts no attempt.
//!
//! Crash suspects are photos whose previous lease expired, so they may have crashed the process that had them. Each is
//! processed with nothing else in flight in the process, in no lane, so that a second crash counts only against it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use photofinish_store::model::cost::Spent;
use photofinish_store::model::ids::OrganizationId;
use photofinish_store::traits::{Lease, LeaseKind, LeaseRequest};

use crate::engine::edge::{EdgeSender, PhotoSender};
use crate::engine::fault::{Component, Outage, UNKNOWN_STAGE};
use crate::engine::leases::LeaseTable;
use crate::engine::runner::Exit;
use crate::engine::stage_stats::StageStats;
use crate::engine::store_client::StoreClient;
use crate::engine::suspect_gate::{ClosedGate, SuspectGate};
use crate::engine::ticket::{InFlight, Ticket};
use crate::stages::long_photos::{Admission, LongPhotos};
use crate::stages::lookout::{Look, Lookout, SearchPause};

/// The pause while the queue is empty, unless the feed is woken: the longest time for which a photo waits that another
/// process confirmed.
const IDLE_POLL: Duration = Duration::from_millis(200);

/// The pause while the first edge is full: far shorter than the processing of a photo, far longer than a check takes.
const FULL_BACKOFF: Duration = Duration::from_millis(5);

/// How often a feed with nothing in flight checks for crash suspects.
const SUSPECT_POLL_WHEN_IDLE: Duration = Duration::from_secs(1);

/// How often a busy feed checks for crash suspects. Each one found costs the time in which the pipeline runs empty.
const SUSPECT_POLL_WHEN_BUSY: Duration = Duration::from_secs(10);

/// See [`SuspectPatience`].
const SUSPECT_PATIENCE: Duration = Duration::from_secs(30);

/// When photos are in flight and none has taken a step for so long, their threads hang. Longer than any healthy batch:
/// `index` may need 8 rounds of uploads of 30 s each, reading 50 MB over a slow link may take 14 minutes; every other step takes
/// seconds, and cells of a photo are steps of their own.
const STALL_TIMEOUT: Duration = Duration::from_secs(900);

/// The number of photos to lease when there is a place for a long one: one of each of two organizations.
const MIN_LEASE_LIMIT: usize = 2;

/// The number of photos to lease while there is no place for long ones, in search of others. A message queue may have
/// several dozen long photos before the first other one.
const SEARCH_LIMIT: usize = 16;

/// The stall timeout is at least this many lease lifetimes, in case the operator configures long ones.
const STALL_TIMEOUT_LEASES: u32 = 2;

/// For how long a crash suspect keeps photos from all other lanes while one lane, its own or another, does not end those that
/// it has: its device may hang. They then go on, and the next time they wait for twice as long, so that no stream of slow photos keeps the
/// suspect waiting forever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuspectPatience {
    least: Duration,
    now: Duration,
}

impl Default for SuspectPatience {
    fn default() -> Self {
        Self::from_least(SUSPECT_PATIENCE)
    }
}

impl SuspectPatience {
    /// Begins with this.
    pub(crate) fn from_least(least: Duration) -> Self {
        Self { least, now: least }
    }

    fn extend(&mut self, most: Duration) {
        self.now = self.now.saturating_mul(2).min(most);
    }

    fn reset(&mut self) {
        self.now = self.least;
    }
}

/// The first stage, which runs on its own thread without the runner. `P` is what the steps of the next stage find.
pub(crate) struct Feed<P> {
    pub(crate) leases: Arc<LeaseTable>,
    /// Closed while another lane has a crash suspect.
    pub(crate) suspect_gate: Arc<SuspectGate>,
    pub(crate) store: StoreClient,
    pub(crate) outlet: EdgeSender<Arc<Lease>, P>,
    pub(crate) long_photos: LongPhotos,
    /// Receives a message when photos were confirmed or the flags changed.
    pub(crate) wakeup: Receiver<()>,
    /// Set when no more photos may be leased but those in flight are finished.
    pub(crate) is_draining: Arc<AtomicBool>,
    pub(crate) lease_ttl: Duration,
    pub(crate) suspect_patience: SuspectPatience,
    pub(crate) stats: Arc<StageStats>,
}

impl<P: Send> Feed<P> {
    /// Leases photos until the generation drains or ends.
    pub(crate) fn run(self) -> Exit {
        let stall_timeout = STALL_TIMEOUT.max(self.lease_ttl.saturating_mul(STALL_TIMEOUT_LEASES));
        self.run_with_stall_timeout(stall_timeout)
    }

    /// Does the same with another stall timeout.
    pub(crate) fn run_with_stall_timeout(mut self, stall_timeout: Duration) -> Exit {
        match self.lease_until_stopped(stall_timeout) {
            Ok(exit) => exit,
            Err(outage) => Exit::Outage(outage),
        }
    }

    fn lease_until_stopped(&mut self, stall_timeout: Duration) -> Result<Exit, Outage> {
        let mut suspects_checked_at: Option<Instant> = None;
        let leases = Arc::clone(&self.leases);
        let mut stall_detector = StallDetector::new(&leases, stall_timeout);
        let mut lease_limit = usize::MAX;
        let (mut lookout, mut search_pause) = (Lookout::start(), SearchPause::default());
        while !self.is_stopped() {
            stall_detector.check()?;
            if !self.suspect_gate.is_open_for(&self.leases) {
                // They count as in flight, and the other lane waits until nothing is.
                self.long_photos.give_back();
                self.wait_for_wakeup(FULL_BACKOFF);
                continue;
            }
            let is_idle = self.suspect_gate.in_flight() == 0;
            let suspect_poll = if is_idle { SUSPECT_POLL_WHEN_IDLE } else { SUSPECT_POLL_WHEN_BUSY };
            if suspects_checked_at.is_none_or(|checked_at| checked_at.elapsed() >= suspect_poll) {
                match self.process_suspects(stall_timeout)? {
                    Some(exit) => return Ok(exit),
                    None => suspects_checked_at = Some(Instant::now()),
                }
            }
            let seated: Vec<_> = std::iter::from_fn(|| self.long_photos.next_with_seat()).collect();
            if !self.send(seated) {
                return Ok(Exit::DownstreamClosed);
            }
            let capacity = self.outlet.capacity();
            let free = capacity.saturating_sub(self.outlet.len());
            // Photos are not leased one by one, because each lease call is a transaction. Until a quarter of the edge is
            // free, enough photos wait in it.
            if free < capacity.div_ceil(4) {
                if lookout.is_due() && !self.look_for_others(&mut lookout)? {
                    return Ok(Exit::DownstreamClosed);
                }
                if self.wait_for_wakeup(FULL_BACKOFF) {
                    lookout.hasten();
                }
                continue;
            }
            let limit = free.min(lease_limit);
            let photos = self.lease_fresh_photos(limit)?;
            lookout.note_lease();
            let is_queue_empty = photos.len() < limit;
            let leased = photos.len();
            let Admission { admitted, surplus } = self.long_photos.admit(photos);
            if !self.send(admitted) {
                return Ok(Exit::DownstreamClosed);
            }
            // What is given back was leased in vain: the next call asks for few more than were of use now.
            lease_limit = match (surplus, leased - surplus) {
                (0, _) => lease_limit.saturating_mul(2),
                (_, 0) if self.wait_for_place(search_pause.extend()) => MIN_LEASE_LIMIT,
                (_, 0) => SEARCH_LIMIT,
                (_, useful) => 4 * useful,
            };
            if surplus == 0 || leased > surplus || self.long_photos.has_free_seat() {
                search_pause.reset();
            }
            if is_queue_empty && surplus == 0 {
                self.wait_for_wakeup(IDLE_POLL);
            }
        }
        Ok(Exit::Drained)
    }

    /// Leases a few photos although the first edge is full: those that still fit, and those of organizations that have few
    /// there. Others go back to the queue. Returns `false` when the next stage has ended.
    fn look_for_others(&mut self, lookout: &mut Lookout) -> Result<bool, Outage> {
        if !self.do_others_wait() {
            lookout.note(Look::NobodyWaits);
            return Ok(true);
        }
        let free = self.outlet.capacity().saturating_sub(self.outlet.len());
        let limit = free.max(lookout.limit());
        let mut look = Look::InVain;
        for photo in self.lease_fresh_photos(limit)? {
            let fits = self.outlet.len() < self.outlet.capacity();
            if !fits && !self.has_place_for_other(photo.ticket.organization()) {
                photo.ticket.return_unused();
                continue;
            }
            let Admission { admitted, surplus } = self.long_photos.admit(vec![photo]);
            if !self.send(admitted) {
                return Ok(false);
            }
            look = match (surplus, fits) {
                (0, false) => Look::Found,
                (0, true) if look == Look::InVain => Look::HadRoom,
                _ => look,
            };
        }
        lookout.note(look);
        Ok(true)
    }

    /// Whether photos wait of organizations that have few in the first edge, and there is a place for one.
    fn do_others_wait(&self) -> bool {
        if self.outlet.len() >= 2 * self.outlet.capacity() {
            return false;
        }
        let crowding = self.outlet.organizations_with(self.share_of_full());
        let others_wait = self.leases.queue().has_waiting_beside(&crowding);
        // What is wrong with the database, the next lease says.
        matches!(self.store.call_cancellable(Component::Database, others_wait), Ok(Ok(true)))
    }

    /// Whether the first edge, which is full, takes one more photo of the organization. The photos beyond its capacity are
    /// no more than that, however many organizations there are.
    fn has_place_for_other(&self, organization: OrganizationId) -> bool {
        let crowding = self.outlet.organizations_with(self.share_of_full());
        self.outlet.len() < 2 * self.outlet.capacity() && !crowding.contains(&organization)
    }

    /// So many photos of an organization are few no more.
    fn share_of_full(&self) -> usize {
        self.outlet.capacity().div_ceil(8)
    }

    /// Sends photos on, whatever space there is: what is leased is bounded, and while the feed waited for space for one it
    /// would lease none of another organization. Returns `false` when the next stage has ended.
    fn send(&self, photos: Vec<InFlight<Arc<Lease>>>) -> bool {
        photos.into_iter().all(|photo| self.outlet.send(photo).is_ok())
    }

    /// Waits until a long photo can be sent on, which it returns, or other photos may have come.
    fn wait_for_place(&self, pause: Duration) -> bool {
        let started_at = Instant::now();
        let mut left = pause;
        let may_lease = || !self.is_stopped() && self.suspect_gate.is_open_for(&self.leases);
        while !self.long_photos.has_free_seat() && started_at.elapsed() < left && may_lease() {
            if self.wakeup.recv_timeout(FULL_BACKOFF) != Err(RecvTimeoutError::Timeout) {
                left = SearchPause::hasten(pause);
            }
        }
        self.long_photos.has_free_seat()
    }

    /// Processes crash suspects one after the other until there are no more, or another lane does so.
    fn process_suspects(&mut self, stall_timeout: Duration) -> Result<Option<Exit>, Outage> {
        if self.suspect_gate.in_flight() > 0 && !self.is_suspect_waiting()? {
            return Ok(None);
        }
        let Some(gate) = self.suspect_gate.close_for_others(&self.leases) else { return Ok(None) };
        while !self.is_stopped() {
            // They count as in flight, and none would be sent on.
            self.long_photos.give_back();
            let waiting_since = Instant::now();
            let is_cancelled = || self.is_stopped() || self.is_out_of_patience(waiting_since);
            if !self.wait_until_empty(&gate, stall_timeout, is_cancelled)? {
                self.suspect_patience.extend(stall_timeout);
                return Ok(None);
            }
            self.suspect_patience.reset();
            let Some(suspect) = self.lease_suspect()? else { return Ok(None) };
            suspect.ticket.span().in_scope(|| tracing::info!("retrying crash suspect alone"));
            if self.outlet.send(suspect).is_err() {
                return Ok(Some(Exit::DownstreamClosed));
            }
            // Neither another suspect nor a fresh photo may start before this one has ended.
            self.wait_until_empty(&gate, stall_timeout, || self.store.kill_switch.is_set())?;
        }
        Ok(None)
    }

    /// Waits until no photo is in flight in any lane or `is_cancelled` returns `true`. Returns whether none is in flight.
    ///
    /// # Errors
    /// When this lane is stalled: otherwise a crash suspect would wait forever. The feeds of others notice that themselves.
    fn wait_until_empty(
        &self,
        gate: &ClosedGate,
        stall_timeout: Duration,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<bool, Outage> {
        let mut stall_detector = StallDetector::new(&self.leases, stall_timeout);
        while !gate.wait_until_empty(IDLE_POLL) {
            if is_cancelled() {
                return Ok(false);
            }
            stall_detector.check()?;
        }
        Ok(true)
    }

    /// Whether other lanes may lease nothing for longer than this one has patience for a crash suspect, be it because of their
    /// photos or its own.
    fn is_out_of_patience(&self, since: Instant) -> bool {
        since.elapsed() >= self.suspect_patience.now && self.suspect_gate.has_others(&self.leases)
    }

    /// Leases a crash suspect and gives it back at once, which counts no attempt. It must not stay leased while other
    /// photos are in flight, because one of those may crash this process.
    fn is_suspect_waiting(&self) -> Result<bool, Outage> {
        let Some(_pass) = self.suspect_gate.pass(&self.leases) else { return Ok(false) };
        let suspect = self.lease_suspect()?;
        Ok(suspect.map(|photo| photo.ticket.return_unused()).is_some())
    }

    /// Leases photos; none while another lane has a crash suspect.
    fn lease_fresh_photos(&self, limit: usize) -> Result<Vec<InFlight<Arc<Lease>>>, Outage> {
        let Some(_pass) = self.suspect_gate.pass(&self.leases) else { return Ok(Vec::new()) };
        self.lease_photos(LeaseRequest { limit, ttl: self.lease_ttl, kind: LeaseKind::Fresh })
    }

    fn lease_suspect(&self) -> Result<Option<InFlight<Arc<Lease>>>, Outage> {
        Ok(self
            .lease_photos(LeaseRequest { limit: 1, ttl: self.lease_ttl, kind: LeaseKind::CrashSuspect })?
            .pop())
    }

    /// Leases photos. Each has its ticket before anything can fail.
    fn lease_photos(&self, request: LeaseRequest) -> Result<Vec<InFlight<Arc<Lease>>>, Outage> {
        let timer = self.stats.start_batch();
        let leases = self
            .store
            .call(Component::Database, self.leases.queue().lease(request))?
            .map_err(Outage::from_queue_error)?;
        let Spent { cpu, .. } = timer.finish(leases.len());
        let cpu = cpu / u32::try_from(leases.len()).unwrap_or(u32::MAX).max(1);
        let open_ticket = |lease: Lease| {
            lease.spent.add(self.stats.name(), Spent { cpu, ..Spent::default() });
            let lease = Arc::new(lease);
            InFlight { ticket: Ticket::open(&self.leases, Arc::clone(&lease)), item: lease }
        };
        let photos: Vec<_> = leases.into_iter().map(open_ticket).collect();
        // The generation may have been ended during the call. A thread that hangs may then keep the edge open, and photos
        // sent into it would stay there forever, so they are given back by dropping their tickets.
        Ok(if self.store.kill_switch.is_set() { Vec::new() } else { photos })
    }

    /// Returns whether it was woken. The loop checks its flags after a timeout and a disconnected channel alike.
    fn wait_for_wakeup(&self, timeout: Duration) -> bool {
        self.wakeup.recv_timeout(timeout).is_ok()
    }

    fn is_stopped(&self) -> bool {
        self.is_draining.load(Ordering::Acquire) || self.store.kill_switch.is_set()
    }
}

/// Detects that photos in flight make no progress.
struct StallDetector<'a> {
    leases: &'a LeaseTable,
    timeout: Duration,
    progress_count: u64,
    last_progress_at: Instant,
}

impl<'a> StallDetector<'a> {
    fn new(leases: &'a LeaseTable, timeout: Duration) -> Self {
        Self { leases, timeout, progress_count: leases.progress_count(), last_progress_at: Instant::now() }
    }

    /// Checks for progress since the last call.
    ///
    /// # Errors
    /// When photos are in flight and none has passed a stage for the timeout. The outage ends the generation and abandons
    /// the hanging threads and their leases: otherwise the pipeline would hang forever.
    fn check(&mut self) -> Result<(), Outage> {
        let (in_flight, progress_count) = (self.leases.in_flight(), self.leases.progress_count());
        if in_flight == 0 || progress_count != self.progress_count {
            (self.progress_count, self.last_progress_at) = (progress_count, Instant::now());
        } else if self.last_progress_at.elapsed() >= self.timeout {
            let seconds = self.timeout.as_secs_f64();
            let reason = format!("no progress of {in_flight} photos in flight for {seconds} s: threads hang");
            return Err(Outage::new(UNKNOWN_STAGE, reason));
        }
        Ok(())
    }
}
