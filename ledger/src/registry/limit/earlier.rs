//! Safe shares that nodes may still spend after a limit was changed. Pools that live through a change know the shares
//! that they told of. Pools that are made anew do not, so they keep back the most that nodes may have been told, until
//! it is over.

use super::Limit;
use crate::pool::{EarlierShares, Pool, SavedShares};
use lessor_protocol::Moment;
use std::sync::Arc;

/// Safe shares of one limit that nodes may still spend.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Earlier {
    /// Told by an earlier run, or before the limit began anew. No pool knows them.
    unknown: Option<EarlierShares>,
    /// Told since then by configurations before the current one.
    told: Option<EarlierShares>,
}

impl Earlier {
    /// Lets a pool that was made since, or changed to other rules, keep back the unknown shares.
    pub(super) fn keep_back(self, pool: &mut Pool) {
        self.unknown.into_iter().for_each(|shares| pool.keep_back(shares));
    }

    /// Whether pools that are made at `now` have nothing to keep back.
    pub(super) fn is_over(self, now: Moment) -> bool {
        self.unknown.is_none_or(|shares| !shares.are_out(now))
    }
}

/// Combines both, as far as they are there.
fn both(one: Option<EarlierShares>, other: Option<EarlierShares>) -> Option<EarlierShares> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.and(other)),
        (one, other) => one.or(other),
    }
}

impl Limit {
    /// Returns the shares that its pools may have told nodes of until `now`.
    fn told_now(&self, now: Moment) -> Option<EarlierShares> {
        let told = self.earlier.told.filter(|shares| shares.are_out(now));
        self.plans
            .all()
            .map(Arc::as_ref)
            .filter_map(|plan| EarlierShares::of(plan, now))
            .fold(told, |told, shares| both(told, Some(shares)))
    }

    /// Returns all shares that nodes may still spend at `now`. A limit that takes its place and does not know them
    /// keeps them back.
    pub(crate) fn shares_out(&self, now: Moment) -> Option<EarlierShares> {
        both(self.told_now(now), self.earlier.unknown.filter(|shares| shares.are_out(now)))
    }

    /// Returns all shares that nodes may still spend at `now`, as they are written down.
    pub(super) fn saved_shares(&self, now: Moment) -> Option<SavedShares> {
        self.shares_out(now).map(EarlierShares::save)
    }

    /// Notes the shares told so far, before a change at `now` that its pools live through.
    pub(super) fn note_shares(&mut self, now: Moment) {
        self.earlier.told = self.told_now(now);
    }

    /// Notes the shares told so far, before its pools are made anew at `now`.
    pub(super) fn lose_shares(&mut self, now: Moment) {
        self.earlier = Earlier { unknown: self.shares_out(now), told: None };
    }

    /// Lets pools that are made from now on keep back `shares`, which they do not know.
    pub(super) fn expect_shares(&mut self, shares: Option<EarlierShares>) {
        self.earlier.unknown = both(self.earlier.unknown, shares);
    }

    /// Lets all pools keep back `shares`, which they do not know: nodes may still spend on them.
    pub(crate) fn learn_shares(&mut self, shares: Option<EarlierShares>) {
        self.expect_shares(shares);
        let pools = self.pools.all(&mut self.tally);
        let earlier = self.earlier;
        pools.for_each(|entry| entry.with(|kept| earlier.keep_back(&mut kept.pool)));
    }
}
