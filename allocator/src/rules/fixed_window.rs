//! At most N in each window `[k·W, (k+1)·W)` since the epoch of the allocator's clock. A permit is charged to
//! the window in which it is lent, and no lease outlives its window, so it is spent in that window or never.
//! Two neighbouring windows may give 2N across their edge: that is what such a contract says.
//!
//! Leases that were out when the rule came to be may outlive a window. They are charged to each that they reach.

use super::{Ends, Ledger, Pace, scaled_up};
use lessor_protocol::moment::nanos;
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::rule::FixedWindow;
use lessor_protocol::{Carry, Moment, PERMITS_MAX, Rule, Terms};
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
    /// Permits on top of the limit in the window that holds `now`.
    extra: u64,
    /// Permits that were out before there was this rule, and when the last of their leases ends.
    adopted: (u64, Moment),
    /// What was settled until then is charged in part or not at all, and proves nothing later.
    since: Moment,
}

impl FixedLedger {
    /// An empty window at `now`.
    pub fn new(rule: &FixedWindow, now: Moment) -> Self {
        FixedLedger {
            limit: rule.limit(),
            per: nanos(rule.per()).max(1),
            now,
            charged: 0,
            outstanding: 0,
            extra: 0,
            adopted: (0, now),
            since: now,
        }
    }

    /// What may be charged in this window.
    fn allowed(&self) -> u64 {
        self.limit.saturating_add(self.extra).min(PERMITS_MAX)
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
            let (adopted, until) = self.adopted;
            self.charged = if now < until { adopted.min(self.outstanding) } else { 0 };
            self.extra = 0;
        }
        self.now = self.now.max(now);
    }

    fn available(&self) -> u64 {
        self.allowed().saturating_sub(self.charged)
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
        if at <= self.since {
            // It was charged to the rules before.
        } else if self.window_of(lent_until) == self.window_of(self.now) {
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
        self.charged == 0 && self.outstanding == 0 && self.extra == 0
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

    fn change(&mut self, rule: &Rule, _terms: Terms, carry: Carry) -> bool {
        let Rule::FixedWindow(rule) = rule else { return false };
        if nanos(rule.per()).max(1) != self.per {
            return false;
        }
        if carry == Carry::Proportional {
            let settled = scaled_up(self.charged - self.outstanding, self.limit, rule.limit());
            self.charged = self.outstanding + settled;
            self.since = self.now;
        }
        self.limit = rule.limit();
        true
    }

    fn adopt(&mut self, permits: u64, until: Moment) {
        (self.charged, self.outstanding) = (permits, permits);
        self.adopted = (permits, until);
    }

    fn top_up(&mut self, permits: u64) {
        self.extra = self.extra.saturating_add(permits);
    }

    fn excess(&self) -> u64 {
        self.charged.saturating_sub(self.allowed())
    }

    fn boxed(&self) -> Box<dyn Ledger + Send> {
        Box::new(self.clone())
    }

    fn is_sound(&self) -> bool {
        self.outstanding <= self.charged
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
