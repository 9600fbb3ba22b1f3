//! Values of a cache whose weight together is bounded.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key. Where they weigh too much together, some go that are picked as if by chance, but never the one that was used
/// last. The least recently used would be the wrong ones: of values that are used in turns it is the next one, so that one more
/// than fit would cost all.
#[derive(Debug)]
pub struct BoundedCache<K, V> {
    /// In no order.
    entries: Vec<Entry<K, V>>,
    /// Where each is in `entries`.
    places: HashMap<K, usize>,
    last_used: Option<K>,
    /// How many were picked to go.
    picks: u64,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
}

impl<K, V> Default for BoundedCache<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: HashMap::new(), last_used: None, picks: 0 }
    }
}

impl<K: Copy + Eq + Hash, V> BoundedCache<K, V> {
    /// Returns a value, which is the last used one from now on.
    pub fn get(&mut self, key: K) -> Option<&V> {
        let place = *self.places.get(&key)?;
        self.last_used = Some(key);
        self.entries.get(place).map(|entry| &entry.value)
    }

    /// Inserts or replaces a value, which is the last used one from now on.
    pub fn insert(&mut self, key: K, value: V) {
        self.remove(key);
        self.last_used = Some(key);
        self.places.insert(key, self.entries.len());
        self.entries.push(Entry { key, value });
    }

    /// Removes a value.
    pub fn remove(&mut self, key: K) {
        if let Some(place) = self.places.get(&key).copied() {
            self.remove_at(place);
        }
    }

    /// Removes values until the others weigh `limit` at most. The one that was used last stays, whatever it weighs.
    pub fn shrink_to(&mut self, limit: usize, weigh: impl Fn(&V) -> usize) {
        let mut total: usize = self.entries.iter().map(|entry| weigh(&entry.value)).sum();
        while total > limit && self.entries.len() > 1 {
            let picked = self.pick();
            let removed = self.remove_at(picked);
            total = total.saturating_sub(weigh(&removed.value));
        }
    }

    fn remove_at(&mut self, place: usize) -> Entry<K, V> {
        let removed = self.entries.swap_remove(place);
        self.places.remove(&removed.key);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.key, place);
        }
        removed
    }

    /// Returns where one of several entries is, but not where the last used one is. The same calls always pick the same.
    fn pick(&mut self) -> usize {
        self.picks += 1;
        let number = mix(self.picks);
        let place_below = |count: usize| (number % count as u64) as usize;
        match self.last_used.and_then(|key| self.places.get(&key).copied()) {
            Some(last) => {
                let place = place_below(self.entries.len() - 1);
                place + usize::from(place >= last)
            }
            None => place_below(self.entries.len()),
        }
    }
}

/// A number that looks random, of a counter (SplitMix64). Multiples of one factor would not do: with some numbers of values they
/// keep step with the turns.
fn mix(counter: u64) -> u64 {
    let state = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that weigh what they are.
    fn numbers(values: &[usize]) -> BoundedCache<usize, usize> {
        let mut numbers = BoundedCache::default();
        values.iter().for_each(|value| numbers.insert(*value, *value));
        numbers
    }

    fn left(numbers: &BoundedCache<usize, usize>) -> Vec<usize> {
        let mut left: Vec<usize> = numbers.entries.iter().map(|entry| entry.value).collect();
        left.sort();
        left
    }

    #[test]
    fn values_are_replaced_and_removed() {
        let mut cache = numbers(&[1, 2, 3, 4]);
        cache.insert(2, 5);
        cache.remove(1);
        cache.remove(9);
        assert_eq!(left(&cache), [3, 4, 5]);
        assert_eq!([1, 2, 3, 4].map(|key| cache.get(key).copied()), [None, Some(5), Some(3), Some(4)]);
        // The last used one is gone too.
        cache.remove(4);
        cache.shrink_to(7, |value| *value);
        assert_eq!(left(&cache).len(), 1);
    }

    #[test]
    fn no_more_go_than_must() {
        let mut cache = BoundedCache::default();
        (0..10).for_each(|key| cache.insert(key, 1));
        cache.shrink_to(10, |value| *value);
        assert_eq!(cache.entries.len(), 10);
        cache.shrink_to(7, |value| *value);
        assert_eq!(cache.entries.len(), 7);
        let kept = (0..10).filter(|key| cache.get(*key).is_some()).count();
        assert_eq!(kept, 7);
    }

    #[test]
    fn the_value_that_was_used_last_stays_even_if_it_is_too_large() {
        let mut cache = numbers(&[1, 2, 50]);
        cache.shrink_to(10, |value| *value);
        assert_eq!(left(&cache), [50]);
        for used in 1..=20 {
            let mut cache = numbers(&(1..=20).collect::<Vec<_>>());
            assert_eq!(cache.get(used), Some(&used));
            cache.shrink_to(0, |value| *value);
            assert_eq!(left(&cache), [used]);
        }
    }

    #[test]
    fn one_more_than_fit_that_take_turns_are_mostly_found() {
        const ROUNDS: usize = 20;
        for room in [8, 16, 32] {
            let mut cache = BoundedCache::default();
            let mut found = 0;
            for key in (0..ROUNDS).flat_map(|_| 0..=room) {
                if cache.get(key).is_some() {
                    found += 1;
                } else {
                    cache.insert(key, 1);
                }
                cache.shrink_to(room, |value| *value);
            }
            let uses = ROUNDS * (room + 1);
            assert!(found * 3 > uses * 2, "{found} of {uses} with room for {room}");
        }
    }
}
