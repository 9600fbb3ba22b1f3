//! One or a few at a time, the organizations in turn: whoever asks for much delays itself. Another waits until something of
//! what is running has ended, and for one of each organization before it. Used where no more can be done at once, or more would
//! take as long together: loading the faces of an album into memory, writing to a database file, reading it, and using the
//! connections to a server. Searches of small albums have turns of each organization's own: see `OrganizationTurns`.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::model::ids::OrganizationId;

tokio::task_local! {
    static ORGANIZATION: Cell<Option<OrganizationId>>;
}

/// Runs work on behalf of an organization: where the store serves one at a time, it waits in that organization's turns.
/// Work outside of this is the service's own. A task that the work spawns is outside, but for [`spawn_on_same_behalf`].
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

/// Spawns a task on behalf of the organization on whose behalf this one runs, if there is one.
pub fn spawn_on_same_behalf<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    match current_organization() {
        Some(organization) => tokio::spawn(on_behalf_of(organization, work)),
        None => tokio::spawn(work),
    }
}

/// The organization on whose behalf this task runs.
pub(crate) fn current_organization() -> Option<OrganizationId> {
    ORGANIZATION.try_with(Cell::get).ok().flatten()
}

/// Gives out one turn at a time, or a few. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Mutex<Queue>>);

struct Queue {
    /// Turns that nobody has; none while somebody waits who may have one.
    free: u32,
    /// The most that one organization has at a time.
    most_of_one: u32,
    /// Those that each has, at least one.
    in_use: HashMap<Option<OrganizationId>, u32>,
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
    organization: Option<OrganizationId>,
}

/// Who gets a turn.
struct Next {
    organization: Option<OrganizationId>,
    caller: oneshot::Sender<Turn>,
}

impl Default for Turns {
    fn default() -> Self {
        Self::with_order(1, 1, Order::Arrival)
    }
}

impl Turns {
    /// Gives out so many turns at a time, all but one of them to one organization: whoever comes next need not wait for what
    /// another does.
    pub(crate) fn with_one_for_others(places: u32) -> Self {
        Self::with_order(places, places.saturating_sub(1).max(1), Order::Arrival)
    }

    /// Gives out so many turns at a time to callers that leave soon: of each organization the one that has waited longest and
    /// the one that came last, by turns.
    pub(crate) fn for_impatient(places: u32) -> Self {
        Self::with_order(places, places, Order::OldestAndNewest)
    }

    fn with_order(places: u32, most_of_one: u32, order: Order) -> Self {
        let (in_use, lanes) = (HashMap::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(Queue { free: places, most_of_one, in_use, order, lanes })))
    }

    /// Waits for a turn. A caller that stops waiting leaves its place.
    pub(crate) async fn take(&self, organization: Option<OrganizationId>) -> Turn {
        let turn = {
            let mut queue = self.lock();
            if queue.may_begin(organization) {
                queue.begin(organization);
                return Turn { turns: Some(self.clone()), organization };
            }
            queue.join(organization)
        };
        // Fails only when the queue is dropped with its senders, and `self` keeps it.
        turn.await.unwrap_or(Turn { turns: None, organization })
    }

    /// Ends a turn of an organization, and gives what is free to those that wait.
    fn pass_on(&self, ended: Option<OrganizationId>) {
        let mut queue = self.lock();
        queue.end(ended);
        while let Some(Next { organization, caller }) = queue.next() {
            queue.begin(organization);
            // Outside of the lock: a turn that nobody receives is dropped.
            drop(queue);
            let sent = caller.send(Turn { turns: Some(self.clone()), organization });
            queue = self.lock();
            if let Err(mut turn) = sent {
                turn.turns = None;
                queue.end(organization);
            }
        }
    }

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

    fn count_of(&self, organization: Option<OrganizationId>) -> u32 {
        self.in_use.get(&organization).copied().unwrap_or_default()
    }

    fn may_begin(&self, organization: Option<OrganizationId>) -> bool {
        self.free > 0 && self.count_of(organization) < self.most_of_one
    }

    fn begin(&mut self, organization: Option<OrganizationId>) {
        self.free -= 1;
        *self.in_use.entry(organization).or_default() += 1;
    }

    fn end(&mut self, organization: Option<OrganizationId>) {
        self.free += 1;
        let left = self.count_of(organization).saturating_sub(1);
        if left == 0 {
            self.in_use.remove(&organization);
        } else {
            self.in_use.insert(organization, left);
        }
    }

    /// Takes the next caller of the organization that has the fewest turns, of several of the one that was served longest
    /// ago, which then has the last turn. `None` if nobody may begin.
    fn next(&mut self) -> Option<Next> {
        for lane in &mut self.lanes {
            lane.waiting.retain(|caller| !caller.is_closed());
        }
        self.lanes.retain(|lane| !lane.waiting.is_empty());
        let lanes = self.lanes.iter().enumerate();
        let (index, organization) = lanes
            .map(|(index, lane)| (index, lane.organization))
            .min_by_key(|(_, organization)| self.count_of(*organization))?;
        if !self.may_begin(organization) {
            return None;
        }
        let mut lane = self.lanes.remove(index)?;
        let caller = if lane.is_newest_next { lane.waiting.pop_back() } else { lane.waiting.pop_front() }?;
        lane.is_newest_next = self.order == Order::OldestAndNewest && !lane.is_newest_next;
        if !lane.waiting.is_empty() {
            self.lanes.push_back(lane);
        }
        Some(Next { organization, caller })
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
            turns.pass_on(self.organization);
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
    async fn an_organization_leaves_the_last_place_to_others_and_who_has_fewest_is_next() {
        let turns = Turns::with_one_for_others(3);
        let [large, small, third] = [(); 3].map(|()| Some(OrganizationId::generate()));
        let (first, second) = (turns.take(large).await, turns.take(large).await);
        let mut waiting = Box::pin(turns.take(large));
        assert!(futures_util::poll!(&mut waiting).is_pending(), "an organization has all places");
        let other = turns.take(small).await;
        let mut last = Box::pin(turns.take(third));
        assert!(futures_util::poll!(&mut last).is_pending(), "more turns than places");
        drop(first);
        let last = last.await;
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(second);
        // It has no turn any more, so the last place is not kept from it.
        let again = waiting.await;
        drop([last, other, again]);
        let queue = turns.lock();
        assert!(queue.free == 3 && queue.in_use.is_empty() && queue.lanes.is_empty());
    }

    #[tokio::test]
    async fn a_place_is_kept_for_others_also_after_turns_have_ended() {
        let turns = Turns::with_one_for_others(2);
        let large = Some(OrganizationId::generate());
        let first = turns.take(large).await;
        let mut waiting = Box::pin(turns.take(large));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(turns.take(None).await);
        assert!(futures_util::poll!(&mut waiting).is_pending(), "the place of others was given away");
        drop(first);
        drop(waiting.await);
    }
}
