//! Leases work and opens its tickets: where backpressure ends. Knows nothing of what is done with a photo.
//!
//! Fresh photos fill the free space of the first edge. Suspects, photos whose earlier lease ended without a word,
//! may be what ended it: each is worked on strictly alone, so that only it is counted when it does so again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use photofinish_store::traits::{Lease, LeaseRequest};

use crate::engine::fault::{Component, Outage, UNKNOWN_STAGE};
use crate::engine::leases::LeaseTable;
use crate::engine::runner::Exit;
use crate::engine::stage_stats::StageStats;
use crate::engine::store_client::StoreClient;
use crate::engine::ticket::{InFlight, Ticket};

/// How long an empty queue is left alone unless somebody calls: what a confirmed photo waits at worst when it was
/// confirmed by another process.
const IDLE_POLL: Duration = Duration::from_millis(200);

/// How often a full edge is looked at: far below what a photo takes, far above what a look costs.
const FULL_BACKOFF: Duration = Duration::from_millis(5);

/// How often an idle feed asks for suspects.
const SUSPECT_POLL_WHEN_IDLE: Duration = Duration::from_secs(1);

/// How often a busy feed asks for suspects; each one found costs the time in which the pipeline runs empty.
const SUSPECT_POLL_WHEN_BUSY: Duration = Duration::from_secs(10);

/// When photos are in flight and none has come a stage further for so long, the threads that have them hang. Longer than
/// any healthy batch: `index` may need 8 rounds of uploads of 30 s each, and `read` a second for each of 256 cells of a
/// photo.
const STALL_TIMEOUT: Duration = Duration::from_secs(1800);

/// .. and never before a lease would have lapsed so many times, where an operator wants long ones.
const STALL_TIMEOUT_LEASES: u32 = 2;

/// The thread that leases.
pub(crate) struct Feed {
    pub(crate) leases: Arc<LeaseTable>,
    pub(crate) store: StoreClient,
    pub(crate) outlet: Sender<InFlight<Arc<Lease>>>,
    /// Rings when the API has confirmed something, or when the feed shall look at its flags.
    pub(crate) wakeup: Receiver<()>,
    /// No more work, what is in flight ends in peace.
    pub(crate) is_draining: Arc<AtomicBool>,
    pub(crate) lease_ttl: Duration,
    pub(crate) stats: Arc<StageStats>,
}

impl Feed {
    /// Leases until the generation drains or ends.
    pub(crate) fn run(self) -> Exit {
        let stalled = STALL_TIMEOUT.max(self.lease_ttl.saturating_mul(STALL_TIMEOUT_LEASES));
        self.run_with_stall_timeout(stalled)
    }

    /// The same, where photos that do not end for `stalled` hang.
    pub(crate) fn run_with_stall_timeout(self, stalled: Duration) -> Exit {
        match self.lease_until_stopped(stalled) {
            Ok(exit) => exit,
            Err(outage) => Exit::Outage(outage),
        }
    }

    fn lease_until_stopped(&self, stalled: Duration) -> Result<Exit, Outage> {
        let mut asked_for_suspects: Option<Instant> = None;
        let mut watch = StallDetector::new(&self.leases, stalled);
        while !self.is_stopped() {
            watch.check()?;
            let patience =
                if self.leases.in_flight() == 0 { SUSPECT_POLL_WHEN_IDLE } else { SUSPECT_POLL_WHEN_BUSY };
            if asked_for_suspects.is_none_or(|asked| asked.elapsed() >= patience) {
                match self.process_suspects(stalled)? {
                    Some(exit) => return Ok(exit),
                    None => asked_for_suspects = Some(Instant::now()),
                }
            }
            let capacity = self.outlet.capacity().unwrap_or(1);
            let free = capacity.saturating_sub(self.outlet.len());
            // Not one by one: a lease call is a transaction, and three quarters of the edge still wait.
            if free < capacity.div_ceil(4) {
                self.wait_for_wakeup(FULL_BACKOFF);
                continue;
            }
            let leases = self.lease_photos(free, false)?;
            let is_empty = leases.len() < free;
            for photo in leases {
                if self.outlet.send(photo).is_err() {
                    return Ok(Exit::DownstreamClosed);
                }
            }
            if is_empty {
                self.wait_for_wakeup(IDLE_POLL);
            }
        }
        Ok(Exit::Drained)
    }

    /// Works on suspects, one after the other, each alone, until there is none.
    fn process_suspects(&self, stalled: Duration) -> Result<Option<Exit>, Outage> {
        while !self.is_stopped() {
            if self.leases.in_flight() > 0 && !self.is_suspect_waiting()? {
                return Ok(None);
            }
            if !self.wait_until_empty(stalled, || self.is_stopped())? {
                return Ok(None);
            }
            let Some(suspect) = self.lease_photos(1, true)?.pop() else { return Ok(None) };
            suspect.ticket.span().in_scope(|| tracing::info!("a photo is tried again, alone"));
            if self.outlet.send(suspect).is_err() {
                return Ok(Some(Exit::DownstreamClosed));
            }
            // Not on to the next round, nor to fresh photos, before this one has ended.
            self.wait_until_empty(stalled, || self.store.kill_switch.is_set())?;
        }
        Ok(None)
    }

    /// Waits until no photo is in flight, or it is over; whether none is.
    ///
    /// # Errors
    /// When threads hang: otherwise a suspect would never come to its turn.
    fn wait_until_empty(&self, stalled: Duration, is_over: impl Fn() -> bool) -> Result<bool, Outage> {
        let mut watch = StallDetector::new(&self.leases, stalled);
        while !self.leases.wait_until_empty(IDLE_POLL) {
            if is_over() {
                return Ok(false);
            }
            watch.check()?;
        }
        Ok(true)
    }

    /// Looks by taking one and giving it back at once, which counts no attempt: it must not stay leased while others
    /// are in flight, one of which may end this process.
    fn is_suspect_waiting(&self) -> Result<bool, Outage> {
        // Its ticket, dropped here, has the keeper give it back.
        Ok(self.lease_photos(1, true)?.pop().is_some())
    }

    /// Takes photos. Every one has its ticket before anything else can go wrong.
    fn lease_photos(&self, limit: usize, suspects: bool) -> Result<Vec<InFlight<Arc<Lease>>>, Outage> {
        let request = LeaseRequest { limit, ttl: self.lease_ttl, suspects };
        let measured = self.stats.start_batch();
        let leases = self
            .store
            .call(Component::Database, self.leases.queue().lease(request))?
            .map_err(Outage::from_queue_error)?;
        measured.finish(leases.len());
        let in_flight = |lease| {
            let lease = Arc::new(lease);
            InFlight { ticket: Ticket::open(&self.leases, Arc::clone(&lease)), item: lease }
        };
        let leased: Vec<_> = leases.into_iter().map(in_flight).collect();
        // An answer that came when the generation was given up: a thread that hangs may keep the edge open, and what is put
        // into it would stay there for ever. Their tickets, dropped here, give them back.
        Ok(if self.store.kill_switch.is_set() { Vec::new() } else { leased })
    }

    fn wait_for_wakeup(&self, at_most: Duration) {
        // Timeout, bell or a bell that nobody can ring any more: the loop looks at its flags in each case.
        let _rang = self.wakeup.recv_timeout(at_most);
    }

    fn is_stopped(&self) -> bool {
        self.is_draining.load(Ordering::Acquire) || self.store.kill_switch.is_set()
    }
}

/// Looks whether photos go on.
struct StallDetector<'b> {
    leases: &'b LeaseTable,
    timeout: Duration,
    progress_count: u64,
    last_progress_at: Instant,
}

impl<'b> StallDetector<'b> {
    fn new(leases: &'b LeaseTable, timeout: Duration) -> Self {
        Self { leases, timeout, progress_count: leases.progress_count(), last_progress_at: Instant::now() }
    }

    /// Has a look.
    ///
    /// # Errors
    /// When photos are in flight and none has come further for `stalled`. With their generation the threads that hang
    /// are given up, and their photos' leases: otherwise the pipeline would stand still for ever.
    fn check(&mut self) -> Result<(), Outage> {
        let (in_flight, steps) = (self.leases.in_flight(), self.leases.progress_count());
        if in_flight == 0 || steps != self.progress_count {
            (self.progress_count, self.last_progress_at) = (steps, Instant::now());
        } else if self.last_progress_at.elapsed() >= self.timeout {
            let photos =
                format!("none of {in_flight} photos has gone on for {:?}: threads hang", self.timeout);
            return Err(Outage::new(UNKNOWN_STAGE, photos));
        }
        Ok(())
    }
}
