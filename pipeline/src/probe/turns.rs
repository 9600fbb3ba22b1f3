//! Who may have a selfie examined: a few callers at a time, chosen from the organizations in turn. Each organization has
//! a limited number of places, so that one which uses them all makes only itself wait. Knows neither selfies nor
//! threads.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use photofinish_store::model::ids::OrganizationId;
use tokio::sync::oneshot;

use crate::engine::sync::lock;

/// Turns that one organization has at a time: while one of its selfies is examined, it reads the next. With more of them
/// another's selfie would wait until all were examined.
const TURNS_EACH: usize = 2;

/// Gives out turns.
#[derive(Debug)]
pub(crate) struct Turns {
    places: usize,
    state: Mutex<TurnState>,
}

#[derive(Debug)]
struct TurnState {
    /// Turns that nobody has.
    free: usize,
    /// Organizations with waiting callers, the next one first.
    rotation: VecDeque<OrganizationId>,
    organizations: HashMap<OrganizationId, Callers>,
    is_closed: bool,
}

/// The callers of one organization.
#[derive(Debug, Default)]
struct Callers {
    waiting: VecDeque<oneshot::Sender<Turn>>,
    /// Those who have a turn.
    active: usize,
}

/// Why there is no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// All places of the organization are taken.
    Full {
        /// How many selfies are examined before a place is free that is taken by none of those that wait now.
        ahead: usize,
    },
    /// No more turns are given.
    Closed,
}

/// A turn, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    /// `None` for one that was never given out.
    turns: Option<Arc<Turns>>,
    organization: OrganizationId,
}

impl Turns {
    /// Gives `count` turns at a time; an organization has `places` for callers that wait or have a turn. Both at least 1.
    pub(crate) fn new(count: usize, places: usize) -> Arc<Self> {
        let state = TurnState {
            free: count.max(1),
            rotation: VecDeque::new(),
            organizations: HashMap::new(),
            is_closed: false,
        };
        Arc::new(Self { places: places.max(1), state: Mutex::new(state) })
    }

    /// Waits for a turn. A caller that stops waiting leaves its place.
    pub(crate) async fn take(self: &Arc<Self>, organization: OrganizationId) -> Result<Turn, NoTurn> {
        let turn = self.join_queue(organization)?;
        turn.await.map_err(|_| NoTurn::Closed)
    }

    /// Gives no more turns: those who wait, and all later callers, get none.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.rotation.clear();
        state.organizations.values_mut().for_each(|callers| callers.waiting.clear());
    }

    fn join_queue(self: &Arc<Self>, organization: OrganizationId) -> Result<oneshot::Receiver<Turn>, NoTurn> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(NoTurn::Closed);
        }
        let organizations_waiting = state.rotation.len();
        let callers = state.organizations.entry(organization).or_default();
        callers.waiting.retain(|caller| !caller.is_closed());
        if callers.waiting.len() + callers.active >= self.places {
            // Between two turns of this organization each of the others has one.
            return Err(NoTurn::Full { ahead: self.places * organizations_waiting.max(1) });
        }
        let (sender, receiver) = oneshot::channel();
        callers.waiting.push_back(sender);
        if !state.rotation.contains(&organization) {
            state.rotation.push_back(organization);
        }
        self.give_turns(&mut state);
        Ok(receiver)
    }

    /// Gives the free turns to those who wait.
    fn give_turns(self: &Arc<Self>, state: &mut TurnState) {
        let may_have_another = |state: &TurnState, organization: &OrganizationId| {
            state.organizations.get(organization).is_none_or(|callers| callers.active < TURNS_EACH)
        };
        while state.free > 0
            && let Some(next) =
                state.rotation.iter().position(|organization| may_have_another(state, organization))
            && let Some(organization) = state.rotation.remove(next)
        {
            let Some(callers) = state.organizations.get_mut(&organization) else { continue };
            while let Some(caller) = callers.waiting.pop_front() {
                let turn = Turn { turns: Some(Arc::clone(self)), organization };
                match caller.send(turn) {
                    Ok(()) => {
                        callers.active += 1;
                        state.free -= 1;
                        break;
                    }
                    // The caller has stopped waiting. Its turn was not taken, so it is not given back.
                    Err(mut turn) => turn.turns = None,
                }
            }
            if callers.waiting.is_empty() {
                state.remove_if_unused(organization);
            } else {
                state.rotation.push_back(organization);
            }
        }
    }

    fn give_back(self: &Arc<Self>, organization: OrganizationId) {
        let mut state = self.lock();
        state.free += 1;
        if let Some(callers) = state.organizations.get_mut(&organization) {
            callers.active -= 1;
        }
        state.remove_if_unused(organization);
        self.give_turns(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        lock(&self.state)
    }
}

impl TurnState {
    fn remove_if_unused(&mut self, organization: OrganizationId) {
        let is_unused = |callers: &Callers| callers.active == 0 && callers.waiting.is_empty();
        if self.organizations.get(&organization).is_some_and(is_unused) {
            self.organizations.remove(&organization);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.give_back(self.organization);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Waiting = oneshot::Receiver<Turn>;

    /// Returns the turn if it has been given.
    fn poll(waiting: &mut Waiting) -> Option<Turn> {
        match std::pin::pin!(waiting).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn.unwrap()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn organizations_take_turns() {
        let turns = Turns::new(1, 4);
        let (greedy, modest) = (OrganizationId::generate(), OrganizationId::generate());
        let mut first: Vec<Waiting> = (0..4).map(|_| turns.join_queue(greedy).unwrap()).collect();
        let mut second = turns.join_queue(modest).unwrap();
        let turn = poll(&mut first[0]).expect("the first has a turn");
        assert!(poll(&mut first[1]).is_none() && poll(&mut second).is_none());
        drop(turn);
        // One more of the greedy organization was ahead of the modest one when that came.
        drop(poll(&mut first[1]).expect("the second of the greedy organization"));
        drop(poll(&mut second).expect("then the modest organization"));
        drop(poll(&mut first[2]).expect("then the greedy one again"));
    }

    #[test]
    fn an_organization_leaves_turns_to_others() {
        let turns = Turns::new(4, 8);
        let (greedy, modest) = (OrganizationId::generate(), OrganizationId::generate());
        let mut first: Vec<Waiting> = (0..4).map(|_| turns.join_queue(greedy).unwrap()).collect();
        let given: Vec<Turn> = first.iter_mut().filter_map(poll).collect();
        assert_eq!(given.len(), TURNS_EACH, "of 4 free turns");
        let modest = poll(&mut turns.join_queue(modest).unwrap()).expect("a turn at once");
        drop(given);
        assert_eq!(first[TURNS_EACH..].iter_mut().filter_map(poll).count(), 2, "the next of the greedy one");
        drop(modest);
    }

    #[test]
    fn an_organization_that_uses_all_its_places_refuses_only_itself() {
        let turns = Turns::new(1, 3);
        let (greedy, modest) = (OrganizationId::generate(), OrganizationId::generate());
        let mut held: Vec<Waiting> = (0..3).map(|_| turns.join_queue(greedy).unwrap()).collect();
        assert_eq!(turns.join_queue(greedy).unwrap_err(), NoTurn::Full { ahead: 3 });
        let _modest = turns.join_queue(modest).unwrap();
        assert_eq!(turns.join_queue(greedy).unwrap_err(), NoTurn::Full { ahead: 6 });
        // A turn that ends frees its place.
        drop(poll(&mut held[0]));
        assert!(turns.join_queue(greedy).is_ok());
    }

    #[test]
    fn a_caller_that_goes_leaves_its_place_and_its_turn() {
        let turns = Turns::new(1, 2);
        let organization = OrganizationId::generate();
        let mut first = turns.join_queue(organization).unwrap();
        for _ in 0..10 {
            drop(turns.join_queue(organization).unwrap());
        }
        let mut second = turns.join_queue(organization).unwrap();
        // The turn was given, but is not picked up.
        drop(poll(&mut first));
        let turn = poll(&mut second).expect("the turn of the others was not lost");
        let third = turns.join_queue(organization).unwrap();
        drop(turn);
        drop(third);
        assert!(poll(&mut turns.join_queue(organization).unwrap()).is_some());
        assert!(turns.lock().organizations.is_empty());
        assert_eq!(turns.lock().free, 1);
    }

    #[test]
    fn closing_ends_the_wait() {
        let turns = Turns::new(1, 2);
        let organization = OrganizationId::generate();
        let turn = poll(&mut turns.join_queue(organization).unwrap()).unwrap();
        let waiting = turns.join_queue(organization).unwrap();
        turns.close();
        assert!(waiting.blocking_recv().is_err());
        assert_eq!(turns.join_queue(organization).unwrap_err(), NoTurn::Closed);
        drop(turn);
    }
}
