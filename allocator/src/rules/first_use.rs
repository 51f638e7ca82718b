//! At most N in each of the windows that the first grant opens. A window is `[t, t+W)` on the allocator's clock, where t
//! is the first grant after the last window ended; no lease outlives it. A permit is charged to the window that is open
//! when it is lent, so it is spent in that window or never.
//!
//! Whoever counts from the first *call* that he sees begins his windows later than these begin, and may see 2N in one of
//! his: such a vendor's contract is a sliding window.

use super::{Ends, Ledger, Pace};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::rule::FixedWindow;
use std::time::Duration;

/// The books of a fixed window that its first use opens.
#[derive(Clone, Debug)]
pub struct FirstUseLedger {
    limit: u64,
    per: Duration,
    now: Moment,
    open: Option<Open>,
    outstanding: u64,
}

/// A window that holds `now`.
#[derive(Clone, Copy, Debug)]
struct Open {
    since: Moment,
    ends: Moment,
    /// Lent in it and not returned.
    charged: u64,
}

impl FirstUseLedger {
    /// No window is open at `now`.
    pub fn new(rule: &FixedWindow, now: Moment) -> Self {
        FirstUseLedger { limit: rule.limit(), per: rule.per(), now, open: None, outstanding: 0 }
    }
}

impl Ledger for FirstUseLedger {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        // Leases that end exactly with the window are settled right after this, and belong to none.
        self.open = self.open.filter(|open| open.ends > self.now);
    }

    fn available(&self) -> u64 {
        self.limit.saturating_sub(self.open.map_or(0, |open| open.charged))
    }

    fn charge(&mut self, permits: u64) {
        if permits == 0 {
            return;
        }
        let ends = self.now + self.per;
        let open = self.open.get_or_insert(Open { since: self.now, ends, charged: 0 });
        open.charged += permits;
        if mutant::is(Mutant::FirstUseRestarts) {
            open.ends = ends;
        }
        self.outstanding += permits;
    }

    fn settle(&mut self, permits: u64, _at: Moment) {
        self.outstanding -= permits;
    }

    fn release(&mut self, permits: u64) {
        self.outstanding -= permits;
        if let Some(open) = &mut self.open {
            open.charged -= permits;
        }
    }

    fn credit(&mut self, permits: u64, at: Moment) {
        // A lease that ended when a window was opened, or before, was lent in an earlier one.
        if let Some(open) = &mut self.open
            && at > open.since
        {
            open.charged -= permits;
        }
    }

    fn ready_at(&self, permits: u64, _ends: Ends<'_>) -> Option<Moment> {
        if permits <= self.available() {
            Some(self.now)
        } else if permits <= self.limit {
            self.open.map(|open| open.ends)
        } else {
            None
        }
    }

    fn arriving(&self, _span: Duration) -> u64 {
        0
    }

    fn sustained(&self, span: Duration) -> u64 {
        Pace { permits: self.limit, over: nanos(self.per) }.within(span)
    }

    fn pace(&self) -> Option<Pace> {
        let left = self.open.map_or(self.per, |open| open.ends.since(self.now));
        Some(Pace { permits: self.available(), over: nanos(left).max(1) })
    }

    fn lease_end(&self) -> Option<Moment> {
        Some(self.open.map_or(self.now + self.per, |open| open.ends))
    }

    /// A window that is open is remembered, also if nothing is charged to it: a new one would end later.
    fn is_fresh(&self) -> bool {
        self.open.is_none() && self.outstanding == 0
    }

    fn memory(&self) -> Duration {
        self.per
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Earlier lives may have opened a window as late as `quarantined`.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        quarantined + self.per
    }

    fn is_sound(&self) -> bool {
        let charged = self.open.map_or(0, |open| open.charged);
        charged <= self.limit && self.outstanding <= charged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::rule::Windows;

    fn ledger(limit: u64, now: u64) -> FirstUseLedger {
        let per = Duration::from_millis(100);
        let rule = FixedWindow::of(limit, Windows::FirstUse { per }).expect("valid");
        FirstUseLedger::new(&rule, millis(now))
    }

    fn millis(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_first_grant_opens_a_window_and_later_ones_do_not_move_it() {
        let mut ledger = ledger(3, 250);
        assert_eq!(ledger.lease_end(), Some(millis(350)));
        ledger.advance(millis(270));
        ledger.charge(0);
        assert!(ledger.is_fresh(), "a grant of nothing opens nothing");
        ledger.charge(2);
        ledger.advance(millis(330));
        ledger.charge(1);
        assert_eq!((ledger.lease_end(), ledger.available()), (Some(millis(370)), 0));
        assert_eq!(ledger.ready_at(1, &mut std::iter::empty()), Some(millis(370)));
        ledger.settle(3, millis(330));
        ledger.advance(millis(369));
        assert!(!ledger.is_fresh());
        ledger.advance(millis(370));
        assert!(ledger.is_fresh());
        assert_eq!((ledger.available(), ledger.lease_end()), (3, Some(millis(470))));
    }

    #[test]
    fn a_window_in_which_all_came_back_goes_on() {
        let mut ledger = ledger(3, 0);
        ledger.charge(3);
        ledger.release(3);
        ledger.advance(millis(60));
        assert!(!ledger.is_fresh());
        ledger.charge(3);
        assert_eq!(ledger.lease_end(), Some(millis(100)));
    }

    #[test]
    fn a_late_credit_helps_only_the_window_it_was_lent_in() {
        let mut ledger = ledger(3, 0);
        ledger.charge(3);
        ledger.advance(millis(60));
        ledger.settle(3, millis(60));
        ledger.credit(1, millis(60));
        assert_eq!(ledger.available(), 1);
        ledger.charge(1);
        ledger.advance(millis(100));
        ledger.settle(1, millis(100));
        ledger.charge(2);
        ledger.credit(1, millis(100));
        assert_eq!(ledger.available(), 1, "it was lent in the window before");
    }

    #[test]
    fn after_a_loss_it_waits_for_a_window_that_may_be_open() {
        assert_eq!(ledger(3, 0).forget(millis(70)), millis(170));
    }
}
