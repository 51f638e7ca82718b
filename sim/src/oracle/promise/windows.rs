//! Fixed windows as the oracle sees them. The window of an instant follows from the clock or the date that it shows, or
//! from the grants that opened it. No boundary is computed.

use super::Window;
use super::change::Slack;
use crate::civil::{Civil, Label};
use crate::oracle::Instant;
use lessor_ledger::CarryOver;
use lessor_ledger::rule::{self, FixedWindow};
use lessor_protocol::moment::nanos;

/// The windows of one rule, on the allocator's clock.
#[derive(Clone, Debug)]
pub(in crate::oracle) struct Windows {
    limit: u64,
    used: u64,
    slack: Slack,
    windows: rule::Windows,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Windows that follow the epoch.
    Epoch { per: u64, window: u64 },
    /// Days, weeks or months.
    Calendar { civil: Box<Civil>, label: Option<Label> },
    /// Before `sure` the open window is unknown: leases from before the rule may have opened one. If that is never, the
    /// next grant opens one for sure.
    FirstUse { ends: u64, sure: u64, recent: Window },
}

/// The end of a window that has not begun.
const NEVER: u64 = u64::MAX;

impl Windows {
    pub(super) fn new(rule: &FixedWindow, less: u64) -> Self {
        let kind = match rule.windows() {
            rule::Windows::Epoch { per } => Kind::Epoch { per: nanos(per), window: 0 },
            rule::Windows::FirstUse { per } => {
                Kind::FirstUse { ends: 0, sure: 0, recent: Window::new(nanos(per)) }
            }
            rule::Windows::Calendar(calendar) => {
                Kind::Calendar { civil: Box::new(Civil::new(&calendar)), label: None }
            }
        };
        let (limit, windows) = (rule.limit() - less, rule.windows());
        Windows { limit, used: 0, slack: Slack::default(), windows, kind }
    }

    /// Returns the permits that may be spent at `at`. Where no window is open, a grant would open one, so a whole limit
    /// may.
    pub(super) fn room(&mut self, at: u64) -> u64 {
        let is_another = match &mut self.kind {
            Kind::Epoch { per, window } => std::mem::replace(window, at / *per) != at / *per,
            Kind::Calendar { civil, label } => {
                let shown = Some(civil.window(at));
                std::mem::replace(label, shown) != shown
            }
            Kind::FirstUse { ends, .. } => *ends <= at,
        };
        if is_another {
            self.used = 0;
        }
        if let Kind::FirstUse { sure, recent, .. } = &mut self.kind
            && at < *sure
        {
            // No period meets more than two windows.
            recent.advance(at);
            return self.slack.allows(at, 2 * self.limit).saturating_sub(recent.used);
        }
        self.slack.allows(at, self.limit).saturating_sub(self.used)
    }

    /// Returns when a window that is open at `at`, or may be opened then, is over.
    fn edge_after(&self, at: u64) -> u64 {
        match &self.kind {
            Kind::Epoch { per, .. } => (at / per + 1) * per,
            Kind::Calendar { civil, .. } => civil.edge_after(at),
            Kind::FirstUse { recent, .. } => at + recent.per,
        }
    }

    /// Begins the windows when `out` permits are lent until `until`.
    pub(super) fn amid(&mut self, now: Instant, out: u64, until: Instant) {
        self.room(now.allocator.as_nanos());
        let until = self.edge_after(until.allocator.as_nanos());
        match &mut self.kind {
            Kind::Epoch { .. } | Kind::Calendar { .. } => self.slack.floor = (until, out),
            Kind::FirstUse { sure, .. } => {
                *sure = if out > 0 { until } else { 0 };
                self.slack.extra.push((until, out));
            }
        }
    }

    /// Goes on by `rule` if its period matches; `out` permits are lent until `until`. Returns whether it does.
    pub(super) fn changes(
        &mut self,
        now: Instant,
        rule: &FixedWindow,
        carry: CarryOver,
        out: u64,
        until: Instant,
    ) -> bool {
        if rule.windows() != self.windows {
            return false;
        }
        let until = self.edge_after(until.allocator.as_nanos());
        let at = now.allocator.as_nanos();
        if let Kind::FirstUse { sure, recent, .. } = &self.kind
            && at < *sure
        {
            self.slack.extra.push((until.max(at + recent.per), recent.used + out));
        }
        self.slack.carries(until, self.used, out, (self.limit, rule.limit()), carry);
        self.limit = rule.limit();
        true
    }

    /// Allows `permits` more in the window of `now`, once; in the next one if none is open.
    pub(super) fn allows(&mut self, now: Instant, permits: u64) {
        let at = now.allocator.as_nanos();
        let until = match self.kind {
            Kind::Epoch { .. } | Kind::Calendar { .. } => self.edge_after(at),
            Kind::FirstUse { ends, .. } => {
                if at < ends {
                    ends
                } else {
                    NEVER
                }
            }
        };
        self.slack.extra.push((until, permits));
        self.slack.floor.1 += permits;
    }

    /// Records that it is unknown which window is open, until the next grant opens one.
    pub(super) fn unknown(&mut self) {
        if let Kind::FirstUse { ends, sure, recent } = &mut self.kind {
            (*ends, *sure, *recent) = (0, NEVER, Window::new(recent.per));
        }
    }

    /// Records that `permits` were lent at `at`.
    pub(super) fn lent(&mut self, at: u64, permits: u64) {
        self.room(at);
        let Kind::FirstUse { ends, sure, recent } = &mut self.kind else { return };
        let per = recent.per;
        if permits > 0 && *sure == NEVER {
            (self.used, *ends, *sure) = (0, 0, 0);
        }
        if permits > 0 && at < *sure {
            // The window that this grant may open is over once nothing was lent for a period.
            *sure = (*sure).max(at + per);
        }
        if permits > 0 && *ends <= at {
            *ends = at + per;
            let begins = self.slack.extra.iter_mut().filter(|(until, _)| *until == NEVER);
            begins.for_each(|(until, _)| *until = *ends);
        }
    }

    /// Counts `permits` that are spent at `at`. Returns false if no window is open.
    pub(super) fn spend(&mut self, at: u64, permits: u64) -> bool {
        self.used += permits;
        if let Kind::FirstUse { recent, .. } = &mut self.kind {
            recent.add(at, permits);
        }
        !matches!(self.kind, Kind::FirstUse { ends, sure, .. } if ends <= at && sure <= at)
    }
}
