//! Seats: how many connections are served at once, in all and per address.
//!
//! No connection waits for a seat. Where all are taken, the connection that has waited longest for its client gives way: one
//! whose next request has not come, or not all of its body, or whose client has stopped reading. Where all are at work, the
//! new one is refused.

mod activity;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use self::activity::{Activity, AnswerGuard, BodyWait};
use crate::metrics::{self as names, CloseReason};

/// The most connections of one process: each may keep a head and a chunk of a body in memory.
const MAX_SEATS: usize = 4096;
/// Files of the process that are no connections of clients: the database, the queue, models, the log, the admin port,
/// and connections that are being refused.
const RESERVED_FILES: u64 = 384;
/// Files of one connection: its own, and one to read or write: a file of the local storage, or a connection to a bucket.
const FILES_PER_SEAT: u64 = 2;
/// Fewest seats: with a file limit this low files run out before seats do.
const MIN_SEATS: usize = 16;
/// Time for which all connections may be at work.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections to the admin port: probes, and a few scrapers.
const ADMIN_SEATS: usize = 64;

/// How many connections are served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatLimits {
    /// From all addresses together.
    pub total: usize,
    /// From one address (one network of 64 bits in IPv6), unless it is that of a proxy of ours.
    pub per_address: usize,
    /// How long connections may be refused before the service is not ready: a peak is shorter.
    pub patience: Duration,
}

impl SeatLimits {
    /// Returns the limits that a number of open files allows.
    ///
    /// One address has half of the seats: no single client shuts out all others, and it is enough for the clients of a
    /// network that share an address.
    pub fn for_open_files(files: u64) -> Self {
        let seats = files.saturating_sub(RESERVED_FILES) / FILES_PER_SEAT;
        let total = usize::try_from(seats).unwrap_or(MAX_SEATS).clamp(MIN_SEATS, MAX_SEATS);
        Self { total, per_address: total / 2, patience: PATIENCE }
    }

    /// Returns the limits of the admin port, on which probes and scrapers often have one address.
    pub(crate) const fn admin() -> Self {
        Self { total: ADMIN_SEATS, per_address: ADMIN_SEATS, patience: PATIENCE }
    }
}

/// The seats of one listener. Cheap to clone; clones share the seats.
#[derive(Clone, Debug)]
pub struct Seats(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: SeatLimits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    taken: HashMap<u64, TakenSeat>,
    by_address: HashMap<IpAddr, usize>,
    /// When a connection was refused for the first time since a seat was free.
    full_since: Option<Instant>,
}

#[derive(Debug)]
struct TakenSeat {
    /// `None` where a proxy of ours is at the other end.
    address: Option<IpAddr>,
    activity: Arc<Activity>,
}

impl Seats {
    /// Creates free seats.
    pub fn new(limits: SeatLimits) -> Self {
        Self(Arc::new(Shared { limits, table: Mutex::default() }))
    }

    /// The limits.
    pub fn limits(&self) -> SeatLimits {
        self.0.limits
    }

    /// Returns how many seats are taken.
    pub fn taken(&self) -> usize {
        self.0.lock().taken.len()
    }

    /// Returns for how long connections have been refused without a free seat in between, once it is too long.
    pub(crate) fn full_for(&self) -> Option<Duration> {
        let mut table = self.0.lock();
        let full_for = table.full_since?.elapsed();
        let now = Instant::now();
        // A connection that waits for its client would give way to a new one.
        if table.taken.values().any(|seat| seat.activity.waiting_since(now).is_some()) {
            table.full_since = None;
            return None;
        }
        (full_for >= self.0.limits.patience).then_some(full_for)
    }

    /// Gives a new connection a seat, if necessary that of another one, which is closed; `None` if every connection that
    /// could give way is at work. `address` is that of the client; `None` for a proxy of ours, which stands for many clients
    /// and may have all seats: with the share of one client, most seats would stay free while all clients are refused, and
    /// readiness, which sees only that all seats are taken, would not say so.
    pub(crate) fn take_seat(&self, address: Option<IpAddr>) -> Option<Seat> {
        let address = address.map(group_address);
        let mut table = self.0.lock();
        if address.is_some_and(|address| table.count_from(address) >= self.0.limits.per_address) {
            table.make_room(address)?;
        } else if table.taken.len() >= self.0.limits.total && table.make_room(None).is_none() {
            table.full_since.get_or_insert_with(Instant::now);
            return None;
        }
        let (id, activity) = (table.next_id, Activity::new());
        table.next_id += 1;
        table.taken.insert(id, TakenSeat { address, activity: Arc::clone(&activity) });
        if let Some(address) = address {
            *table.by_address.entry(address).or_default() += 1;
        }
        table.full_since = None;
        Some(Seat { shared: Arc::clone(&self.0), id, activity })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn count_from(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or_default()
    }

    /// Closes the connection that has waited longest for its client, among those of `address` or among all.
    fn make_room(&mut self, address: Option<IpAddr>) -> Option<()> {
        let now = Instant::now();
        loop {
            let candidates =
                self.taken.iter().filter(|(_, seat)| address.is_none() || seat.address == address);
            let waiting = candidates.filter_map(|(id, seat)| Some((seat.activity.waiting_since(now)?, *id)));
            let (since, id) = waiting.min()?;
            // If its client has sent something meanwhile, another connection is chosen.
            if self.taken.get(&id)?.activity.ask_to_leave(since) {
                self.remove(id)?;
                CloseReason::GaveWay.count();
                return Some(());
            }
        }
    }

    fn remove(&mut self, id: u64) -> Option<TakenSeat> {
        let seat = self.taken.remove(&id)?;
        if let Some(address) = seat.address
            && let Some(from_address) = self.by_address.get_mut(&address)
        {
            *from_address -= 1;
            if *from_address == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(seat)
    }
}

/// The seat of one connection; dropping it frees the seat.
#[derive(Debug)]
pub(crate) struct Seat {
    shared: Arc<Shared>,
    id: u64,
    activity: Arc<Activity>,
}

impl Seat {
    /// What the connection is doing.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.shared.lock();
        // A connection that gave way has no seat any more.
        if table.remove(self.id).is_some() {
            table.full_since = None;
        }
    }
}

/// One customer of a network provider has at least 64 bits of IPv6 addresses, so a limit per address would be none.
fn group_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// Reports the number of taken seats of the API to the metrics. Called when they are rendered, which is less often than
/// connections come and go.
pub(crate) fn report(seats: &Seats) {
    metrics::gauge!(names::CONNECTIONS).set(seats.taken() as f64);
    metrics::gauge!(names::CONNECTION_SEATS).set(seats.limits().total as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    fn seats(total: usize, per_address: usize) -> Seats {
        Seats::new(SeatLimits { total, per_address, patience: Duration::ZERO })
    }

    /// Takes a seat for a connection that is at work.
    fn take_busy(seats: &Seats, from: Option<IpAddr>) -> Option<(Seat, AnswerGuard)> {
        let seat = seats.take_seat(from)?;
        let answer = seat.activity().begin_request()?;
        Some((seat, answer))
    }

    #[test]
    fn a_file_limit_leaves_a_file_for_each_connection() {
        let seats = |files| {
            let limits = SeatLimits::for_open_files(files);
            (limits.total, limits.per_address)
        };
        assert_eq!((seats(64), seats(1024)), ((16, 8), (320, 160)));
        assert_eq!((seats(1 << 20), seats(u64::MAX)), ((4096, 2048), (4096, 2048)));
    }

    #[test]
    fn the_connection_that_has_waited_longest_gives_way() {
        let seats = seats(2, 2);
        let (busy, _answer) = take_busy(&seats, address(1)).unwrap();
        let waiting = seats.take_seat(address(2)).unwrap();
        let newcomer = seats.take_seat(address(3)).unwrap();
        assert!(seats.0.lock().taken.contains_key(&busy.id));
        assert!(!seats.0.lock().taken.contains_key(&waiting.id));
        // Its end frees no seat a second time.
        drop(waiting);
        assert_eq!(seats.taken(), 2);
        drop((busy, newcomer));
        assert_eq!(seats.taken(), 0);
        assert!(seats.0.lock().by_address.is_empty());
    }

    #[test]
    fn a_connection_that_gave_way_begins_no_request() {
        let seats = seats(1, 1);
        let waiting = seats.take_seat(address(1)).unwrap();
        let newcomer = seats.take_seat(address(2)).unwrap();
        assert!(waiting.activity().begin_request().is_none(), "it would be dropped half done");
        assert!(newcomer.activity().begin_request().is_some());
    }

    #[test]
    fn connections_of_proxies_may_take_all_seats() {
        let seats = seats(3, 1);
        let busy: Vec<_> = (0..3).map(|_| take_busy(&seats, None).unwrap()).collect();
        assert!(seats.take_seat(None).is_none() && seats.full_for().is_some());
        drop(busy);
        assert_eq!((seats.taken(), seats.full_for()), (0, None));
    }

    #[test]
    fn where_all_are_at_work_a_newcomer_is_refused_and_the_seats_are_full_until_one_is_free() {
        let seats = seats(2, 2);
        let first = take_busy(&seats, address(1)).unwrap();
        let _second = take_busy(&seats, address(2)).unwrap();
        assert_eq!(seats.full_for(), None);
        assert!(seats.take_seat(address(3)).is_none() && seats.full_for().is_some());
        drop(first);
        assert_eq!(seats.full_for(), None);
        assert!(seats.take_seat(address(3)).is_some());
    }

    #[test]
    fn the_seats_are_full_no_longer_once_a_connection_waits_for_its_next_request() {
        let seats = seats(1, 1);
        let (seat, answer) = take_busy(&seats, address(1)).unwrap();
        assert!(seats.take_seat(address(2)).is_none() && seats.full_for().is_some());
        drop(answer);
        assert!(seats.full_for().is_some(), "the response is still being sent");
        assert!(seat.activity().end_flush());
        assert_eq!(seats.full_for(), None);
        // Nor when it works again: nobody was refused since.
        let _answer = seat.activity().begin_request().unwrap();
        assert_eq!(seats.full_for(), None);
    }

    #[test]
    fn an_address_at_its_limit_gets_the_seats_of_its_own_connections_alone() {
        let seats = seats(8, 2);
        let other = seats.take_seat(address(9)).unwrap();
        let _busy = take_busy(&seats, address(1)).unwrap();
        let waiting = seats.take_seat(address(1)).unwrap();
        let newcomer = take_busy(&seats, address(1)).unwrap();
        assert!(!seats.0.lock().taken.contains_key(&waiting.id));
        assert!(seats.take_seat(address(1)).is_none());
        // Others still find a seat, so the seats are not full.
        assert_eq!(seats.full_for(), None);
        assert!(seats.0.lock().taken.contains_key(&other.id));
        drop(newcomer);
        assert!(seats.take_seat(address(1)).is_some());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let group = |text: &str| group_address(text.parse().unwrap());
        assert_eq!(group("2001:db8::1"), group("2001:db8::ffff:1"));
        assert_ne!(group("2001:db8:0:1::1"), group("2001:db8:0:2::1"));
        assert_eq!(Some(group("::ffff:10.0.0.1")), address(1));
    }
}
