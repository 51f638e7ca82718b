//! The pools of a limit, in order. Where its rules are changed, no exchange waits until all pools go by the new ones: each does from
//! the moment of the change on, and is brought there when it is next looked at, or when a sweep comes by.

use super::earlier::Earlier;
use super::figures::Tally;
use super::kept::{Kept, Shelf};
use super::live::Plans;
use super::{PoolId, unused};
use crate::CarryOver;
use crate::pool::{Past, Plan, Pool};
use crate::registry::sweep::Sweep;
use lessor_protocol::Moment;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// One for each name and key, and just one if the limit has neither. Ordered: pages and sweeps go by it, the same
/// calls always do the same, and no choice of keys makes it slow. In boxes: a search reads identifiers only.
#[derive(Debug, Default)]
pub(super) struct Pools {
    map: BTreeMap<PoolId, Shelf>,
    /// Not all of them go by it yet.
    change: Option<Change>,
}

/// A change of the rules.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) plans: Plans,
    pub(super) past: Past,
    pub(super) earlier: Earlier,
    pub(super) carry_over: CarryOver,
    pub(super) at: Moment,
    /// All pools up to this one go by it.
    pub(super) done: Option<PoolId>,
}

impl Change {
    /// Brings a pool there that does not go by it yet.
    fn reach(&self, id: &PoolId, shelf: &mut Shelf, tally: &mut Tally) {
        let plan = self.plans.of_pool(id);
        if !shelf.goes_by(plan) {
            shelf.with(|kept| self.go_on(kept, tally, plan));
        }
    }

    /// Goes on by `plan`, with its part of the sums.
    fn go_on(&self, kept: &mut Kept, tally: &mut Tally, plan: &Arc<Plan>) {
        tally.count(&mut kept.counted, kept.pool.view(self.at));
        unused::go_on(&mut kept.pool, plan, (self.past, self.earlier), self.carry_over, self.at);
        tally.count(&mut kept.counted, kept.pool.view(self.at));
    }
}

impl Pools {
    /// The pool, if there is one. Its part is counted in `tally`.
    pub(super) fn get_mut(&mut self, id: &PoolId, tally: &mut Tally) -> Option<&mut Shelf> {
        let shelf = self.map.get_mut(id)?;
        if let Some(change) = &self.change {
            change.reach(id, shelf, tally);
        }
        Some(shelf)
    }

    /// What is known of the pool without a look at it.
    pub(super) fn get(&self, id: &PoolId) -> Option<&Shelf> {
        self.map.get(id)
    }

    /// Up to `count` pools from `from` on.
    pub(super) fn page<T>(
        &mut self,
        from: Bound<PoolId>,
        count: usize,
        tally: &mut Tally,
        mut look: impl FnMut(&PoolId, &mut Shelf) -> T,
    ) -> Vec<T> {
        let page = self.map.range_mut((from, Bound::Unbounded)).take(count);
        let look = |(id, shelf): (&PoolId, &mut Shelf)| {
            if let Some(change) = &self.change {
                change.reach(id, shelf, tally);
            }
            look(id, shelf)
        };
        page.map(look).collect()
    }

    /// Copies of the same.
    pub(super) fn copies(&self, from: Bound<PoolId>, count: usize) -> impl Iterator<Item = (&PoolId, Pool)> {
        let page = self.map.range((from, Bound::Unbounded)).take(count);
        page.map(|(id, shelf)| {
            let mut copy = Kept::new(shelf.copy());
            if let Some(change) =
                self.change.as_ref().filter(|change| !shelf.goes_by(change.plans.of_pool(id)))
            {
                change.go_on(&mut copy, &mut Tally::default(), change.plans.of_pool(id));
            }
            (id, copy.pool)
        })
    }

    /// All of them.
    pub(super) fn all(&mut self, tally: &mut Tally) -> impl Iterator<Item = &mut Shelf> {
        self.reach_all(tally);
        self.map.values_mut()
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self, tally: &mut Tally) -> impl Iterator<Item = Shelf> + use<> {
        self.reach_all(tally);
        std::mem::take(&mut self.map).into_values()
    }

    /// The one that comes after the pool `after`, or the first.
    pub(super) fn next(&self, after: Option<&PoolId>) -> Option<&PoolId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.map.range((from, Bound::Unbounded)).next().map(|(id, _)| id)
    }

    /// The first that is `from` or after it.
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

    /// One more, which goes by the rules that hold now. Returns the one that was there.
    pub(super) fn insert(&mut self, id: PoolId, shelf: Shelf) -> Option<Shelf> {
        self.map.insert(id, shelf)
    }

    /// Goes by other rules. What is left of the change before is done at once.
    pub(super) fn change(&mut self, change: Change, tally: &mut Tally) {
        self.reach_all(tally);
        self.change = Some(change);
    }

    /// Brings the next `steps` pools to where the limit is.
    pub(super) fn reach_some(&mut self, steps: usize, tally: &mut Tally) {
        let Some(change) = &mut self.change else { return };
        let from = change.done.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.map.range_mut((from, Bound::Unbounded));
        let mut last = None;
        for (id, shelf) in rest.by_ref().take(steps) {
            change.reach(id, shelf, tally);
            last = Some(id);
        }
        change.done = last.cloned();
        if rest.next().is_none() {
            self.change = None;
        }
    }

    /// The same of all of them.
    pub(super) fn reach_all(&mut self, tally: &mut Tally) {
        self.reach_some(usize::MAX, tally);
    }

    /// As they stand.
    #[cfg(test)]
    pub(super) fn shelves(&mut self) -> impl Iterator<Item = &mut Shelf> {
        self.map.values_mut()
    }

    /// Lets `sweep` look at the next `steps` pools, and takes out those that `forget` says yes to.
    pub(super) fn sweep(
        &mut self,
        sweep: &mut Sweep<PoolId>,
        steps: usize,
        tally: &mut Tally,
        mut forget: impl FnMut(&PoolId, &mut Shelf, &mut Tally) -> bool,
    ) -> Vec<(PoolId, Shelf)> {
        let change = &self.change;
        sweep.run(&mut self.map, steps, |id, shelf| {
            if let Some(change) = change {
                change.reach(id, shelf, tally);
            }
            forget(id, shelf, tally)
        })
    }
}
