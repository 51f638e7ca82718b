//! Walks over all pools of a limit, for pages and metrics: some pools under the lock at a time, with exchanges in
//! between.

use crate::shared::Shared;
use lessor_ledger::pool::{Holding, PoolView};
use lessor_ledger::registry::limit::PoolId;
use std::ops::Bound;
use tokio::task::yield_now;

/// Pools and sessions that are looked at under the lock in one step: some tenths of a millisecond, and about a
/// millisecond for a pool with as many sessions as there may be.
const STEP: usize = 500;

/// Pools with the holdings of their sessions.
pub(super) type Page = Vec<(PoolId, PoolView, Vec<Holding>)>;

/// A walk over the pools of a limit.
pub(super) struct Walk<'a> {
    shared: &'a Shared,
    name: &'a str,
    from: Bound<PoolId>,
}

impl<'a> Walk<'a> {
    /// Begins a walk over the pools of the limit that was configured as `name`.
    pub(super) fn new(shared: &'a Shared, name: &'a str) -> Self {
        Walk { shared, name, from: Bound::Unbounded }
    }

    /// Returns the next pools; `None` after the last, or once the limit is gone.
    pub(super) async fn next(&mut self) -> Option<Page> {
        // Exchanges that waited meanwhile go first.
        yield_now().await;
        let from = self.from.clone();
        let page = self.shared.with(|registry, now| {
            registry.limit(self.name).map_or(vec![], |limit| limit.holdings(now, from, STEP))
        });
        self.from = Bound::Excluded(page.last()?.0.clone());
        Some(page)
    }
}
