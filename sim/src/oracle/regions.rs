//! What the oracle checks of hosts that lend on what they lease: of the allocator above, whose sessions they are, and
//! of a region that dies while its nodes hold leases.

use super::promise::Promise;
use super::{Instant, Oracle, Verdict, must};
use lessor_ledger::pool::PoolView;
use std::ops::Range;

impl Oracle {
    /// S1–S7: `permits` were admitted on a lease of `region`, which lends on what it leases here.
    pub(crate) fn admitted_below(&mut self, now: Instant, region: usize, permits: u64, way: u64) -> Verdict {
        self.admitted += if now.allocator >= self.opens { permits } else { 0 };
        self.counts(now, permits, way)?;
        let ends = self.sessions.values().filter(|session| session.node == region).map(|session| session.end);
        let end = ends.max().unwrap_or_default();
        must("S7", now.allocator < end, || {
            format!(
                "a node of region {region} spent at {:?}, all leases there ended at {end:?}",
                now.allocator
            )
        })
    }

    /// Records that a region died and begins without books. Its nodes' leases stay valid.
    pub(crate) fn region_lost(&mut self, now: Instant, view: PoolView) {
        let ends = self.leases_end(now).allocator;
        self.books_lost(now, view);
        self.inherited_until = ends;
    }

    /// Records that a root with the rules at `rules` lent `permits` at its time, which is that of `now`.
    pub(crate) fn root_lends(&mut self, rules: Range<usize>, now: Instant, permits: u64) {
        self.promises[rules].iter_mut().for_each(|promise| promise.lent(now, permits));
    }

    /// Records that it is unknown which windows are open, until the next grant opens one.
    pub(crate) fn windows_unknown(&mut self) {
        self.promises.iter_mut().for_each(Promise::windows_unknown);
    }

    /// Records that `permits` can be spent again.
    pub(crate) fn unspent_below(&mut self, permits: u64) {
        self.admitted = self.admitted.saturating_sub(permits);
    }
}
