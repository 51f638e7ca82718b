//! Goes round an ordered map a few entries at a time, and drops entries that can be forgotten. Limits and sessions use
//! it, so that no call ever pays for all entries at once.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The progress of a round.
#[derive(Clone, Debug)]
pub(crate) struct Sweep<K> {
    /// The last entry that was looked at; `None` before the first of a round.
    after: Option<K>,
}

impl<K> Default for Sweep<K> {
    fn default() -> Self {
        Sweep { after: None }
    }
}

impl<K: Ord + Clone> Sweep<K> {
    /// Looks at the next entries of `map`, at most `steps`. Takes out the entries that `forget` accepts, and returns
    /// them.
    pub(crate) fn run<V>(
        &mut self,
        map: &mut BTreeMap<K, V>,
        steps: usize,
        mut forget: impl FnMut(&K, &mut V) -> bool,
    ) -> Vec<(K, V)> {
        let from = match self.after.take() {
            Some(key) => Bound::Excluded(key),
            None => Bound::Unbounded,
        };
        let mut gone = vec![];
        let mut rest = map.range_mut((from, Bound::Unbounded));
        for (key, value) in rest.by_ref().take(steps) {
            if forget(key, value) {
                gone.push(key.clone());
            }
            self.after = Some(key.clone());
        }
        if rest.next().is_none() {
            self.after = None;
        }
        gone.iter().filter_map(|key| map.remove_entry(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_at_every_entry_once_a_round_whatever_comes_and_goes() {
        let mut map: BTreeMap<u32, u32> = (0..10).map(|n| (n, 0)).collect();
        let mut sweep = Sweep::default();
        let mut visit = |map: &mut BTreeMap<u32, u32>| {
            sweep.run(map, 4, |_, seen| {
                *seen += 1;
                false
            })
        };
        visit(&mut map);
        map.remove(&3);
        map.insert(100, 0);
        visit(&mut map);
        visit(&mut map);
        assert!(map.values().all(|&seen| seen == 1), "{map:?}");
        visit(&mut map);
        assert_eq!(map.values().sum::<u32>(), 10 + 4, "a new round");
    }

    #[test]
    fn what_can_be_forgotten_is_taken_out() {
        let mut map: BTreeMap<u32, u32> = (0..10).map(|n| (n, n)).collect();
        let mut sweep = Sweep::default();
        assert_eq!(sweep.run(&mut map, 5, |_, n| n.is_multiple_of(2)), [(0, 0), (2, 2), (4, 4)]);
        assert_eq!(map.len(), 7);
    }
}
