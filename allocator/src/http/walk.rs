//! Looking at all pools of a limit for people: some under the lock in one go, and asks of nodes in between.

use crate::shared::Shared;
use lessor_ledger::pool::{Holding, PoolView};
use lessor_ledger::registry::limit::PoolId;
use std::ops::Bound;
use tokio::task::yield_now;

/// Pools that are looked at under the lock in one go, in some tenths of a millisecond.
const STEP: usize = 500;

/// Pools with who holds what of each.
pub(super) type Page = Vec<(PoolId, PoolView, Vec<Holding>)>;

/// How far it has come.
pub(super) struct Walk<'a> {
    shared: &'a Shared,
    name: &'a str,
    from: Bound<PoolId>,
}

impl<'a> Walk<'a> {
    /// Through the pools of the limit that was configured as `name`.
    pub(super) fn new(shared: &'a Shared, name: &'a str) -> Self {
        Walk { shared, name, from: Bound::Unbounded }
    }

    /// The next of them; `None` after the last. A limit that went meanwhile has no more.
    pub(super) async fn next(&mut self) -> Option<Page> {
        // Asks of nodes that waited meanwhile go first.
        yield_now().await;
        let from = self.from.clone();
        let page = self.shared.with(|registry, now| {
            registry.limit(self.name).map_or(vec![], |limit| limit.holdings(now, from, STEP))
        });
        self.from = Bound::Excluded(page.last()?.0.clone());
        Some(page)
    }
}
