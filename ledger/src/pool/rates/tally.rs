//! An ordered multiset: its least and its largest value are known as values come and go.

use std::collections::BTreeMap;

/// How often each value is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally<K: Ord>(BTreeMap<K, u64>);

impl<K: Ord> Default for Tally<K> {
    fn default() -> Self {
        Tally(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Tally<K> {
    /// Adds a value.
    pub(super) fn add(&mut self, value: K) {
        *self.0.entry(value).or_default() += 1;
    }

    /// Removes a value, which is there.
    pub(super) fn remove(&mut self, value: K) {
        let Some(count) = self.0.get_mut(&value) else {
            debug_assert!(false, "it is there");
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.0.remove(&value);
        }
    }

    /// Whether there are no values.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the largest value.
    pub(super) fn last(&self) -> Option<K> {
        self.0.last_key_value().map(|(value, _)| *value)
    }

    /// Returns the least value without one occurrence of `aside`, which is there.
    pub(super) fn first_without(&self, aside: Option<K>) -> Option<K> {
        without(self.0.iter(), aside)
    }

    /// Returns the largest value without one occurrence of `aside`, which is there.
    pub(super) fn last_without(&self, aside: Option<K>) -> Option<K> {
        without(self.0.iter().rev(), aside)
    }
}

/// Returns the first of `values`, each with its count, without one occurrence of `aside`.
fn without<'a, K: Ord + Copy + 'a>(
    mut values: impl Iterator<Item = (&'a K, &'a u64)>,
    aside: Option<K>,
) -> Option<K> {
    values.find(|(value, count)| **count > u64::from(aside == Some(**value))).map(|(value, _)| *value)
}
