//! Shows the pools of a limit: one, or a page of them. A look changes nothing in a pool, except that time passes in it.

use super::{Limit, PoolEntry, PoolId};
use crate::pool::{Holding, PoolView};
use lessor_protocol::Moment;
use std::ops::Bound;

impl Limit {
    /// Returns a view of the pool, if it exists.
    pub fn view(&mut self, now: Moment, id: &PoolId) -> Option<PoolView> {
        self.with_pool(now, id, |pool| pool.view(now))
    }

    /// Returns a view of the pool, or of the pool that would be made at `now`.
    pub fn view_or_new(&mut self, now: Moment, id: &PoolId) -> PoolView {
        match self.pools.get_mut(id, &mut self.tally) {
            Some(entry) => entry.with(|kept| kept.pool.view(now)),
            None => self.new_pool(now, id).view(now),
        }
    }

    /// Returns views of up to `count` pools from `from` on, in order.
    pub fn views(&mut self, now: Moment, from: Bound<PoolId>, count: usize) -> Vec<(PoolId, PoolView)> {
        let view = |id: &PoolId, entry: &mut PoolEntry| (id.clone(), entry.with(|kept| kept.pool.view(now)));
        self.pools.page(from, count, &mut self.tally, view, |_| 1)
    }

    /// Returns views of the pools from `from` on, each with what its sessions hold, until these are `max` pools and
    /// sessions together. The last pool may have more: it is shown with all of its sessions.
    pub fn holdings(
        &mut self,
        now: Moment,
        from: Bound<PoolId>,
        max: usize,
    ) -> Vec<(PoolId, PoolView, Vec<Holding>)> {
        let look = |id: &PoolId, entry: &mut PoolEntry| {
            let (view, holdings) =
                entry.with(|kept| (kept.pool.view(now), kept.pool.holdings(now).collect()));
            (id.clone(), view, holdings)
        };
        self.pools.page(from, max, &mut self.tally, look, |(.., holdings): &(_, _, Vec<Holding>)| {
            1 + holdings.len()
        })
    }
}
