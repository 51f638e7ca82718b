//! Safe shares that no pool knows. Nodes were told of them under other rules of the limit, or by an earlier life of the
//! allocator, and may still use them. A new pool keeps back what they allow until they are over.

use super::safe_shares::{Taken, counts_for, counts_longer, safe_span};
use super::{Plan, Pool};
use crate::share::Owner;
use lessor_protocol::{ClockBounds, Moment, SafeShare};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Upper bound of the safe shares that nodes may still use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierShares {
    permits: u64,
    holders: u64,
    span: Duration,
    over: Moment,
}

/// An [`EarlierShares`] as it is written down, without its end, which is not known then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedShares {
    permits: u64,
    holders: u64,
    span: Duration,
}

impl EarlierShares {
    /// Returns the safe shares that pools of `plan` may have told nodes of until `now`. `None` if the plan has none, or
    /// if the allocator above keeps them back.
    pub fn of(plan: &Plan, now: Moment) -> Option<Self> {
        let safe = plan.sharing.safe.filter(|_| !plan.is_borrowed)?;
        let span = safe_span(&plan.rules)?;
        let over = over(now, safe.lasts, span, plan.clocks);
        Some(EarlierShares { permits: plan.sharing.reserve, holders: safe.nodes, span, over })
    }

    /// Combines both by their maxima. They are never out together in full: a new share has to fit into permits that no
    /// session has.
    pub fn and(self, other: Self) -> Self {
        EarlierShares {
            permits: self.permits.max(other.permits),
            holders: self.holders.max(other.holders),
            span: self.span.min(other.span),
            over: self.over.max(other.over),
        }
    }

    /// Whether any node may still use these shares.
    pub fn are_out(&self, now: Moment) -> bool {
        now < self.over
    }

    /// Returns when no node may use these shares any more.
    pub fn over(self) -> Moment {
        self.over
    }

    /// Returns the shares as they are written down.
    pub fn save(self) -> SavedShares {
        let EarlierShares { permits, holders, span, over: _ } = self;
        SavedShares { permits, holders, span }
    }
}

impl SavedShares {
    /// Returns the shares of an earlier life of the allocator that ended at `lost` at the latest.
    pub fn read(self, lost: Moment, clocks: ClockBounds) -> EarlierShares {
        let SavedShares { permits, holders, span } = self;
        let over = over(lost, SafeShare::LASTS_MAX, span, clocks);
        EarlierShares { permits, holders, span, over }
    }
}

/// Returns when shares that last for `lasts`, and were told no later than `until`, have left windows of `span`.
fn over(until: Moment, lasts: Duration, span: Duration, clocks: ClockBounds) -> Moment {
    clocks.grantor_end(until, lasts) + clocks.stretched(span)
}

impl Pool {
    /// Keeps back permits for `shares`, which nodes may still use and of which these books know nothing. Nothing
    /// changes if the reserve covers them anyway.
    pub fn keep_back(&mut self, shares: EarlierShares) {
        let EarlierShares { permits, holders, span, over } = shares;
        let windows = self.safe_span();
        let longer = self.plan.clocks.stretched(counts_for(&self.plan.rules).saturating_sub(span));
        let taken = Taken { permits, holders, span, free_from: over + longer, owner: Owner::NONE };
        let is_kept = windows.is_some_and(|windows| taken.within(windows) <= self.plan.sharing.reserve);
        if self.now < taken.free_from && !is_kept && self.borrower.is_none() {
            self.safe_shares.hold(taken, windows);
        }
    }

    /// Keeps back permits for the safe shares of `other`, which this pool replaces and whose shares nodes may still use.
    pub fn keep_back_shares_of(&mut self, other: &Pool) {
        if other.safe_shares.are_free() {
            return;
        }
        let (longer, windows) = (counts_longer(&self.plan, &other.plan), self.safe_span());
        self.safe_shares.hold_all(&other.safe_shares, longer, windows);
    }
}
