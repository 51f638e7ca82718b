//! The last report of a pool: the permits spent, and the most that are returned. Like the rest of a refill, it reads no
//! clock.

use super::{Asked, Refill, Seen};
use crate::permits::{Pacer, Permits};
use lessor_protocol::{Ask, Grant, PERMITS_MAX};

/// Permits that the allocator knows to be lent, as totals since it last began to count from zero.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// Spent and held by the last answered ask, plus the permits of its answer.
    lent: u64,
    /// The most that an unanswered ask wanted: it may have been lent.
    unanswered_want: u64,
}

impl Known {
    /// Records that `ask` is written.
    pub(super) fn asked(&mut self, ask: &Ask) {
        self.unanswered_want = self.unanswered_want.max(ask.want);
    }

    /// Records that `ask` was answered with `grant`.
    pub(super) fn answered(&mut self, ask: &Asked, grant: &Grant) {
        self.lent = ask.spent_total.saturating_add(ask.held).saturating_add(grant.permits);
        self.unanswered_want = 0;
    }

    /// Records that the allocator counts from zero. The want of an unanswered ask may be lent all the same.
    pub(super) fn forget(&mut self) {
        self.lent = 0;
    }
}

impl<P: Pacer> Refill<P> {
    /// Whether the allocator may not know of some permits that were spent of its leases.
    pub(super) fn has_untold(&self, slot: &impl Permits) -> bool {
        let spent = self.spent(slot) - self.forgotten;
        let untold = |asked: Asked| asked.has_untold || spent > asked.spent_total;
        self.unrecognised.is_none() && self.asked.is_some_and(untold)
    }

    /// Takes all free permits out of the slot and returns the final total for the allocator. Permits set aside at that
    /// moment count as spent. Spends of a lease that the allocator does not know are not reported.
    pub fn close(&mut self, slot: &impl Permits) -> u64 {
        if self.unrecognised.is_some() {
            self.forget(slot);
        }
        self.rate.forget();
        self.removed += slot.shed(0);
        self.spend_all_reserved();
        // Permits set aside may still be spent, and no later report would say so.
        let busy = self.calls.busy();
        let spent = self.installed - self.removed - busy;
        if let Some(calls) = self.calls.unusual() {
            calls.close(spent);
        }
        spent + busy - self.forgotten
    }

    /// Returns the permits let pass in shadow mode since the allocator last began to count from zero.
    pub fn shadow_refused(&self, seen: Seen) -> u64 {
        (seen.shadow_refused - self.shadow.forgotten).min(PERMITS_MAX)
    }

    /// Whether a goodbye with a total of `spent_total` tells the allocator anything that it does not know.
    pub fn has_to_say(&self, spent_total: u64, seen: Seen) -> bool {
        let is_shadow_told = seen.shadow_refused <= self.shadow.reported;
        !self.is_idle() || !is_shadow_told || self.gives_back(spent_total) > 0
    }

    /// Returns the most permits that a goodbye with a total of `spent_total` returns.
    pub fn gives_back(&self, spent_total: u64) -> u64 {
        self.known.lent.saturating_sub(spent_total).saturating_add(self.known.unanswered_want)
    }
}
