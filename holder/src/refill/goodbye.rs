//! The last that is told of a pool: what was spent, and how much comes back at most. As the rest of a refill, it reads no clock.

use super::{Asked, Refill, Seen};
use crate::permits::{Pacer, Permits};
use lessor_protocol::{Ask, Grant, PERMITS_MAX};

/// What the allocator knows to be lent, as totals since it last began to count from zero.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// Spent and held by the last ask that was answered, and lent by its answer.
    lent: u64,
    /// The most that an ask without an answer wanted: it may have been lent.
    unanswered_want: u64,
}

impl Known {
    /// `ask` is written.
    pub(super) fn asked(&mut self, ask: &Ask) {
        self.unanswered_want = self.unanswered_want.max(ask.want);
    }

    /// `ask` was answered with `grant`.
    pub(super) fn answered(&mut self, ask: &Asked, grant: &Grant) {
        self.lent = ask.spent_total.saturating_add(ask.held).saturating_add(grant.permits);
        self.unanswered_want = 0;
    }

    /// The allocator counts from zero. What an ask without an answer wanted may be lent all the same.
    pub(super) fn forget(&mut self) {
        self.lent = 0;
    }
}

impl<P: Pacer> Refill<P> {
    /// Takes everything that is free out of the slot and returns the final total for the allocator. What is set aside at
    /// that moment counts as spent. What was spent of a lease that the allocator does not know is not told.
    pub fn close(&mut self, slot: &impl Permits) -> u64 {
        if self.unrecognised.is_some() {
            self.forget(slot);
        }
        self.rate.forget();
        self.removed += slot.shed(0);
        self.spend_all_reserved();
        // What is set aside may be spent yet, and no report will say so.
        let busy = self.calls.busy();
        let spent = self.installed - self.removed - busy;
        if let Some(calls) = self.calls.unusual() {
            calls.close(spent);
        }
        spent + busy - self.forgotten
    }

    /// Permits let pass in shadow mode since the allocator last began to count from zero.
    pub fn shadow_refused(&self, seen: Seen) -> u64 {
        (seen.shadow_refused - self.shadow.forgotten).min(PERMITS_MAX)
    }

    /// The most permits that come back with a goodbye that says a total of `spent_total`.
    pub fn gives_back(&self, spent_total: u64) -> u64 {
        self.known.lent.saturating_sub(spent_total).saturating_add(self.known.unanswered_want)
    }
}
