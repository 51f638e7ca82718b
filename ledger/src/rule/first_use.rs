//! At most N in each of the windows that the first grant opens. A window is `[t, t+W)` on the allocator's clock, where t
//! is the first grant after the last window ended; no lease outlives it. A permit is charged to the window that is open
//! when it is lent, so it is spent in that window or never.
//!
//! A vendor that counts from the first *call* that it sees begins its windows later than these begin. It may see 2N in one of its
//! windows: such a vendor's contract is a sliding window.

use super::{Account, Draw, Ends, Gap, Pace, RuleAccount, Saved, Since, scaled_up};
use super::{FixedWindow, Windows};
use crate::packed::Carrier;
use crate::{CarryOver, Rule};
use lessor_protocol::moment::nanos;
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX};
use std::time::Duration;

/// The books of a fixed window that its first use opens.
#[derive(Clone, Debug)]
pub struct FirstUseLedger {
    limit: u64,
    per: Duration,
    now: Moment,
    open: Option<Open>,
    outstanding: u64,
    /// Permits on top of the limit in the window that is open, or else in the next.
    extra: u64,
    /// Permits that were outstanding when these books began, and when the last of their leases ends.
    adopted: (u64, Moment),
}

/// A window that holds `now`.
#[derive(Clone, Copy, Debug)]
struct Open {
    since: Moment,
    ends: Moment,
    /// Permits lent in it and not returned.
    charged: u64,
    /// Whether nothing more is lent in it. It may be over by now, and a grant would open another window that these
    /// books do not know.
    is_shut: bool,
}

impl FirstUseLedger {
    /// Creates books without an open window at `now`.
    pub fn new(rule: &FixedWindow, now: Moment) -> Self {
        FirstUseLedger {
            limit: rule.limit(),
            per: rule.per(),
            now,
            open: None,
            outstanding: 0,
            extra: 0,
            adopted: (0, now),
        }
    }

    /// Returns the most that may be charged in a window.
    fn allowed(&self) -> u64 {
        self.limit.saturating_add(self.extra).min(PERMITS_MAX)
    }
}

impl FirstUseLedger {
    /// See [`super::Ledger::carry`].
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.now);
        let blank = Open { since: self.now, ends: self.now, charged: 0, is_shut: false };
        carrier.option(
            &mut self.open,
            || blank,
            |carrier, open| {
                carrier.moment(&mut open.since);
                carrier.moment(&mut open.ends);
                carrier.number(&mut open.charged);
                carrier.flag(&mut open.is_shut);
            },
        );
        carrier.number(&mut self.extra);
        carrier.number(&mut self.adopted.0);
        carrier.moment(&mut self.adopted.1);
    }

    /// See [`super::Ledger::rests_until`].
    pub(super) fn rests_until(&self) -> Moment {
        self.open.map_or(Moment::NEVER, |open| open.ends)
    }
}

impl Account for FirstUseLedger {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        // Leases that end exactly with the window are settled right after this, and are charged to no other.
        if let Some(open) = self.open.filter(|open| open.ends <= self.now) {
            let (adopted, until) = self.adopted;
            let charged = adopted.min(self.outstanding);
            // Leases that reach beyond the window are charged to another one, which begins where this one ended.
            let next = Open { since: open.ends, ends: self.now + self.per, charged, is_shut: false };
            self.open = (self.now < until && charged > 0).then_some(next);
            self.extra = 0;
        }
    }

    fn available(&self) -> u64 {
        match self.open {
            Some(open) if open.is_shut => 0,
            open => self.allowed().saturating_sub(open.map_or(0, |open| open.charged)),
        }
    }

    fn charge(&mut self, permits: u64) {
        if permits == 0 {
            return;
        }
        let ends = self.now + self.per;
        let open = self.open.get_or_insert(Open { since: self.now, ends, charged: 0, is_shut: false });
        open.charged += permits;
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

    fn sustained(&self, span: Duration) -> u64 {
        Pace { permits: self.limit, over: nanos(self.per) }.within(span)
    }

    /// The permits of the next window are there when it begins.
    fn lasts(&self, draw: Draw) -> Option<Duration> {
        let ends = self.open.map_or(self.now + self.per, |open| open.ends);
        draw.lasts(self.available()).filter(|lasts| self.now + *lasts < ends)
    }

    fn pace(&self) -> Option<Pace> {
        let left = self.open.map_or(self.per, |open| open.ends.since(self.now));
        Some(Pace { permits: self.available(), over: nanos(left).max(1) })
    }

    fn lease_end(&self) -> Option<Moment> {
        Some(self.open.map_or(self.now + self.per, |open| open.ends))
    }

    /// An open window is remembered even if nothing is charged to it: a new one would end later.
    fn is_fresh(&self) -> bool {
        self.open.is_none() && self.outstanding == 0 && self.extra == 0
    }

    fn memory(&self) -> Duration {
        self.per
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Earlier processes may have opened a window as late as `quarantined`.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        quarantined + self.per
    }

    fn excess(&self) -> u64 {
        self.open.map_or(0, |open| open.charged.saturating_sub(self.allowed()))
    }

    fn is_sound(&self) -> bool {
        self.outstanding <= self.open.map_or(0, |open| open.charged)
    }
}

impl RuleAccount for FirstUseLedger {
    fn change(&mut self, rule: &Rule, _clocks: ClockBounds, carry_over: CarryOver) -> bool {
        let Rule::FixedWindow(rule) = rule else { return false };
        if rule.windows() != (Windows::FirstUse { per: self.per }) {
            return false;
        }
        if let Some(open) = self.open.as_mut().filter(|_| carry_over == CarryOver::Proportional) {
            let settled = scaled_up(open.charged - self.outstanding, self.limit, rule.limit());
            (open.charged, open.since) = ((self.outstanding + settled).min(PERMITS_MAX), self.now);
        }
        self.limit = rule.limit();
        true
    }

    fn adopt(&mut self, permits: u64, until: Moment) {
        self.charge(permits);
        self.adopted = (permits, until);
    }

    fn top_up(&mut self, permits: u64) {
        self.extra = self.extra.saturating_add(permits);
    }

    fn most(&self) -> u64 {
        self.allowed()
    }

    fn save(&self) -> Saved {
        let open = self.open.map(|open| (open.ends.into(), open.charged));
        let since = self.open.map(|open| open.since.into());
        let is_shut = self.open.is_some_and(|open| open.is_shut);
        Saved::FirstUse { open, since, extra: self.extra, is_shut }
    }

    fn restore(&mut self, saved: &Saved, since: Since, (out, until): (u64, Moment)) -> bool {
        let &Saved::FirstUse { open, since: began, extra, is_shut } = saved else { return false };
        let charged = open.map_or(0, |(_, charged)| charged);
        if charged > PERMITS_MAX || extra > PERMITS_MAX || out > charged {
            return false;
        }
        let began = began.map_or(self.now, |began| since.moment(began));
        // After an unknown gap the window may be over. It is over for sure once as much time has passed as was left of
        // it, with nothing lent meanwhile.
        let is_shut = is_shut || since.gap == Gap::Unknown;
        self.open =
            open.map(|(ends, charged)| Open { since: began, ends: since.moment(ends), charged, is_shut });
        (self.extra, self.outstanding, self.adopted) = (extra, out, (out, until));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Windows;
    use lessor_protocol::moment::millis;

    fn ledger(limit: u64, now: u64) -> FirstUseLedger {
        let per = Duration::from_millis(100);
        let rule = FixedWindow::of(limit, Windows::FirstUse { per }).expect("valid");
        FirstUseLedger::new(&rule, millis(now))
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
    fn after_a_gap_that_was_not_counted_nothing_is_lent_until_the_window_is_over_for_sure() {
        let mut first = ledger(3, 0);
        first.charge(2);
        first.advance(millis(40));
        let restored = |saved: &Saved, gap, (written, now): (u64, u64), (out, until): (u64, u64)| {
            let clocks = ClockBounds::try_new(0).expect("no drift");
            let since = Since { gap, written: millis(written).into(), now: millis(now), clocks };
            let mut again = ledger(3, now);
            assert!(again.restore(saved, since, (out, millis(until))));
            again.advance(millis(now));
            again
        };
        let saved = first.save();
        let known = restored(&saved, Gap::Counted, (40, 50), (1, 100));
        assert_eq!((known.available(), known.lease_end()), (1, Some(millis(100))));
        let mut shut = restored(&saved, Gap::Unknown, (40, 1_000), (1, 1_060));
        shut.release(1);
        assert_eq!(
            (shut.available(), shut.lease_end()),
            (0, Some(millis(1_060))),
            "what comes back makes no room"
        );
        assert_eq!(shut.ready_at(3, &mut std::iter::empty()), Some(millis(1_060)));
        let saved = shut.save();
        let other = restored(&saved, Gap::Unknown, (1_010, 7), (0, 7));
        assert_eq!((other.available(), other.lease_end()), (0, Some(millis(57))), "no longer than was left");
        let mut still = restored(&saved, Gap::Counted, (1_010, 1_020), (0, 1_020));
        assert_eq!((still.available(), still.lease_end()), (0, Some(millis(1_060))));
        still.advance(millis(1_060));
        assert_eq!((still.available(), still.is_fresh()), (3, true));
    }

    #[test]
    fn after_a_loss_it_waits_for_a_window_that_may_be_open() {
        assert_eq!(ledger(3, 0).forget(millis(70)), millis(170));
    }

    /// Ten permits are outstanding for 250 ms when the limit gets this rule. Each window that they reach is charged for
    /// them.
    #[test]
    fn leases_that_outlive_a_new_window_are_charged_to_the_next() {
        let mut ledger = ledger(12, 1_000);
        ledger.adopt(10, millis(1_250));
        assert_eq!((ledger.available(), ledger.lease_end()), (2, Some(millis(1_100))));
        for (at, available) in [(1_100, 2), (1_200, 2)] {
            ledger.advance(millis(at));
            assert_eq!(ledger.available(), available, "after {at} ms");
        }
        ledger.advance(millis(1_250));
        ledger.settle(10, millis(1_250));
        ledger.advance(millis(1_300));
        assert_eq!((ledger.available(), ledger.is_fresh()), (12, true));
    }

    #[test]
    fn a_window_that_is_changed_stays_open_and_a_top_up_ends_with_it() {
        let mut ledger = ledger(10, 0);
        ledger.charge(6);
        let of = |limit, per| {
            let per = Duration::from_millis(per);
            Rule::FixedWindow(FixedWindow::of(limit, Windows::FirstUse { per }).expect("valid"))
        };
        let clocks = ClockBounds::try_new(0).expect("no drift");
        assert!(!ledger.change(&of(5, 200), clocks, CarryOver::AsIs), "another period");
        assert!(ledger.change(&of(4, 100), clocks, CarryOver::AsIs));
        assert_eq!((ledger.available(), ledger.excess()), (0, 2));
        ledger.top_up(3);
        assert_eq!((ledger.available(), ledger.lease_end()), (1, Some(millis(100))));
        ledger.settle(6, millis(50));
        ledger.advance(millis(100));
        assert_eq!((ledger.available(), ledger.is_fresh()), (4, true));
    }

    /// The bug: a top-up had allowed more charges than the limit, and what is charged, scaled, did not fit 64 bits.
    #[test]
    fn in_proportion_no_more_is_charged_than_there_can_be() {
        let mut first = ledger(1, 0);
        first.top_up(10_000);
        first.charge(3_001);
        first.settle(3_000, millis(10));
        let windows = Windows::FirstUse { per: Duration::from_millis(100) };
        let most = Rule::FixedWindow(FixedWindow::of(PERMITS_MAX, windows).expect("valid"));
        let clocks = ClockBounds::try_new(0).expect("no drift");
        assert!(first.change(&most, clocks, CarryOver::Proportional));
        assert_eq!((first.available(), first.is_sound()), (0, true));
        let since = Since { gap: Gap::Counted, written: millis(10).into(), now: millis(10), clocks };
        let mut again = ledger(PERMITS_MAX, 10);
        assert!(again.restore(&first.save(), since, (1, millis(90))));
        assert_eq!(again.available(), 0);
    }
}
