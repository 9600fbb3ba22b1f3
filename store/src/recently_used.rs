//! Values of a cache, with the order in which they were used last.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key. Where they weigh too much together, the least recently used go, one at a time: one more in use than fit costs
/// one, and not all.
#[derive(Debug)]
pub struct RecentlyUsed<K, V> {
    values: HashMap<K, Used<V>>,
    /// How often a value was used or inserted.
    uses: u64,
}

#[derive(Debug)]
struct Used<V> {
    value: V,
    /// The number of its last use.
    last: u64,
}

impl<K, V> Default for RecentlyUsed<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), uses: 0 }
    }
}

impl<K: Copy + Eq + Hash, V> RecentlyUsed<K, V> {
    /// Returns a value, which is the most recently used one from now on.
    pub fn get(&mut self, key: K) -> Option<&V> {
        let used = self.values.get_mut(&key)?;
        self.uses += 1;
        used.last = self.uses;
        Some(&used.value)
    }

    /// Inserts or replaces a value, which is the most recently used one from now on.
    pub fn insert(&mut self, key: K, value: V) {
        self.uses += 1;
        self.values.insert(key, Used { value, last: self.uses });
    }

    /// Removes a value.
    pub fn remove(&mut self, key: K) {
        self.values.remove(&key);
    }

    /// Removes values, the least recently used first, until the others weigh `limit` at most. The one that was used last stays,
    /// whatever it weighs.
    pub fn shrink_to(&mut self, limit: usize, weigh: impl Fn(&V) -> usize) {
        let mut total: usize = self.values.values().map(|used| weigh(&used.value)).sum();
        while total > limit && self.values.len() > 1 {
            let oldest = self.values.iter().min_by_key(|(_, used)| used.last).map(|(key, _)| *key);
            let Some(removed) = oldest.and_then(|key| self.values.remove(&key)) else { return };
            total = total.saturating_sub(weigh(&removed.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that weigh what they are.
    fn numbers(values: &[usize]) -> RecentlyUsed<usize, usize> {
        let mut numbers = RecentlyUsed::default();
        values.iter().for_each(|value| numbers.insert(*value, *value));
        numbers
    }

    fn left(numbers: &RecentlyUsed<usize, usize>) -> Vec<usize> {
        let mut left: Vec<usize> = numbers.values.keys().copied().collect();
        left.sort();
        left
    }

    #[test]
    fn the_least_recently_used_go_and_no_more_than_must() {
        let mut used = numbers(&[1, 2, 3, 4]);
        used.shrink_to(10, |value| *value);
        assert_eq!(left(&used), [1, 2, 3, 4]);
        assert_eq!(used.get(1), Some(&1));
        used.shrink_to(9, |value| *value);
        assert_eq!(left(&used), [1, 3, 4]);
        used.insert(3, 3);
        used.shrink_to(7, |value| *value);
        assert_eq!(left(&used), [1, 3]);
        used.remove(1);
        assert_eq!(used.get(1), None);
        assert_eq!(used.get(3), Some(&3));
    }

    #[test]
    fn the_value_that_was_used_last_stays_even_if_it_is_too_large() {
        let mut used = numbers(&[1, 2, 50]);
        used.shrink_to(10, |value| *value);
        assert_eq!(left(&used), [50]);
    }
}
