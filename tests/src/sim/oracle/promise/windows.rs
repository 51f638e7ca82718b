//! Fixed windows as the oracle sees them: which one an instant lies in, told from the clock or the date that it shows, or
//! from the grants that opened it. It looks for no boundary.

use super::change::{Slack, edge_after};
use crate::civil::{Civil, Label};
use crate::sim::oracle::Instant;
use lessor_protocol::Carry;
use lessor_protocol::moment::nanos;
use lessor_protocol::rule::{self, FixedWindow};
use std::time::Duration;

/// Windows of one rule, on the allocator's clock.
#[derive(Clone, Debug)]
pub(in crate::sim::oracle) struct Windows {
    limit: u64,
    used: u64,
    slack: Slack,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Epoch { per: u64, window: u64 },
    Calendar { civil: Box<Civil>, label: Option<Label> },
    FirstUse { per: u64, ends: u64 },
}

impl Windows {
    pub(super) fn new(rule: &FixedWindow, less: u64) -> Self {
        let kind = match rule.windows() {
            rule::Windows::Epoch { per } => Kind::Epoch { per: nanos(per), window: 0 },
            rule::Windows::FirstUse { per } => Kind::FirstUse { per: nanos(per), ends: 0 },
            rule::Windows::Calendar(calendar) => {
                Kind::Calendar { civil: Box::new(Civil::new(&calendar)), label: None }
            }
        };
        Windows { limit: rule.limit() - less, used: 0, slack: Slack::default(), kind }
    }

    /// Permits that may be spent at `at`. Where no window is open, as many as one holds: a grant would open it.
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
        self.slack.allows(at, self.limit).saturating_sub(self.used)
    }

    /// They come to be when `out` permits are lent until `until`.
    pub(super) fn amid(&mut self, now: Instant, out: u64, until: Instant) {
        self.room(now.allocator.as_nanos());
        if let Kind::Epoch { per, .. } = self.kind {
            self.slack.floor = (edge_after(until, per), out);
        }
    }

    /// Goes on by `rule` if it is of the same period; `out` permits are lent until `until`.
    pub(super) fn changes(&mut self, rule: &FixedWindow, carry: Carry, out: u64, until: Instant) -> bool {
        let Kind::Epoch { per, .. } = self.kind else { return false };
        if (rule.windows() != rule::Windows::Epoch { per: Duration::from_nanos(per) }) {
            return false;
        }
        self.slack.carries(edge_after(until, per), self.used, out, (self.limit, rule.limit()), carry);
        self.limit = rule.limit();
        true
    }

    /// `permits` more in the window of `now`, once.
    pub(super) fn allows(&mut self, now: Instant, permits: u64) {
        if let Kind::Epoch { per, .. } = self.kind {
            self.slack.extra.push((edge_after(now, per), permits));
            self.slack.floor.1 += permits;
        }
    }

    /// `permits` were lent at `at`.
    pub(super) fn lent(&mut self, at: u64, permits: u64) {
        self.room(at);
        if let Kind::FirstUse { per, ends } = &mut self.kind
            && permits > 0
            && *ends <= at
        {
            *ends = at + *per;
        }
    }

    /// Counts `permits` that are spent at `at`, where there is room; false if no window is open.
    pub(super) fn spend(&mut self, at: u64, permits: u64) -> bool {
        self.used += permits;
        !matches!(self.kind, Kind::FirstUse { ends, .. } if ends <= at)
    }
}
