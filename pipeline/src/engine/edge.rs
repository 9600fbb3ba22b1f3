//! An edge: the bounded channel between two stages. Organizations are served in turn, so that the photos of one never
//! wait behind the backlog of another. It knows nothing of what stages do.
//!
//! A stage that works on a photo in several steps puts it back after each ([`Inlet::put_back`]) and takes the next one in
//! turn: whoever waits, waits for one step and not for one photo.
//!
//! A thread of a stage never waits with a photo in its hands for space after it. It leaves the photos of an organization in
//! its own edge while the next one is full of theirs ([`PhotoSender::has_space`]), and takes those of others. So a next edge
//! may have as many photos of an organization above its capacity as the stage has threads: those that all began at once. The
//! first edge may have more photos than its capacity for other reasons: see the feed.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use photofinish_store::model::ids::OrganizationId;

use crate::engine::cpu_shares::CpuShare;
use crate::engine::spans::StageSpan;
use crate::engine::sync::lock;
use crate::engine::ticket::InFlight;
use crate::engine::virtual_times::VirtualTimes;

/// A photo that waits for its next step in a stage.
pub(crate) struct OpenPhoto<T, P> {
    pub(crate) photo: InFlight<T>,
    /// What earlier steps found, in their order.
    pub(crate) parts: Vec<P>,
    /// The span of the stage, from the first step on.
    pub(crate) span: Option<StageSpan>,
}

/// The stage at the end of the edge has ended, or the generation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EdgeClosed;

/// An organization that is less behind the others does not go on: steps that take less are not worth it.
const LEAST_LAG: Duration = Duration::from_millis(10);

/// What is called when an edge has space again.
pub(crate) type OnSpace = Box<dyn Fn() + Send + Sync>;

/// The sending end, as the stage before sees it: it does not know the steps of the next stage.
pub(crate) trait PhotoSender<T>: Send + Sync {
    /// Whether the edge has space for a photo of the organization, or is closed, so that nothing can be waited for.
    fn has_space(&self, organization: OrganizationId) -> bool;
    /// Sends a photo, whatever space there is.
    ///
    /// # Errors
    /// When the edge is closed; the photo is then given back to the queue.
    fn send(&self, photo: InFlight<T>) -> Result<(), EdgeClosed>;
    /// Whether the next photo that is sent will be taken at once.
    fn is_awaited(&self) -> bool;
    /// Sets what is called whenever there may be space again. Only the first call counts.
    fn call_on_space(&self, on_space: OnSpace);
}

/// A photo that was taken from an edge, and how long that took.
pub(crate) struct Received<T, P> {
    pub(crate) photo: OpenPhoto<T, P>,
    /// How long there was none.
    pub(crate) starved: Duration,
    /// How long there were only photos with no space after the stage.
    pub(crate) blocked: Duration,
}

/// The only sending end of an edge; threads share it. Its drop tells the receivers that no photos will follow.
pub(crate) struct EdgeSender<T, P>(Arc<Edge<T, P>>);

/// The receiving end of an edge; threads clone it.
pub(crate) struct Inlet<T, P>(Arc<Edge<T, P>>);

struct Edge<T, P> {
    /// The most photos of one organization that wait. Photos of others are not counted: they must not be delayed. What
    /// all of them use together is bounded by the budgets and by what the feed leases.
    capacity: usize,
    state: Mutex<State<T, P>>,
    photo_added: Condvar,
    /// Wakes the threads of the stage before, which wait for space here at their own edge.
    on_space: OnceLock<OnSpace>,
}

struct State<T, P> {
    /// The organizations with waiting photos, in the order of their turns.
    backlogs: VecDeque<Backlog<T, P>>,
    /// What the steps of each organization took.
    times: VirtualTimes,
    /// The threads that wait for a photo.
    receivers: usize,
    has_sender: bool,
    is_closed: bool,
}

/// The waiting photos of an organization, at least one.
struct Backlog<T, P> {
    organization: OrganizationId,
    photos: VecDeque<OpenPhoto<T, P>>,
}

/// Creates an edge with space for `capacity` photos of each organization, at least one.
pub(crate) fn edge<T, P>(capacity: usize) -> (EdgeSender<T, P>, Inlet<T, P>) {
    let edge = Arc::new(Edge {
        capacity: capacity.max(1),
        state: Mutex::new(State {
            backlogs: VecDeque::new(),
            times: VirtualTimes::default(),
            receivers: 0,
            has_sender: true,
            is_closed: false,
        }),
        photo_added: Condvar::new(),
        on_space: OnceLock::new(),
    });
    (EdgeSender(Arc::clone(&edge)), Inlet(edge))
}

impl<T, P> State<T, P> {
    fn len(&self) -> usize {
        self.backlogs.iter().map(|backlog| backlog.photos.len()).sum()
    }

    fn count_of(&self, organization: OrganizationId) -> usize {
        let backlog = self.backlogs.iter().find(|backlog| backlog.organization == organization);
        backlog.map_or(0, |backlog| backlog.photos.len())
    }

    fn has_space(&self, organization: OrganizationId, capacity: usize) -> bool {
        self.is_closed || self.count_of(organization) < capacity
    }

    /// Adds a photo at the end of its organization's backlog.
    fn push(&mut self, photo: OpenPhoto<T, P>) {
        let organization = photo.photo.ticket.organization();
        match self.backlogs.iter_mut().find(|backlog| backlog.organization == organization) {
            Some(backlog) => backlog.photos.push_back(photo),
            None => self.backlogs.push_back(Backlog { organization, photos: [photo].into() }),
        }
    }

    /// Adds a photo that needs more steps at the end of its organization's backlog. Steps differ: a part of a small photo takes
    /// a tenth of the time that a cell of a grid does. So the organization has the next turn as well while every other that waits
    /// has used more time.
    fn push_begun(&mut self, photo: OpenPhoto<T, P>) {
        let organization = photo.photo.ticket.organization();
        self.push(photo);
        if self.is_behind(organization)
            && let Some(at) = self.backlogs.iter().position(|backlog| backlog.organization == organization)
            && let Some(backlog) = self.backlogs.remove(at)
        {
            self.backlogs.push_front(backlog);
        }
    }

    fn is_behind(&self, organization: OrganizationId) -> bool {
        let used = self.times.used_by(organization) + LEAST_LAG;
        let mut others = self.backlogs.iter().map(|backlog| backlog.organization);
        others.all(|other| other == organization || used <= self.times.used_by(other))
    }

    /// Adds a photo behind those at the start of its organization's backlog that have begun. These wait for the same, each in
    /// a place of its own: the one whose turn it is may be any of them, and has to be looked at whichever others wait.
    fn push_waiting(&mut self, photo: OpenPhoto<T, P>) {
        let organization = photo.photo.ticket.organization();
        match self.backlogs.iter_mut().find(|backlog| backlog.organization == organization) {
            Some(Backlog { photos, .. }) => {
                let begun = photos.iter().take_while(|other| !other.parts.is_empty()).count();
                photos.insert(begun, photo);
            }
            None => self.backlogs.push_back(Backlog { organization, photos: [photo].into() }),
        }
    }

    /// Adds a photo at the start of its organization's backlog.
    fn push_first(&mut self, photo: OpenPhoto<T, P>) {
        let organization = photo.photo.ticket.organization();
        match self.backlogs.iter_mut().find(|backlog| backlog.organization == organization) {
            Some(backlog) => backlog.photos.push_front(photo),
            None => self.backlogs.push_back(Backlog { organization, photos: [photo].into() }),
        }
    }

    /// Takes the photo of the organization whose turn it is, among those with space after the stage; it then has the last
    /// turn.
    fn pop(&mut self, has_space: &impl Fn(OrganizationId) -> bool) -> Option<OpenPhoto<T, P>> {
        let next = self.backlogs.iter().position(|backlog| has_space(backlog.organization))?;
        let mut backlog = self.backlogs.remove(next)?;
        let photo = backlog.photos.pop_front();
        if !backlog.photos.is_empty() {
            self.backlogs.push_back(backlog);
        }
        photo
    }
}

impl<T, P> State<T, P> {
    /// Whether a thread waits for the next photo.
    fn is_awaited(&self) -> bool {
        self.backlogs.is_empty() && self.receivers > 0
    }

    /// Takes the shares of the cores from photos that came with one and cannot go on.
    fn take_shares(&mut self) -> Vec<CpuShare> {
        let photos = self.backlogs.iter_mut().flat_map(|backlog| &mut backlog.photos);
        photos.filter_map(|photo| photo.photo.ticket.take_share()).collect()
    }
}

impl<T, P> Edge<T, P> {
    /// Tells whoever waits for space.
    fn report_space(&self) {
        if let Some(on_space) = self.on_space.get() {
            on_space();
        }
    }

    fn add(&self, mut state: MutexGuard<'_, State<T, P>>, mut photo: InFlight<T>) -> Result<(), EdgeClosed> {
        if state.is_closed {
            // Outside of the lock: the drop of a ticket locks the lease table.
            drop(state);
            return Err(EdgeClosed);
        }
        // It was to take a share along to a thread that waits for it, and another photo was faster: who takes that one may wait
        // for the share, which nobody would give back as long as this one lies here.
        let stranded = if state.is_awaited() { None } else { photo.ticket.take_share() };
        state.push(OpenPhoto { photo, parts: Vec::new(), span: None });
        drop(state);
        drop(stranded);
        self.photo_added.notify_one();
        Ok(())
    }
}

impl<T, P> EdgeSender<T, P> {
    /// The space for photos of one organization.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// The number of photos that wait.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0.state).len()
    }

    /// The organizations with so many waiting photos or more.
    pub(crate) fn organizations_with(&self, photos: usize) -> Vec<OrganizationId> {
        let state = lock(&self.0.state);
        let crowded = state.backlogs.iter().filter(|backlog| backlog.photos.len() >= photos);
        crowded.map(|backlog| backlog.organization).collect()
    }
}

impl<T: Send, P: Send> PhotoSender<T> for EdgeSender<T, P> {
    fn has_space(&self, organization: OrganizationId) -> bool {
        lock(&self.0.state).has_space(organization, self.0.capacity)
    }

    fn send(&self, photo: InFlight<T>) -> Result<(), EdgeClosed> {
        self.0.add(lock(&self.0.state), photo)
    }

    fn is_awaited(&self) -> bool {
        lock(&self.0.state).is_awaited()
    }

    fn call_on_space(&self, on_space: OnSpace) {
        let _is_first = self.0.on_space.set(on_space).is_ok();
    }
}

impl<T, P> Drop for EdgeSender<T, P> {
    fn drop(&mut self) {
        lock(&self.0.state).has_sender = false;
        self.0.photo_added.notify_all();
    }
}

impl<T, P> Clone for Inlet<T, P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T, P> Inlet<T, P> {
    /// Takes the next photo in turn of an organization for which `has_space` says that there is space after the stage,
    /// waiting for one. Returns `None` when the edge is closed, or empty and no more photos will be sent.
    pub(crate) fn recv(&self, has_space: impl Fn(OrganizationId) -> bool) -> Option<Received<T, P>> {
        let (mut starved, mut blocked) = (Duration::ZERO, Duration::ZERO);
        let mut state = lock(&self.0.state);
        loop {
            if let Some(photo) = state.pop(&has_space) {
                drop(state);
                self.0.report_space();
                return Some(Received { photo, starved, blocked });
            }
            if state.is_closed || (state.backlogs.is_empty() && !state.has_sender) {
                return None;
            }
            let shares = state.take_shares();
            if !shares.is_empty() {
                // Outside of the lock: whoever gets them looks into this edge.
                drop(state);
                drop(shares);
                state = lock(&self.0.state);
                continue;
            }
            let waiting = if state.backlogs.is_empty() { &mut starved } else { &mut blocked };
            let began_at = Instant::now();
            state.receivers += 1;
            state = self.0.photo_added.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.receivers -= 1;
            *waiting += began_at.elapsed();
        }
    }

    /// Takes the next photo in turn, as [`Self::recv`] does, if there is one.
    pub(crate) fn try_recv(&self, has_space: impl Fn(OrganizationId) -> bool) -> Option<OpenPhoto<T, P>> {
        let photo = lock(&self.0.state).pop(&has_space)?;
        self.0.report_space();
        Some(photo)
    }

    /// The organizations with photos that [`Self::recv`] would take.
    pub(crate) fn organizations(&self, has_space: impl Fn(OrganizationId) -> bool) -> Vec<OrganizationId> {
        let state = lock(&self.0.state);
        state
            .backlogs
            .iter()
            .map(|backlog| backlog.organization)
            .filter(|backlog| has_space(*backlog))
            .collect()
    }

    /// Wakes the threads that wait in [`Self::recv`]: there may be space after the stage.
    pub(crate) fn wake(&self) {
        // Whoever has looked for space without finding any waits already, or still has the lock.
        drop(lock(&self.0.state));
        self.0.photo_added.notify_all();
    }

    /// Records how long a step of an organization took.
    pub(crate) fn record_step(&self, organization: OrganizationId, took: Duration) {
        lock(&self.0.state).times.charge(organization, took);
    }

    /// Puts back a photo that needs more steps, behind the others of its organization and whatever space there is: a
    /// thread that waited for space here would wait for itself.
    pub(crate) fn put_back(&self, photo: OpenPhoto<T, P>) {
        self.put_back_with(photo, State::push_begun);
    }

    /// Puts back a photo that waits for something, before those of its organization that have not begun: they would wait for
    /// the same.
    pub(crate) fn put_back_waiting(&self, photo: OpenPhoto<T, P>) {
        self.put_back_with(photo, State::push_waiting);
    }

    /// Puts back a photo that was taken and not looked at.
    pub(crate) fn put_back_first(&self, photo: OpenPhoto<T, P>) {
        self.put_back_with(photo, State::push_first);
    }

    fn put_back_with(&self, photo: OpenPhoto<T, P>, push: fn(&mut State<T, P>, OpenPhoto<T, P>)) {
        let mut state = lock(&self.0.state);
        if state.is_closed {
            drop(state);
            drop(photo);
            return;
        }
        push(&mut state, photo);
        drop(state);
        self.0.photo_added.notify_one();
    }

    /// The number of photos that wait.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0.state).len()
    }

    /// The space for photos of one organization.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Closes the edge and gives the photos in it back to the queue. Nothing waits for it from now on, even if the thread
    /// at its other end hangs.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.backlogs);
        drop(state);
        drop(waiting);
        self.0.photo_added.notify_all();
        self.0.report_space();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use photofinish_store::traits::Lease;

    use super::*;
    use crate::engine::cpu_shares::{Candidates, CpuShares, ReservedCores};
    use crate::engine::leases::LeaseTable;
    use crate::engine::ticket::Ticket;
    use crate::testing::lease_of;
    use crate::testing::memory_queue::MemoryQueue;

    type TestEdge = (EdgeSender<Arc<Lease>, Infallible>, Inlet<Arc<Lease>, Infallible>);

    fn photo_of(leases: &Arc<LeaseTable>, organization: OrganizationId) -> InFlight<Arc<Lease>> {
        let lease = Arc::new(lease_of(organization));
        InFlight { ticket: Ticket::open(leases, Arc::clone(&lease)), item: lease }
    }

    fn empty_table() -> Arc<LeaseTable> {
        Arc::new(LeaseTable::new(Arc::new(MemoryQueue::default())))
    }

    /// Takes the next photo of a stage with space after it.
    fn recv(inlet: &Inlet<Arc<Lease>, Infallible>) -> Option<OpenPhoto<Arc<Lease>, Infallible>> {
        inlet.recv(|_| true).map(|received| received.photo)
    }

    fn take_owner(inlet: &Inlet<Arc<Lease>, Infallible>) -> OrganizationId {
        recv(inlet).unwrap().photo.item.organization
    }

    #[test]
    fn organizations_are_served_in_turn_whatever_their_backlogs() {
        let leases = empty_table();
        let (large, small) = (OrganizationId::generate(), OrganizationId::generate());
        let (sender, inlet): TestEdge = edge(8);
        for _ in 0..5 {
            sender.send(photo_of(&leases, large)).unwrap();
        }
        assert_eq!(take_owner(&inlet), large);
        sender.send(photo_of(&leases, small)).unwrap();
        sender.send(photo_of(&leases, small)).unwrap();
        let owners: Vec<OrganizationId> = (0..6).map(|_| take_owner(&inlet)).collect();
        assert_eq!(owners, [large, small, large, small, large, large]);
    }

    /// Each has asked for memory, in any order, and only who asked first gets it: with the last one always first in turn, that
    /// one was never looked at while another organization had as many turns.
    #[test]
    fn photos_that_wait_are_looked_at_in_turn_and_before_those_that_have_not_begun() {
        let leases = empty_table();
        let owner = OrganizationId::generate();
        let (sender, inlet): (EdgeSender<Arc<Lease>, ()>, Inlet<Arc<Lease>, ()>) = edge(8);
        for _ in 0..4 {
            sender.send(photo_of(&leases, owner)).unwrap();
        }
        let take = || inlet.recv(|_| true).unwrap().photo;
        let mut taken: Vec<_> = (0..3).map(|_| take()).collect();
        let waiting: Vec<_> = taken.iter().map(|open| open.photo.item.photo).collect();
        for mut open in taken.drain(..) {
            open.parts.push(());
            inlet.put_back_waiting(open);
        }
        let looked_at: Vec<_> = (0..6)
            .map(|_| {
                let open = take();
                let photo = open.photo.item.photo;
                inlet.put_back_waiting(open);
                photo
            })
            .collect();
        assert_eq!(looked_at, [&waiting[..], &waiting[..]].concat());
    }

    #[test]
    fn a_photo_that_is_put_back_waits_for_one_step_of_the_others() {
        let leases = empty_table();
        let (long, short) = (OrganizationId::generate(), OrganizationId::generate());
        let (sender, inlet): TestEdge = edge(1);
        sender.send(photo_of(&leases, long)).unwrap();
        let open = recv(&inlet).unwrap();
        sender.send(photo_of(&leases, long)).unwrap();
        inlet.put_back(open);
        assert_eq!(inlet.len(), 2, "photos are put back whatever space there is");
        sender.send(photo_of(&leases, short)).unwrap();
        let owners: Vec<OrganizationId> = (0..3).map(|_| take_owner(&inlet)).collect();
        assert_eq!(owners, [long, short, long]);
    }

    #[test]
    fn organizations_share_the_time_of_a_stage_and_not_its_steps() {
        let (leases, [large, small]) = (empty_table(), [(); 2].map(|()| OrganizationId::generate()));
        let (sender, inlet): TestEdge = edge(4);
        for owner in [large, small] {
            sender.send(photo_of(&leases, owner)).unwrap();
        }
        let mut turns = Vec::new();
        for _ in 0..15 {
            let photo = recv(&inlet).unwrap();
            let owner = photo.photo.item.organization;
            let took = if owner == large { 70 } else { 20 };
            inlet.record_step(owner, Duration::from_millis(took));
            turns.push(took);
            inlet.put_back(photo);
        }
        assert_eq!(turns, [70, 20, 20, 20, 20, 70, 20, 20, 20, 70, 20, 20, 20, 20, 70]);
        inlet.close();
    }

    #[test]
    fn a_photo_of_who_was_away_waits_for_one_step_and_takes_its_own_in_a_row() {
        let (leases, [busy, away]) = (empty_table(), [(); 2].map(|()| OrganizationId::generate()));
        let (sender, inlet): TestEdge = edge(4);
        sender.send(photo_of(&leases, busy)).unwrap();
        let mut owners = Vec::new();
        for step in 0..13 {
            if step == 5 {
                sender.send(photo_of(&leases, away)).unwrap();
            }
            let photo = recv(&inlet).unwrap();
            let owner = photo.photo.item.organization;
            inlet.record_step(owner, Duration::from_millis(if owner == busy { 90 } else { 30 }));
            owners.push(owner);
            inlet.put_back(photo);
        }
        assert!(owners[..6].iter().all(|owner| *owner == busy), "{owners:?}");
        assert!(owners[6..].iter().all(|owner| *owner == away), "{owners:?}");
        inlet.close();
    }

    #[test]
    fn a_photo_that_could_not_go_on_is_the_next_of_its_organization() {
        let leases = empty_table();
        let (large, small) = (OrganizationId::generate(), OrganizationId::generate());
        let (sender, inlet): TestEdge = edge(4);
        sender.send(photo_of(&leases, large)).unwrap();
        let waiting = recv(&inlet).unwrap();
        let id = waiting.photo.item.id;
        sender.send(photo_of(&leases, large)).unwrap();
        sender.send(photo_of(&leases, small)).unwrap();
        inlet.put_back_first(waiting);
        assert_eq!(recv(&inlet).unwrap().photo.item.id, id);
        assert_eq!([take_owner(&inlet), take_owner(&inlet)], [small, large]);
    }

    #[test]
    fn a_full_edge_has_space_for_another_organization() {
        let leases = empty_table();
        let (large, small) = (OrganizationId::generate(), OrganizationId::generate());
        let (sender, inlet): TestEdge = edge(1);
        sender.send(photo_of(&leases, large)).unwrap();
        assert!(sender.has_space(small) && !sender.has_space(large));
        sender.send(photo_of(&leases, small)).unwrap();
        sender.send(photo_of(&leases, small)).unwrap();
        assert_eq!((sender.organizations_with(2), sender.len()), (vec![small], 3));
        assert_eq!(take_owner(&inlet), large);
        assert!(sender.has_space(large) && !sender.has_space(small));
    }

    #[test]
    fn photos_without_space_after_the_stage_let_others_pass_and_are_taken_when_there_is_space() {
        let leases = empty_table();
        let (large, small) = (OrganizationId::generate(), OrganizationId::generate());
        let (sender, inlet): TestEdge = edge(4);
        let (next_sender, next_inlet): TestEdge = edge(1);
        let upstream = inlet.clone();
        next_sender.call_on_space(Box::new(move || upstream.wake()));
        for owner in [large, large, small] {
            sender.send(photo_of(&leases, owner)).unwrap();
        }
        let take = |inlet: &Inlet<Arc<Lease>, Infallible>| inlet.recv(|owner| next_sender.has_space(owner));
        let first = take(&inlet).unwrap().photo;
        assert_eq!(first.photo.item.organization, large);
        next_sender.send(first.photo).unwrap();
        // The next edge is full of the large organization's photos.
        let second = take(&inlet).unwrap().photo;
        assert_eq!(second.photo.item.organization, small);
        next_sender.send(second.photo).unwrap();
        assert!(inlet.try_recv(|owner| next_sender.has_space(owner)).is_none());
        std::thread::scope(|scope| {
            let waiting =
                std::thread::Builder::new().name("test".into()).spawn_scoped(scope, || take(&inlet));
            let waiting = waiting.unwrap();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(take_owner(&next_inlet), large);
            let received = waiting.join().unwrap().unwrap();
            assert_eq!(received.photo.photo.item.organization, large);
            assert!(received.blocked > Duration::ZERO && received.starved == Duration::ZERO);
        });
        // Once the next stage has ended, nobody waits for space there.
        sender.send(photo_of(&leases, small)).unwrap();
        next_inlet.close();
        assert!(take(&inlet).is_some());
    }

    #[test]
    fn a_closed_edge_gives_its_photos_back_and_nobody_waits_for_it() {
        let leases = empty_table();
        let organization = OrganizationId::generate();
        let (sender, inlet): TestEdge = edge(1);
        sender.send(photo_of(&leases, organization)).unwrap();
        let open = recv(&inlet).unwrap();
        sender.send(photo_of(&leases, organization)).unwrap();
        assert!(!sender.has_space(organization));
        inlet.close();
        assert!(sender.has_space(organization));
        assert_eq!(sender.send(photo_of(&leases, organization)), Err(EdgeClosed));
        inlet.put_back(open);
        assert!(recv(&inlet).is_none());
        assert_eq!(leases.ticket_count(), 0, "every photo went back: {leases:?}");
    }

    #[test]
    fn a_photo_that_cannot_go_on_leaves_its_core_to_others() {
        let (leases, owner) = (empty_table(), OrganizationId::generate());
        let shares = CpuShares::new(2, &ReservedCores::default());
        let candidates: Candidates = Arc::new(Vec::new);
        let _other = shares.take(owner, Arc::clone(&candidates));
        let (sender, inlet): TestEdge = edge(4);
        assert!(!sender.is_awaited());
        let spawn = |name: &str| std::thread::Builder::new().name(name.into());
        let receiving = {
            let inlet = inlet.clone();
            spawn("receiving").spawn(move || inlet.recv(|_| false).is_none()).unwrap()
        };
        while !sender.is_awaited() {
            std::thread::yield_now();
        }
        let mut photo = photo_of(&leases, owner);
        photo.ticket.carry(shares.take(owner, Arc::clone(&candidates)));
        sender.send(photo).unwrap();
        assert!(!sender.is_awaited(), "another photo is there already");
        let (taken, taking) = std::sync::mpsc::channel();
        let waiting = spawn("waiting").spawn(move || taken.send(shares.take(owner, candidates))).unwrap();
        taking.recv_timeout(Duration::from_secs(60)).expect("a photo that waits keeps a core");
        inlet.close();
        assert!(receiving.join().unwrap());
        waiting.join().unwrap().unwrap();
    }

    /// Two threads may see that one waits: the photo that comes second is not taken at once.
    #[test]
    fn a_photo_that_finds_another_before_it_brings_no_core_along() {
        let (leases, owner) = (empty_table(), OrganizationId::generate());
        let shares = CpuShares::new(1, &ReservedCores::default());
        let (sender, inlet): TestEdge = edge(4);
        sender.send(photo_of(&leases, owner)).unwrap();
        let mut second = photo_of(&leases, owner);
        second.ticket.carry(shares.take(owner, Arc::new(Vec::new)));
        sender.send(second).unwrap();
        let (taken, taking) = std::sync::mpsc::channel();
        let waiting = std::thread::Builder::new().name("waiting".into());
        let waiting = waiting.spawn(move || taken.send(shares.take(owner, Arc::new(Vec::new)))).unwrap();
        taking.recv_timeout(Duration::from_secs(60)).expect("the core lies in the edge");
        waiting.join().unwrap().unwrap();
        inlet.close();
    }

    #[test]
    fn receivers_end_when_the_sender_is_gone_and_the_edge_is_empty() {
        let leases = empty_table();
        let (sender, inlet): TestEdge = edge(4);
        sender.send(photo_of(&leases, OrganizationId::generate())).unwrap();
        drop(sender);
        assert!(recv(&inlet).is_some());
        assert!(recv(&inlet).is_none());
    }
}
