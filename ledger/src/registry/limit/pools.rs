//! The pools of a limit, in order. A change of the rules counts for every pool from the moment of the change on. It is
//! applied to a pool when that is next looked at, or when a sweep reaches it, so no exchange waits for all pools.

use super::earlier::Earlier;
use super::figures::Tally;
use super::plans::Plans;
use super::pool_entry::{CountedPool, PoolEntry};
use super::{PoolId, unused};
use crate::CarryOver;
use crate::pool::{Past, Plan, Pool};
use crate::registry::sweep::Sweep;
use lessor_protocol::Moment;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// One pool for each name and key, and just one if the limit has neither. Pages and sweeps follow the order, the same
/// calls always do the same, and no choice of keys makes a lookup slow. Pools are boxed, so a search reads identifiers
/// only.
#[derive(Debug, Default)]
pub(super) struct Pools {
    map: BTreeMap<PoolId, PoolEntry>,
    /// The last change, as long as it is not applied to all pools.
    change: Option<Change>,
}

/// A change of the rules, which is applied to one pool after another.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) plans: Plans,
    pub(super) past: Past,
    pub(super) earlier: Earlier,
    pub(super) carry_over: CarryOver,
    pub(super) at: Moment,
    /// The last pool, in order, to which a round has applied the change.
    pub(super) done: Option<PoolId>,
}

impl Change {
    /// Applies the change to a pool, if that was not done yet.
    fn reach(&self, id: &PoolId, entry: &mut PoolEntry, tally: &mut Tally) {
        let plan = self.plans.get(id.key.as_ref());
        if !entry.goes_by(plan) {
            entry.with(|kept| self.go_on(kept, tally, plan));
        }
    }

    /// Changes a pool to `plan`, and its part of the sums.
    fn go_on(&self, kept: &mut CountedPool, tally: &mut Tally, plan: &Arc<Plan>) {
        tally.count(&mut kept.counted, kept.pool.view(self.at));
        unused::go_on(&mut kept.pool, plan, (self.past, self.earlier), self.carry_over, self.at);
        tally.count(&mut kept.counted, kept.pool.view(self.at));
    }
}

impl Pools {
    /// Returns the pool, if it exists, after a pending change. Its part of the sums in `tally` follows.
    pub(super) fn get_mut(&mut self, id: &PoolId, tally: &mut Tally) -> Option<&mut PoolEntry> {
        let entry = self.map.get_mut(id)?;
        if let Some(change) = &self.change {
            change.reach(id, entry, tally);
        }
        Some(entry)
    }

    /// Returns what is known of the pool without a look at it.
    pub(super) fn get(&self, id: &PoolId) -> Option<&PoolEntry> {
        self.map.get(id)
    }

    /// Runs `look` on pools from `from` on, each after a pending change, until what it finds costs `max` in all.
    pub(super) fn page<T>(
        &mut self,
        from: Bound<PoolId>,
        max: usize,
        tally: &mut Tally,
        mut look: impl FnMut(&PoolId, &mut PoolEntry) -> T,
        cost: impl Fn(&T) -> usize,
    ) -> Vec<T> {
        let (mut left, mut page) = (max, vec![]);
        for (id, entry) in self.map.range_mut((from, Bound::Unbounded)) {
            if left == 0 {
                break;
            }
            if let Some(change) = &self.change {
                change.reach(id, entry, tally);
            }
            let found = look(id, entry);
            left = left.saturating_sub(cost(&found));
            page.push(found);
        }
        page
    }

    /// Returns copies of up to `count` pools from `from` on, each after a pending change.
    pub(super) fn copies(&self, from: Bound<PoolId>, count: usize) -> impl Iterator<Item = (&PoolId, Pool)> {
        let page = self.map.range((from, Bound::Unbounded)).take(count);
        page.map(|(id, entry)| {
            let mut copy = CountedPool::new(entry.copy());
            if let Some(change) =
                self.change.as_ref().filter(|change| !entry.goes_by(change.plans.get(id.key.as_ref())))
            {
                change.go_on(&mut copy, &mut Tally::default(), change.plans.get(id.key.as_ref()));
            }
            (id, copy.pool)
        })
    }

    /// Returns all pools, after a pending change.
    pub(super) fn all(&mut self, tally: &mut Tally) -> impl Iterator<Item = &mut PoolEntry> {
        self.reach_all(tally);
        self.map.values_mut()
    }

    /// Takes out all pools, after a pending change.
    pub(super) fn take(&mut self, tally: &mut Tally) -> impl Iterator<Item = PoolEntry> + use<> {
        self.reach_all(tally);
        std::mem::take(&mut self.map).into_values()
    }

    /// Returns the pool next to `after`, or the first.
    pub(super) fn next(&self, after: Option<&PoolId>) -> Option<&PoolId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.map.range((from, Bound::Unbounded)).next().map(|(id, _)| id)
    }

    /// Returns the first pool from `from` on.
    pub(super) fn first_from(&self, from: PoolId) -> Option<&PoolId> {
        self.map.range(from..).next().map(|(id, _)| id)
    }

    pub(super) fn contains(&self, id: &PoolId) -> bool {
        self.map.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Adds a pool, which has the rules that hold now. Returns the pool that it replaces.
    pub(super) fn insert(&mut self, id: PoolId, entry: PoolEntry) -> Option<PoolEntry> {
        self.map.insert(id, entry)
    }

    /// Takes the pool out, after a pending change.
    pub(super) fn remove(&mut self, id: &PoolId, tally: &mut Tally) -> Option<PoolEntry> {
        self.get_mut(id, tally)?;
        self.map.remove(id)
    }

    /// Begins `change`. What is left of the change before is applied at once.
    pub(super) fn change(&mut self, change: Change, tally: &mut Tally) {
        self.reach_all(tally);
        self.change = Some(change);
    }

    /// Applies a pending change to the next `steps` pools.
    pub(super) fn apply_some(&mut self, steps: usize, tally: &mut Tally) {
        let Some(change) = &mut self.change else { return };
        let from = change.done.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.map.range_mut((from, Bound::Unbounded));
        let mut last = None;
        for (id, entry) in rest.by_ref().take(steps) {
            change.reach(id, entry, tally);
            last = Some(id);
        }
        change.done = last.cloned();
        if rest.next().is_none() {
            self.change = None;
        }
    }

    /// Applies a pending change to all pools.
    pub(super) fn reach_all(&mut self, tally: &mut Tally) {
        self.apply_some(usize::MAX, tally);
    }

    /// Returns all pools as they are, without a pending change.
    #[cfg(test)]
    pub(super) fn entries(&mut self) -> impl Iterator<Item = &mut PoolEntry> {
        self.map.values_mut()
    }

    /// Lets `sweep` look at the next `steps` pools, and takes out the pools that `forget` accepts.
    pub(super) fn sweep(
        &mut self,
        sweep: &mut Sweep<PoolId>,
        steps: usize,
        tally: &mut Tally,
        mut forget: impl FnMut(&PoolId, &mut PoolEntry, &mut Tally) -> bool,
    ) -> Vec<(PoolId, PoolEntry)> {
        let change = &self.change;
        sweep.run(&mut self.map, steps, |id, entry| {
            if let Some(change) = change {
                change.reach(id, entry, tally);
            }
            forget(id, entry, tally)
        })
    }
}
