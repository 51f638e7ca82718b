//! Bounds the places of each holder: one that took all places would leave none for others.

use lessor_protocol::lock_anyway::LockAnyway;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Places taken by each holder. A holder without places is not remembered.
#[derive(Clone, Debug)]
pub(crate) struct Places<K> {
    taken: Arc<Mutex<BTreeMap<K, usize>>>,
    max: usize,
}

/// A place, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<K: Ord + Copy> {
    holder: K,
    places: Places<K>,
}

impl<K: Ord + Copy> Places<K> {
    /// Makes `max` places for each holder.
    pub(crate) fn new(max: usize) -> Self {
        Places { taken: Arc::default(), max }
    }

    /// Places that each holder may take.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Takes a place for `holder`; `None` if it has as many as it may.
    pub(crate) fn place(&self, holder: K) -> Option<Place<K>> {
        self.take(holder, 1).then(|| Place { holder, places: self.clone() })
    }

    /// Takes `count` more places for `holder`. Returns whether it may have that many.
    pub(crate) fn take(&self, holder: K, count: usize) -> bool {
        let mut all = self.taken.lock_anyway();
        let before = all.get(&holder).copied().unwrap_or_default();
        let sum = before.checked_add(count).filter(|sum| *sum <= self.max);
        if let Some(sum) = sum.filter(|sum| *sum > 0) {
            all.insert(holder, sum);
        }
        sum.is_some()
    }

    /// Gives `count` places of `holder` back.
    pub(crate) fn give_back(&self, holder: K, count: usize) {
        let mut all = self.taken.lock_anyway();
        if let Some(taken) = all.get_mut(&holder) {
            *taken = taken.saturating_sub(count);
            if *taken == 0 {
                all.remove(&holder);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn holders(&self) -> usize {
        self.taken.lock_anyway().len()
    }
}

impl<K: Ord + Copy> Drop for Place<K> {
    fn drop(&mut self) {
        self.places.give_back(self.holder, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_so_many_places_and_others_have_theirs() {
        let places = Places::new(2);
        let (one, _two) = (places.place('a').expect("room"), places.place('a').expect("room"));
        assert!(places.place('a').is_none());
        assert!(places.place('b').is_some(), "another one");
        drop(one);
        assert!(places.place('a').is_some());
        assert_eq!(places.holders(), 1, "one that has none is not remembered");
    }

    #[test]
    fn what_is_too_much_takes_nothing() {
        let places = Places::new(10);
        assert!(places.take('a', 7) && !places.take('a', 4) && places.take('a', 3));
        assert!(!places.take('b', usize::MAX) && places.take('b', 0) && places.holders() == 1);
        places.give_back('a', 10);
        assert!(!places.take('a', 11) && places.take('a', 10));
    }
}
