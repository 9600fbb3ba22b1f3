//! One or a few at a time, the organizations in turn: whoever asks for much delays itself. Another waits until something of
//! what is running has ended, and for one of each organization before it. Used where no more can be done at once, or more would
//! take as long together: loading the faces of an album into memory, writing to a database file, and reading it. Searches of
//! small albums have turns of each organization's own: see `OrganizationTurns`.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::model::ids::OrganizationId;

tokio::task_local! {
    static ORGANIZATION: Cell<Option<OrganizationId>>;
}

/// Runs work on behalf of an organization: where the store serves one at a time, it waits in that organization's turns.
/// Work outside of this is the service's own. A task that the work spawns is outside.
pub async fn on_behalf_of<T>(organization: OrganizationId, work: impl Future<Output = T>) -> T {
    ORGANIZATION.scope(Cell::new(Some(organization)), work).await
}

/// Runs work that finds out for itself on whose behalf it is, and says so with [`continue_on_behalf_of`].
pub async fn on_behalf_of_later_known<T>(work: impl Future<Output = T>) -> T {
    ORGANIZATION.scope(Cell::new(None), work).await
}

/// From here on, this work is on behalf of an organization. Without effect outside of [`on_behalf_of_later_known`] and
/// [`on_behalf_of`].
pub fn continue_on_behalf_of(organization: OrganizationId) {
    // Fails outside of them alone.
    ORGANIZATION.try_with(|current| current.set(Some(organization))).ok();
}

/// The organization on whose behalf this task runs.
pub(crate) fn current_organization() -> Option<OrganizationId> {
    ORGANIZATION.try_with(Cell::get).ok().flatten()
}

/// Gives out one turn at a time, or a few. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Mutex<Queue>>);

struct Queue {
    /// Turns that nobody has; none while somebody waits.
    free: u32,
    order: Order,
    /// The organizations with waiting callers, the next one first.
    lanes: VecDeque<Lane>,
}

/// Which of an organization's callers is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The one that has waited longest.
    Arrival,
    /// The one that has waited longest and the one that came last, by turns: where more come than can be served, those that
    /// have waited longest are about to leave, and who serves them alone serves nobody in the end.
    OldestAndNewest,
}

/// The callers of one organization that wait, in the order of their arrival; at least one.
struct Lane {
    /// `None` stands for the service itself, which has turns as an organization has.
    organization: Option<OrganizationId>,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    /// Whether the next one is the one that came last, by [`Order::OldestAndNewest`].
    is_newest_next: bool,
}

/// A turn, passed on when it is dropped.
pub(crate) struct Turn {
    /// `None` for one that nobody took.
    turns: Option<Turns>,
}

impl Default for Turns {
    fn default() -> Self {
        Self::with_places(1)
    }
}

impl Turns {
    /// Gives out so many turns at a time.
    pub(crate) fn with_places(places: u32) -> Self {
        Self::with_order(places, Order::Arrival)
    }

    /// Gives out so many turns at a time to callers that leave soon: of each organization the one that has waited longest and
    /// the one that came last, by turns.
    pub(crate) fn for_impatient(places: u32) -> Self {
        Self::with_order(places, Order::OldestAndNewest)
    }

    fn with_order(places: u32, order: Order) -> Self {
        Self(Arc::new(Mutex::new(Queue { free: places, order, lanes: VecDeque::new() })))
    }

    /// Waits for a turn. A caller that stops waiting leaves its place.
    pub(crate) async fn take(&self, organization: Option<OrganizationId>) -> Turn {
        let turn = {
            let mut queue = self.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return Turn { turns: Some(self.clone()) };
            }
            queue.join(organization)
        };
        // Fails only when the queue is dropped with its senders, and `self` keeps it.
        turn.await.unwrap_or(Turn { turns: None })
    }

    /// Gives the turn to the next that waits.
    fn pass_on(&self) {
        loop {
            let mut queue = self.lock();
            let Some(next) = queue.next() else {
                queue.free += 1;
                return;
            };
            drop(queue);
            match next.send(Turn { turns: Some(self.clone()) }) {
                Ok(()) => return,
                // Has stopped waiting. Its turn was not taken, so it is not passed on when it is dropped.
                Err(mut turn) => turn.turns = None,
            }
        }
    }

    /// Each change of the queue is complete in itself.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn join(&mut self, organization: Option<OrganizationId>) -> oneshot::Receiver<Turn> {
        let (sender, receiver) = oneshot::channel();
        match self.lanes.iter_mut().find(|lane| lane.organization == organization) {
            Some(lane) => lane.waiting.push_back(sender),
            None => {
                let waiting = [sender].into();
                self.lanes.push_back(Lane { organization, waiting, is_newest_next: false });
            }
        }
        receiver
    }

    /// Takes the next caller of the organization whose turn it is, which then has the last turn.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some(mut lane) = self.lanes.pop_front() {
            lane.waiting.retain(|caller| !caller.is_closed());
            let next = if lane.is_newest_next { lane.waiting.pop_back() } else { lane.waiting.pop_front() };
            let Some(next) = next else { continue };
            lane.is_newest_next = self.order == Order::OldestAndNewest && !lane.is_newest_next;
            if !lane.waiting.is_empty() {
                self.lanes.push_back(lane);
            }
            return Some(next);
        }
        None
    }
}

/// Turns of each organization for itself: what one waits for in its turn keeps no other waiting.
pub(crate) struct OrganizationTurns {
    places: u32,
    by_organization: Mutex<HashMap<Option<OrganizationId>, Turns>>,
}

impl OrganizationTurns {
    /// Gives out so many turns at a time to each organization, as [`Turns::for_impatient`] does.
    pub(crate) fn for_impatient(places: u32) -> Self {
        Self { places, by_organization: Mutex::default() }
    }

    /// Waits for a turn of this organization. A caller that stops waiting leaves its place.
    pub(crate) async fn take(&self, organization: Option<OrganizationId>) -> Turn {
        let turns = {
            let mut all = self.by_organization.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever has a turn or waits for one has a reference too.
            all.retain(|_, turns| Arc::strong_count(&turns.0) > 1);
            all.entry(organization).or_insert_with(|| Turns::for_impatient(self.places)).clone()
        };
        turns.take(organization).await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn organizations_take_turns_and_those_who_left_are_passed_over() {
        let turns = Turns::default();
        let (large, small) = (Some(OrganizationId::generate()), None);
        let first = turns.take(large).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let callers: Vec<_> = [(large, "a"), (large, "b"), (large, "c"), (small, "d"), (small, "e")]
            .into_iter()
            .map(|(organization, name)| {
                let (turns, order) = (turns.clone(), Arc::clone(&order));
                tokio::spawn(async move {
                    let _turn = turns.take(organization).await;
                    order.lock().unwrap().push(name);
                })
            })
            .collect();
        while turns.lock().lanes.iter().map(|lane| lane.waiting.len()).sum::<usize>() < callers.len() {
            tokio::task::yield_now().await;
        }
        callers[1].abort();
        tokio::task::yield_now().await;
        drop(first);
        for caller in callers {
            assert!(caller.await.map_or_else(|error| error.is_cancelled(), |()| true));
        }
        assert_eq!(*order.lock().unwrap(), ["a", "d", "c", "e"]);
        assert!(turns.lock().free == 1 && turns.lock().lanes.is_empty());
    }

    #[tokio::test]
    async fn of_impatient_callers_the_oldest_and_the_newest_are_next_by_turns() {
        let turns = Turns::for_impatient(1);
        let first = turns.take(None).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut callers = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            let (own, order) = (turns.clone(), Arc::clone(&order));
            callers.push(tokio::spawn(async move {
                let _turn = own.take(None).await;
                order.lock().unwrap().push(name);
            }));
            while turns.lock().lanes.front().map_or(0, |lane| lane.waiting.len()) < callers.len() {
                tokio::task::yield_now().await;
            }
        }
        drop(first);
        for caller in callers {
            caller.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["a", "e", "b", "d", "c"]);
    }

    #[tokio::test]
    async fn with_more_places_as_many_have_a_turn_at_once() {
        let turns = Turns::with_places(2);
        let (large, small) = (Some(OrganizationId::generate()), Some(OrganizationId::generate()));
        let (first, second) = (turns.take(large).await, turns.take(large).await);
        let mut waiting = Box::pin(turns.take(large));
        let mut other = Box::pin(turns.take(small));
        assert!(
            futures_util::poll!(&mut waiting).is_pending() && futures_util::poll!(&mut other).is_pending()
        );
        drop(first);
        let third = waiting.await;
        assert!(futures_util::poll!(&mut other).is_pending());
        drop(second);
        drop(other.await);
        drop(third);
        assert_eq!(turns.lock().free, 2);
    }
}
