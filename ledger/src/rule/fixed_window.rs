//! `fixed_window`: At most N in each of the windows that follow each other without a gap, from an epoch on or by a calendar. A permit is
//! charged to each window in which it can be spent: the one in which it is lent and, where its lease reaches beyond that,
//! ahead of time to the next one. Two neighbouring windows may give 2N across their edge: that is what such a contract
//! says.
//!
//! Leases that were out when the rule came to be may reach further. They are charged to each window that they reach.

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
    /// As a calendar on the wall shows them.
    Calendar(Calendar),
}

impl Windows {
    /// The name of their anchor in configuration; calendars have none.
    pub const fn anchor(&self) -> Option<&'static str> {
        match self {
            Windows::Epoch { .. } => Some("epoch"),
            Windows::FirstUse { .. } => Some("first_use"),
            Windows::Calendar(_) => None,
        }
    }

    /// When the window that holds `at` ends, in nanoseconds since the Unix epoch; `None` if that depends on when it
    /// was opened.
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
    /// Shorter windows would leave no room for a lease, which may not outlive its window.
    pub const PER_MIN: Duration = Duration::from_millis(50);

    /// Windows of length `per` that follow each other from the Unix epoch on.
    ///
    /// # Errors
    /// If `limit` is above 2^53 − 1, or `per` is below 50 ms or above 366 days.
    pub fn try_new(limit: u64, per: Duration) -> Result<Self, RuleError> {
        Self::of(limit, Windows::Epoch { per })
    }

    /// Windows as `windows` says.
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

    /// Length of a window; of a calendar's, the longest that one can be.
    pub fn per(&self) -> Duration {
        match self.windows {
            Windows::Epoch { per } | Windows::FirstUse { per } => per,
            Windows::Calendar(calendar) => calendar.longest(),
        }
    }
}

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
    fn change(&mut self, rule: &Rule, _terms: ClockBounds, carry_over: CarryOver) -> bool {
        let Rule::FixedWindow(rule) = rule else { return false };
        if rule.windows() != self.windows {
            return false;
        }
        if carry_over == CarryOver::Proportional {
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
mod tests;
