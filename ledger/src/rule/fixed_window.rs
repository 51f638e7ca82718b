//! `fixed_window`: At most N in each of the windows that follow each other without a gap, from an epoch on or by a
//! calendar. A permit is charged to each window in which it can be spent: the one in which it is lent and, where its
//! lease reaches beyond that, ahead of time to the next one. Two neighbouring windows may give 2N across their edge:
//! that is what such a contract says.
//!
//! Leases that were outstanding when the limit got this rule may reach further. They are charged to each window that
//! they reach.

use super::{
    Account, Calendar, Draw, Ends, Pace, RuleAccount, RuleError, Saved, Since, check_per, check_permits,
    scaled_up,
};
use crate::packed::Carrier;
use crate::{CarryOver, Rule};
use lessor_protocol::moment::nanos;
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX};
use std::time::Duration;

/// At most `limit` permits in each window. Windows do not overlap, and two neighbours may give twice the limit across
/// their edge: that is what such a contract says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    windows: Windows,
}

/// Where windows begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// `[k·per, (k+1)·per)` since the Unix epoch.
    Epoch {
        /// Their length.
        per: Duration,
    },
    /// `[t, t+per)`, where t is the first permit taken after the last window ended. No window is open before, nor
    /// between the end of one and the next permit. Under leasing a permit is taken when it is lent.
    FirstUse {
        /// Their length.
        per: Duration,
    },
    /// Windows that follow a calendar.
    Calendar(Calendar),
}

impl Windows {
    /// Returns the name of the anchor in configuration. Calendars have none.
    pub const fn anchor(&self) -> Option<&'static str> {
        match self {
            Windows::Epoch { .. } => Some("epoch"),
            Windows::FirstUse { .. } => Some("first_use"),
            Windows::Calendar(_) => None,
        }
    }

    /// Returns the longest that a window can be.
    pub const fn longest(&self) -> Duration {
        match self {
            Windows::Epoch { per } | Windows::FirstUse { per } => *per,
            Windows::Calendar(calendar) => calendar.longest(),
        }
    }

    /// Returns when the window that holds `at` ends, in nanoseconds since the Unix epoch. `None` if that depends on
    /// when it was opened.
    pub fn end_after(&self, at: Moment) -> Option<Moment> {
        match self {
            Windows::Epoch { per } => {
                let per = nanos(*per).max(1);
                Some(Moment::from_nanos((at.as_nanos() / per + 1).saturating_mul(per)))
            }
            Windows::FirstUse { .. } => None,
            Windows::Calendar(calendar) => Some(calendar.end_after(at)),
        }
    }
}

impl FixedWindow {
    /// Length of the shortest window: a shorter one would leave no room for a lease.
    pub const PER_MIN: Duration = Duration::from_millis(50);

    /// Checks the numbers of windows of length `per` that follow each other from the Unix epoch on.
    ///
    /// # Errors
    /// If `limit` is above 2^53 − 1, or `per` is below 50 ms or above 366 days.
    pub fn try_new(limit: u64, per: Duration) -> Result<Self, RuleError> {
        Self::of(limit, Windows::Epoch { per })
    }

    /// Checks the numbers of windows as `windows` says.
    ///
    /// # Errors
    /// As [`FixedWindow::try_new`].
    pub fn of(limit: u64, windows: Windows) -> Result<Self, RuleError> {
        check_permits("limit", limit)?;
        match windows {
            Windows::Epoch { per } | Windows::FirstUse { per } => {
                check_per(per)?;
                if per < Self::PER_MIN {
                    let problem =
                        format!("is {per:?}, no lease fits in it: use at least {:?}", Self::PER_MIN);
                    return Err(RuleError { field: "per", problem });
                }
            }
            Windows::Calendar(_) => {}
        }
        Ok(FixedWindow { limit, windows })
    }

    /// Permits per window. 0 refuses everything.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Where windows begin and end.
    pub fn windows(&self) -> Windows {
        self.windows
    }

    /// Length of a window. With a calendar it is the usual one, see [`Windows::longest`] for a bound.
    pub fn per(&self) -> Duration {
        match self.windows {
            Windows::Epoch { per } | Windows::FirstUse { per } => per,
            Windows::Calendar(calendar) => calendar.length(),
        }
    }
}

/// The books of a fixed window whose boundaries are known ahead.
#[derive(Clone, Debug)]
pub struct FixedLedger {
    limit: u64,
    windows: Windows,
    /// Length of a window of this rule, as rates are counted, never zero.
    per: Duration,
    now: Moment,
    /// Leases that ended up to this instant cannot be credited: they could be spent in earlier windows only, or are
    /// charged in part only.
    since: Moment,
    /// The end of the window that holds `now`.
    ends: Moment,
    /// Permits lent and not returned that could be spent in the window that holds `now`.
    charged: u64,
    /// Permits of `charged` that are not yet settled.
    outstanding: u64,
    /// Permits of `outstanding` that can be spent in the next window too.
    ahead: u64,
    /// Permits on top of the limit in the window that holds `now`.
    extra: u64,
    /// Permits that were outstanding when these books began, and when the last of their leases ends.
    adopted: (u64, Moment),
}

impl FixedLedger {
    /// Creates an empty window at `now`.
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

    /// Returns the most that may be charged in this window.
    fn allowed(&self) -> u64 {
        self.limit.saturating_add(self.extra).min(PERMITS_MAX)
    }

    /// Returns the permits that the next window has left.
    fn left_ahead(&self) -> u64 {
        self.limit.saturating_sub(self.ahead)
    }

    /// Begins the window that ends at `next`: the one that is charged ahead, or a later one.
    fn cross(&mut self, next: Moment) {
        let (adopted, until) = self.adopted;
        let reaching = if self.ends < until { adopted.min(self.outstanding) } else { 0 };
        self.charged = std::mem::take(&mut self.ahead).max(reaching);
        self.extra = 0;
        self.since = self.ends;
        self.ends = next;
    }
}

/// Returns the end of the window that holds `at`. Windows of first use never end here: [`super::FirstUseLedger`] keeps
/// those.
fn end_after(windows: &Windows, at: Moment) -> Moment {
    windows.end_after(at).unwrap_or(Moment::NEVER)
}

impl Account for FixedLedger {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        if self.ends <= self.now {
            // Leases that end exactly at the boundary are settled right after this, and are not charged to the new
            // window.
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
            // Permits charged ahead stay charged, whenever they are spent.
            Some(end_after(&self.windows, self.ends))
        } else {
            None
        }
    }

    fn sustained(&self, span: Duration) -> u64 {
        Pace { permits: self.limit, over: nanos(self.per) }.within(span)
    }

    /// The permits of the next window are there when it begins.
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
        self.windows.longest()
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// All leases of earlier processes, also those charged ahead, ended by `quarantined`. They were spent in windows up
    /// to the one that holds `quarantined`, so the next one is clean. The window after the crash need not be.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        end_after(&self.windows, quarantined)
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
    fn change(&mut self, rule: &Rule, _clocks: ClockBounds, carry_over: CarryOver) -> bool {
        let Rule::FixedWindow(rule) = rule else { return false };
        if rule.windows() != self.windows {
            return false;
        }
        if carry_over == CarryOver::Proportional {
            let settled = scaled_up(self.charged - self.outstanding, self.limit, rule.limit());
            self.charged = (self.outstanding + settled).min(PERMITS_MAX);
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

    fn most(&self) -> u64 {
        self.allowed()
    }

    fn save(&self) -> Saved {
        let (ends, since) = (self.ends.into(), Some(self.since.into()));
        Saved::Fixed { ends, charged: self.charged, extra: self.extra, since }
    }

    /// The calendar says which window was saved, however long ago. Outstanding permits may reach into each window that
    /// begins before their leases end. A build with other time zones may have ended the window at another instant: what
    /// is charged stays so until the later one.
    fn restore(&mut self, saved: &Saved, since: Since, (out, until): (u64, Moment)) -> bool {
        let &Saved::Fixed { ends, charged, extra, since: began } = saved else { return false };
        if charged > PERMITS_MAX || extra > PERMITS_MAX || out > charged {
            return false;
        }
        let ends = ends.as_calendar();
        let is_over = ends <= self.now;
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
    /// See [`super::Ledger::carry`].
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        for at in [&mut self.now, &mut self.since, &mut self.ends, &mut self.adopted.1] {
            carrier.moment(at);
        }
        for permits in [&mut self.charged, &mut self.extra, &mut self.adopted.0] {
            carrier.number(permits);
        }
    }

    /// See [`super::Ledger::rests_until`].
    pub(super) fn rests_until(&self) -> Moment {
        if self.charged == 0 && self.extra == 0 { Moment::NEVER } else { self.ends }
    }

    /// Returns the instant that no lease may outlive at all.
    pub fn lease_end_ahead(&self) -> Option<Moment> {
        Some(end_after(&self.windows, self.ends))
    }

    /// Returns the permits that a lease until `end` may hold. Its session already holds `own`: permits, and until when.
    pub fn room_ahead(&self, end: Moment, own: (u64, Moment)) -> u64 {
        let (permits, until) = own;
        let mine = if until > self.ends { permits } else { 0 };
        if end > self.ends { self.left_ahead() + mine } else { u64::MAX }
    }

    /// Notes that `permits` already charged may be spent until `end`. Beyond [`Account::lease_end`] they are charged to
    /// the next window too, until [`FixedLedger::release_ahead`] or until that window has begun.
    pub fn charge_ahead(&mut self, permits: u64, end: Moment) {
        self.ahead += if end > self.ends { permits } else { 0 };
    }

    /// Notes that `permits` that could be spent until `end` are spent by now, or never will be.
    pub fn release_ahead(&mut self, permits: u64, end: Moment) {
        self.ahead -= if end > self.ends { permits } else { 0 };
    }

    /// Counts anew what is charged ahead, from `ends` in any order. Leases that are older than the rule may reach
    /// further than it would have lent for.
    pub fn recount_ahead(&mut self, ends: Ends<'_>) {
        self.ahead = ends.filter(|&(end, _)| end > self.ends).map(|(_, permits)| permits).sum();
    }

    /// Whether exactly the leases in `ends` are charged ahead, for assertions.
    pub fn is_ahead_of(&self, ends: Ends<'_>) -> bool {
        self.ahead == ends.filter(|&(end, _)| end > self.ends).map(|(_, permits)| permits).sum::<u64>()
    }
}

#[cfg(test)]
mod tests;
