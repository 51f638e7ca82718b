//! At most N in each of the windows that follow each other without a gap, from an epoch on or by a calendar. A permit is
//! charged to each window in which it can be spent: the one in which it is lent and, where its lease reaches beyond that,
//! ahead of time to the next one. Two neighbouring windows may give 2N across their edge: that is what such a contract
//! says.
//!
//! Leases that were out when the rule came to be may reach further. They are charged to each window that they reach.

use super::{Account, Draw, Ends, Pace, RuleAccount, Saved, Since, scaled_up};
use crate::rule::{FixedWindow, Windows};
use crate::{Carry, Rule};
use lessor_protocol::moment::nanos;
use lessor_protocol::{Moment, PERMITS_MAX, Terms};
use std::time::Duration;

/// The books of a fixed window whose boundaries are known ahead.
#[derive(Clone, Debug)]
pub struct FixedLedger {
    limit: u64,
    windows: Windows,
    /// The most that a window lasts, never zero.
    per: Duration,
    now: Moment,
    /// Leases that ended until then could be spent in windows before the one that holds `now` only, or are charged in part
    /// only.
    since: Moment,
    /// The end of the window that holds `now`.
    ends: Moment,
    /// Lent and not returned, of what could be spent in the window that holds `now`.
    charged: u64,
    /// Of those, not yet settled.
    outstanding: u64,
    /// Of those, what can be spent in the next window too.
    ahead: u64,
    /// Permits on top of the limit in the window that holds `now`.
    extra: u64,
    /// Permits that were out before there was this rule, and when the last of their leases ends.
    adopted: (u64, Moment),
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
            ahead: 0,
            extra: 0,
            adopted: (0, now),
        }
    }

    /// What may be charged in this window.
    fn allowed(&self) -> u64 {
        self.limit.saturating_add(self.extra).min(PERMITS_MAX)
    }

    /// What the next window has left.
    fn left_ahead(&self) -> u64 {
        self.limit.saturating_sub(self.ahead)
    }

    /// The next window begins, or one that nothing was lent for.
    fn cross(&mut self, next: Moment) {
        let (adopted, until) = self.adopted;
        let reaching = if self.ends < until { adopted.min(self.outstanding) } else { 0 };
        self.charged = std::mem::take(&mut self.ahead).max(reaching);
        self.extra = 0;
        self.since = self.ends;
        self.ends = next;
    }
}

/// The end of the window that holds `at`. Windows that were not opened never end: [`super::FirstUseLedger`] keeps those.
fn end_after(windows: &Windows, at: Moment) -> Moment {
    windows.end_after(at).unwrap_or(Moment::NEVER)
}

impl Account for FixedLedger {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        if self.ends <= self.now {
            // Leases that end exactly at the boundary are settled right after this, and belong to no window.
            self.cross(end_after(&self.windows, self.ends));
        }
        if self.ends <= self.now {
            self.cross(end_after(&self.windows, self.now));
        }
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
        // A lease that ended exactly at a boundary could be spent in the window before it only.
        if at > self.since {
            self.charged -= permits;
        }
    }

    fn ready_at(&self, permits: u64, _ends: Ends<'_>) -> Option<Moment> {
        if permits <= self.available() {
            Some(self.now)
        } else if permits <= self.left_ahead() {
            Some(self.ends)
        } else if permits <= self.limit {
            // What is charged ahead stays charged, whenever it is spent.
            Some(end_after(&self.windows, self.ends))
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

    /// What the next window has is there when it begins.
    fn lasts(&self, draw: Draw) -> Option<Duration> {
        draw.lasts(self.available()).filter(|lasts| self.now + *lasts < self.ends)
    }

    fn pace(&self) -> Option<Pace> {
        let over = nanos(self.ends.since(self.now)).max(1);
        Some(Pace { permits: self.available(), over })
    }

    fn lease_end(&self) -> Option<Moment> {
        Some(self.ends)
    }

    fn is_fresh(&self) -> bool {
        self.charged == 0 && self.outstanding == 0 && self.extra == 0
    }

    fn memory(&self) -> Duration {
        self.per
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Whatever earlier lives lent, also ahead, ended by `quarantined`: it was spent in windows up to the one that holds
    /// that, and the next one is clean. The window after the one in which they died need not be.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        end_after(&self.windows, quarantined)
    }

    fn adopt(&mut self, permits: u64, until: Moment) {
        (self.charged, self.outstanding) = (permits, permits);
        self.adopted = (permits, until);
    }

    fn excess(&self) -> u64 {
        let now = self.charged.saturating_sub(self.allowed());
        now.max(self.ahead.saturating_sub(self.limit))
    }

    fn is_sound(&self) -> bool {
        self.outstanding <= self.charged && self.ahead <= self.outstanding
    }
}

impl RuleAccount for FixedLedger {
    fn change(&mut self, rule: &Rule, _terms: Terms, carry: Carry) -> bool {
        let Rule::FixedWindow(rule) = rule else { return false };
        if rule.windows() != self.windows {
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

    fn top_up(&mut self, permits: u64) {
        self.extra = self.extra.saturating_add(permits);
    }

    fn most(&self) -> u64 {
        self.allowed()
    }

    fn save(&self) -> Saved {
        let (ends, since) = (self.ends.into(), Some(self.since.into()));
        Saved::Fixed { ends, charged: self.charged, extra: self.extra, since }
    }

    /// Which window it was the calendar says, however long ago that is. What is out may reach into each that begins until
    /// its end.
    fn restore(&mut self, saved: &Saved, since: Since, (out, until): (u64, Moment)) -> bool {
        let &Saved::Fixed { ends, charged, extra, since: began } = saved else { return false };
        if charged > PERMITS_MAX || extra > PERMITS_MAX || out > charged {
            return false;
        }
        let ends = ends.as_calendar();
        let is_over = ends < self.ends;
        (self.charged, self.extra) = if is_over { (out, 0) } else { (charged, extra) };
        if let Some(began) = began.filter(|_| !is_over) {
            self.since = since.moment(began);
        }
        self.ends = self.ends.max(ends);
        (self.outstanding, self.adopted) = (out, (out, until));
        true
    }
}

impl FixedLedger {
    /// The instant that no lease may outlive at all.
    pub fn lease_end_ahead(&self) -> Option<Moment> {
        Some(end_after(&self.windows, self.ends))
    }

    /// Permits that a lease until `end` may hold, if it is the lease of a session that holds `own`: permits, and until when.
    pub fn room_ahead(&self, end: Moment, own: (u64, Moment)) -> u64 {
        let (permits, until) = own;
        let mine = if until > self.ends { permits } else { 0 };
        if end > self.ends { self.left_ahead() + mine } else { u64::MAX }
    }

    /// `permits` that are charged may be spent until `end`. What reaches beyond [`Account::lease_end`] is charged to the next window
    /// too, until [`FixedLedger::release_ahead`] or until that window has begun.
    pub fn charge_ahead(&mut self, permits: u64, end: Moment) {
        self.ahead += if end > self.ends { permits } else { 0 };
    }

    /// `permits` that might have been spent until `end` are spent by now, or will not be.
    pub fn release_ahead(&mut self, permits: u64, end: Moment) {
        self.ahead -= if end > self.ends { permits } else { 0 };
    }

    /// Charges ahead exactly what `ends` says, in any order: leases may reach further than it would have lent for, if they
    /// were lent before there was this rule.
    pub fn recount_ahead(&mut self, ends: Ends<'_>) {
        self.ahead = ends.filter(|&(end, _)| end > self.ends).map(|(_, permits)| permits).sum();
    }

    /// Whether what it has charged ahead is what `ends` says, for assertions.
    pub fn is_ahead_of(&self, ends: Ends<'_>) -> bool {
        self.ahead == ends.filter(|&(end, _)| end > self.ends).map(|(_, permits)| permits).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Calendar, Unit, Zone};

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
    fn a_lease_may_reach_into_the_next_window_and_no_further() {
        let ends = |now| (ledger(3, now).lease_end(), ledger(3, now).lease_end_ahead());
        assert_eq!(ends(250), (Some(millis(300)), Some(millis(400))));
        assert_eq!(ends(300), (Some(millis(400)), Some(millis(500))));
    }

    #[test]
    fn what_can_be_spent_in_two_windows_is_charged_to_both() {
        let mut ledger = ledger(10, 250);
        ledger.charge(8);
        ledger.charge_ahead(3, millis(300));
        ledger.charge_ahead(5, millis(301));
        assert_eq!(ledger.room_ahead(millis(300), (0, millis(0))), u64::MAX);
        assert_eq!(ledger.room_ahead(millis(301), (0, millis(0))), 5);
        assert_eq!(ledger.room_ahead(millis(301), (5, millis(301))), 10, "its own may stay");
        // One comes back and one was spent, both before the boundary: neither counts beyond it.
        ledger.release_ahead(2, millis(301));
        ledger.release(1);
        ledger.settle(1, millis(290));
        ledger.advance(millis(300));
        ledger.settle(3, millis(300));
        assert_eq!((ledger.available(), ledger.outstanding()), (7, 3));
        // Spent, it stays charged, whenever that was; unspent, it does not.
        ledger.settle(2, millis(310));
        ledger.release(1);
        assert_eq!((ledger.available(), ledger.outstanding()), (8, 0));
        ledger.advance(millis(400));
        assert_eq!(ledger.available(), 10);
    }

    #[test]
    fn windows_that_pass_unseen_leave_nothing_charged() {
        let mut ledger = ledger(10, 250);
        ledger.charge(5);
        ledger.charge_ahead(5, millis(400));
        // The lease ends exactly with the window that it reaches into.
        ledger.advance(millis(400));
        ledger.settle(5, millis(400));
        assert_eq!((ledger.available(), ledger.lease_end()), (10, Some(millis(500))));
        ledger.credit(5, millis(400));
        assert_eq!(ledger.available(), 10, "it could be spent in the two windows before only");
        ledger.charge(1);
        ledger.settle(1, millis(410));
        ledger.advance(millis(1_234));
        assert_eq!((ledger.available(), ledger.lease_end()), (10, Some(millis(1_300))));
    }

    #[test]
    fn what_is_charged_ahead_is_not_promised_at_the_boundary() {
        let mut ledger = ledger(10, 250);
        ledger.charge(10);
        ledger.charge_ahead(4, millis(310));
        assert_eq!(ledger.ready_at(6, &mut std::iter::empty()), Some(millis(300)));
        assert_eq!(ledger.ready_at(7, &mut std::iter::empty()), Some(millis(400)));
        assert_eq!(ledger.ready_at(11, &mut std::iter::empty()), None);
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
