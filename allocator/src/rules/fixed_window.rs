//! At most N in each of the windows that follow each other without a gap, from an epoch on or by a calendar. A permit is
//! charged to the window in which it is lent, and no lease outlives its window, so it is spent in that window or never.
//! Two neighbouring windows may give 2N across their edge: that is what such a contract says.

use super::{Ends, Ledger, Pace};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::rule::{FixedWindow, Windows};
use std::time::Duration;

/// The books of a fixed window whose boundaries are known ahead.
#[derive(Clone, Debug)]
pub struct FixedLedger {
    limit: u64,
    windows: Windows,
    /// The most that a window lasts, never zero.
    per: Duration,
    now: Moment,
    /// Leases that ended until then were lent in windows before the one that holds `now`.
    since: Moment,
    /// The end of the window that holds `now`.
    ends: Moment,
    /// Lent and not returned in the window that holds `now`.
    charged: u64,
    /// Of those, not yet settled.
    outstanding: u64,
}

impl FixedLedger {
    /// An empty window at `now`.
    pub fn new(rule: &FixedWindow, now: Moment) -> Self {
        let windows = rule.windows();
        FixedLedger {
            limit: rule.limit(),
            windows,
            per: rule.per(),
            now,
            since: now,
            ends: end_after(&windows, now),
            charged: 0,
            outstanding: 0,
        }
    }
}

/// The end of the window that holds `at`. Windows that nobody opened never end: [`super::FirstUseLedger`] keeps those.
fn end_after(windows: &Windows, at: Moment) -> Moment {
    windows.end_after(at).unwrap_or(Moment::NEVER)
}

impl Ledger for FixedLedger {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        if self.ends <= self.now {
            // Leases that end exactly at the boundary are settled right after this, and belong to no window.
            self.charged = 0;
            self.since = self.ends;
            self.ends = end_after(&self.windows, self.now);
        }
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
        if at > self.since {
            self.charged -= permits;
        } else if mutant::is(Mutant::LateCredit) {
            self.charged -= permits.min(self.charged);
        }
    }

    fn ready_at(&self, permits: u64, _ends: Ends<'_>) -> Option<Moment> {
        if permits <= self.available() {
            Some(self.now)
        } else if permits <= self.limit {
            Some(self.ends)
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
        let over = nanos(self.ends.since(self.now)).max(1);
        Some(Pace { permits: self.available(), over })
    }

    fn lease_end(&self) -> Option<Moment> {
        if mutant::is(Mutant::FixedNotClipped) { None } else { Some(self.ends) }
    }

    fn is_fresh(&self) -> bool {
        self.charged == 0 && self.outstanding == 0
    }

    fn memory(&self) -> Duration {
        self.per
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Earlier lives granted in windows up to the one that holds `quarantined`; the next one is clean.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        end_after(&self.windows, quarantined)
    }

    fn is_sound(&self) -> bool {
        self.charged <= self.limit && self.outstanding <= self.charged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::rule::{Calendar, Unit, Zone};

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
    fn a_month_ends_by_the_clock_of_its_zone() {
        // 1 March 2024 in Berlin begins at 23:00 UTC.
        let berlin = Zone::try_new("Europe/Berlin").expect("a zone");
        let months = Windows::Calendar(Calendar::new(Unit::Month, berlin));
        let rule = FixedWindow::of(3, months).expect("valid");
        let march = Moment::from_nanos(1_709_247_600_000_000_000);
        let mut ledger = FixedLedger::new(&rule, march.before(Duration::from_secs(5)));
        ledger.charge(2);
        assert_eq!((ledger.lease_end(), ledger.available()), (Some(march), 1));
        assert_eq!(ledger.ready_at(2, &mut std::iter::empty()), Some(march));
        ledger.advance(march.before(Duration::from_nanos(1)));
        assert_eq!(ledger.available(), 1);
        ledger.advance(march);
        ledger.settle(2, march);
        ledger.credit(2, march);
        assert_eq!(ledger.available(), 3, "the lease ended with February");
        let april = march + Duration::from_secs(31 * 86_400 - 3_600);
        assert_eq!(ledger.lease_end(), Some(april), "an hour less, for the clock is put forward");
        assert_eq!(ledger.forget(march), april);
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
