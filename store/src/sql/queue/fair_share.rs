//! Decides who is served next, so that everybody who waits gets an equal share of the work, measured by its cost.
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996): a clock that advances by cost, and for everybody the time on it
//! at which their last photo is paid for. Knows neither photos nor the database.

use std::collections::HashMap;
use std::hash::Hash;

/// Whose turn it is. Between two keys that wait all the time, what they got differs by no more than the cost of one photo
/// of each, whatever the photos cost. A key that begins to wait is served before any other is served twice, and has no claim to
/// what others got before.
#[derive(Debug)]
pub(crate) struct FairClock<K> {
    now: u64,
    /// When the last photo of a key is paid for; without an entry, it is.
    paid_at: HashMap<K, u64>,
}

impl<K> Default for FairClock<K> {
    fn default() -> Self {
        Self { now: 0, paid_at: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> FairClock<K> {
    /// Returns whose turn it is; of several, the first.
    pub(crate) fn choose(&self, waiting: impl IntoIterator<Item = K>) -> Option<K> {
        waiting.into_iter().min_by_key(|key| self.turn_of(*key))
    }

    /// Records that a photo of this cost was served.
    pub(crate) fn charge(&mut self, key: K, cost: u64) {
        self.now = self.turn_of(key);
        self.paid_at.insert(key, self.now + cost);
    }

    /// Forgets the keys whose photos are paid for: they are served like new ones.
    pub(crate) fn forget_paid(&mut self) {
        self.paid_at.retain(|_, paid_at| *paid_at > self.now);
    }

    fn turn_of(&self, key: K) -> u64 {
        self.paid_at.get(&key).map_or(self.now, |paid_at| self.now.max(*paid_at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Serves `turns` photos of keys whose photos cost this much; returns what each key got.
    fn serve(clock: &mut FairClock<usize>, costs: &[u64], turns: usize) -> Vec<u64> {
        let mut served = vec![0; costs.len()];
        for _ in 0..turns {
            let key = clock.choose(0..costs.len()).unwrap();
            clock.charge(key, costs[key]);
            served[key] += costs[key];
        }
        served
    }

    #[test]
    fn photos_that_cost_the_same_are_served_in_turn() {
        assert_eq!(serve(&mut FairClock::default(), &[1, 1, 1], 7), [3, 2, 2]);
        assert_eq!(FairClock::<usize>::default().choose([]), None);
    }

    #[test]
    fn a_costly_photo_is_followed_by_as_many_cheap_ones_as_it_costs() {
        let mut clock = FairClock::default();
        assert_eq!(serve(&mut clock, &[33, 1], 34), [33, 33]);
        assert_eq!(clock.choose([0, 1]), Some(0));
    }

    #[test]
    fn who_begins_to_wait_is_served_soon_and_not_for_the_past() {
        let mut clock = FairClock::default();
        serve(&mut clock, &[5, 5], 1000);
        let waiting = [0, 1, 2];
        let next: Vec<usize> = (0..6)
            .map(|_| {
                let key = clock.choose(waiting).unwrap();
                clock.charge(key, 5);
                key
            })
            .collect();
        assert!(next[..3].contains(&2), "{next:?}");
        assert_eq!(next.iter().filter(|key| **key == 2).count(), 2, "{next:?}");
    }

    proptest! {
        #[test]
        fn shares_differ_by_less_than_two_photos(
            costs in prop::collection::vec(1_u64..100, 2..6),
            turns in 1_usize..500,
            forget_every in 1_usize..50,
        ) {
            let mut clock = FairClock::default();
            let mut served = vec![0; costs.len()];
            for turn in 0..turns {
                let key = clock.choose(0..costs.len()).unwrap();
                clock.charge(key, costs[key]);
                served[key] += costs[key];
                if turn % forget_every == 0 {
                    clock.forget_paid();
                }
            }
            for a in 0..costs.len() {
                for b in 0..a {
                    let difference = served[a].abs_diff(served[b]);
                    prop_assert!(difference <= costs[a] + costs[b], "{served:?} {costs:?}");
                }
            }
        }

        /// Whatever others do, with photos of any cost.
        #[test]
        fn nobody_is_served_twice_while_another_waits_to_be_served_once(
            costs in prop::collection::vec(1_u64..100, 1..200),
        ) {
            let mut clock = FairClock::default();
            for cost in costs {
                let key = clock.choose(0..3).unwrap();
                clock.charge(key, cost);
            }
            let mut served = Vec::new();
            for _ in 0..200 {
                let key = clock.choose([0, 1, 2, 3]).unwrap();
                clock.charge(key, if key == 3 { 1 } else { 50 });
                if key == 3 {
                    break;
                }
                prop_assert!(!served.contains(&key), "{key} twice before the newcomer: {served:?}");
                served.push(key);
            }
        }
    }
}
