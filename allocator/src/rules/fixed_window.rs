//! At most N in each window `[k·W, (k+1)·W)` since the epoch of the allocator's clock. A permit is charged to
//! the window in which it is lent, and no lease outlives its window, so it is spent in that window or never.
//! Two neighbouring windows may give 2N across their edge: that is what such a contract says.

use super::{Ends, Ledger, Pace};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::rule::FixedWindow;
use std::time::Duration;

/// The books of a fixed window.
#[derive(Clone, Debug)]
pub struct FixedLedger {
    limit: u64,
    /// Length of a window in nanoseconds, never zero.
    per: u64,
    now: Moment,
    /// Lent and not returned in the window that holds `now`.
    charged: u64,
    /// Of those, not yet settled.
    outstanding: u64,
}

impl FixedLedger {
    /// An empty window at `now`.
    pub fn new(rule: &FixedWindow, now: Moment) -> Self {
        FixedLedger { limit: rule.limit(), per: nanos(rule.per()).max(1), now, charged: 0, outstanding: 0 }
    }

    fn window_of(&self, at: Moment) -> u64 {
        at.as_nanos() / self.per
    }

    /// The end of the window that holds `at`.
    fn boundary(&self, at: Moment) -> Moment {
        Moment::from_nanos((self.window_of(at) + 1).saturating_mul(self.per))
    }
}

impl Ledger for FixedLedger {
    fn advance(&mut self, now: Moment) {
        if self.window_of(now) > self.window_of(self.now) {
            // Leases that end exactly at the boundary are settled right after this, and belong to no window.
            self.charged = 0;
        }
        self.now = self.now.max(now);
    }

    fn available(&self) -> u64 {
        self.limit.saturating_sub(self.charged)
    }

    fn charge(&mut self, permits: u64) {
        self.charged += permits;
        self.outstanding += permits;
    }

    fn settle(&mut self, permits: u64, _at: Moment) {
        self.outstanding -= permits;
    }

    fn release(&mut self, permits: u64) {
        self.charged -= permits;
        self.outstanding -= permits;
    }

    fn credit(&mut self, permits: u64, at: Moment) {
        // A lease that ended exactly at a boundary was lent in the window before it.
        let lent_until = Moment::from_nanos(at.as_nanos().saturating_sub(1));
        if self.window_of(lent_until) == self.window_of(self.now) {
            self.charged -= permits;
        } else if mutant::is(Mutant::LateCredit) {
            self.charged -= permits.min(self.charged);
        }
    }

    fn ready_at(&self, permits: u64, _ends: Ends<'_>) -> Option<Moment> {
        if permits <= self.available() {
            Some(self.now)
        } else if permits <= self.limit {
            Some(self.boundary(self.now))
        } else {
            None
        }
    }

    fn arriving(&self, _span: Duration) -> u64 {
        0
    }

    fn sustained(&self, span: Duration) -> u64 {
        Pace { permits: self.limit, over: self.per }.within(span)
    }

    fn pace(&self) -> Option<Pace> {
        let over = nanos(self.boundary(self.now).since(self.now)).max(1);
        Some(Pace { permits: self.available(), over })
    }

    fn lease_end(&self) -> Option<Moment> {
        if mutant::is(Mutant::FixedNotClipped) { None } else { Some(self.boundary(self.now)) }
    }

    fn is_fresh(&self) -> bool {
        self.charged == 0 && self.outstanding == 0
    }

    fn memory(&self) -> Duration {
        Duration::from_nanos(self.per)
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Earlier lives granted in windows up to the one that holds `quarantined`; the next one is clean.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        self.boundary(quarantined)
    }

    fn is_sound(&self) -> bool {
        self.charged <= self.limit && self.outstanding <= self.charged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(limit: u64, now: u64) -> FixedLedger {
        let per = Duration::from_millis(100);
        let rule = FixedWindow::try_new(limit, per).expect("valid");
        FixedLedger::new(&rule, millis(now))
    }

    fn millis(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn each_window_has_its_own_count_and_they_are_aligned() {
        let mut ledger = ledger(3, 250);
        ledger.charge(3);
        ledger.settle(3, millis(260));
        ledger.advance(millis(299));
        assert_eq!(ledger.available(), 0);
        assert_eq!(ledger.ready_at(1, &mut std::iter::empty()), Some(millis(300)));
        ledger.advance(millis(300));
        assert_eq!(ledger.available(), 3);
    }

    #[test]
    fn a_lease_may_not_outlive_its_window() {
        assert_eq!(ledger(3, 250).lease_end(), Some(millis(300)));
        assert_eq!(ledger(3, 300).lease_end(), Some(millis(400)));
    }

    #[test]
    fn a_late_credit_helps_only_the_window_it_was_lent_in() {
        let mut ledger = ledger(3, 250);
        ledger.charge(3);
        ledger.settle(3, millis(280));
        ledger.credit(1, millis(280));
        assert_eq!(ledger.available(), 1);
        ledger.charge(1);
        ledger.advance(millis(300));
        ledger.settle(1, millis(300));
        ledger.credit(1, millis(300));
        assert_eq!(ledger.available(), 3, "the lease ended at the boundary: it was lent before it");
        assert!(ledger.is_sound());
    }
}
