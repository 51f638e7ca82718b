//! Safe shares that nodes may go on with after a limit has become another one. Pools that live through a change know those that they
//! told. Pools that are made anew do not: they keep back the most that was said, until it is over.

use super::Limit;
use crate::pool::{EarlierShares, Pool, SavedShares};
use lessor_protocol::Moment;
use std::sync::Arc;

/// What nodes of one limit may go on with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Earlier {
    /// Told by an earlier life, or before the limit began anew: no pool knows it.
    unknown: Option<EarlierShares>,
    /// Told by configurations since then, but for the one of now.
    told: Option<EarlierShares>,
}

impl Earlier {
    /// A pool that was made since, or goes on by other rules, keeps it back.
    pub(super) fn keep_back(self, pool: &mut Pool) {
        self.unknown.into_iter().for_each(|shares| pool.keep_back(shares));
    }

    /// Whether pools that are made at `now` have nothing to keep back.
    pub(super) fn is_over(self, now: Moment) -> bool {
        self.unknown.is_none_or(|shares| !shares.are_out(now))
    }
}

/// Both.
fn both(one: Option<EarlierShares>, other: Option<EarlierShares>) -> Option<EarlierShares> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.and(other)),
        (one, other) => one.or(other),
    }
}

impl Limit {
    /// What its pools may have told nodes of until `now`.
    fn told_now(&self, now: Moment) -> Option<EarlierShares> {
        let plans = std::iter::once(&self.plan).chain(self.overrides.values());
        let told = self.earlier.told.filter(|shares| shares.are_out(now));
        plans
            .map(Arc::as_ref)
            .filter_map(|plan| EarlierShares::of(plan, now))
            .fold(told, |told, shares| both(told, Some(shares)))
    }

    /// All that nodes may go on with at `now`: others that take its place, and know nothing of it, keep it back.
    pub(crate) fn shares_out(&self, now: Moment) -> Option<EarlierShares> {
        both(self.told_now(now), self.earlier.unknown.filter(|shares| shares.are_out(now)))
    }

    /// The same as it is written down.
    pub(super) fn saved_shares(&self, now: Moment) -> Option<SavedShares> {
        self.shares_out(now).map(EarlierShares::save)
    }

    /// It becomes another one at `now`, whose pools go on.
    pub(super) fn note_shares(&mut self, now: Moment) {
        self.earlier.told = self.told_now(now);
    }

    /// The same where its pools begin anew.
    pub(super) fn lose_shares(&mut self, now: Moment) {
        self.earlier = Earlier { unknown: self.shares_out(now), told: None };
    }

    /// Pools that it makes from now on keep back `shares`, of which they know nothing.
    pub(super) fn expect_shares(&mut self, shares: Option<EarlierShares>) {
        self.earlier.unknown = both(self.earlier.unknown, shares);
    }

    /// Nodes may go on with `shares` of which its pools know nothing.
    pub(crate) fn learn_shares(&mut self, shares: Option<EarlierShares>) {
        self.expect_shares(shares);
        let pools = self.pools.all(&mut self.tally);
        let earlier = self.earlier;
        pools.for_each(|shelf| shelf.with(|kept| earlier.keep_back(&mut kept.pool)));
    }
}
