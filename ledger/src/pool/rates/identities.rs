//! The identities that share a flow, each with all its sessions: the orders and sums that say what is due to each, without a look at
//! the others.

use super::demands::{Demand, Demands};
use super::sharers::{LastTurn, Sums};
use super::tally::Tally;
use crate::rule::SHARES;
use crate::share::Owner;
use lessor_protocol::Moment;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// An identity that shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) owner: Owner,
    /// Its sessions.
    pub(super) sums: Sums,
    /// The largest call of any of them.
    pub(super) largest: u64,
    /// Whether any of them waits.
    pub(super) waits: bool,
    /// When the last of them that had a part hands it over, or did, and how long it had it.
    pub(super) last_turn: LastTurn,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Identities {
    weights: u128,
    sums: Sums,
    demands: Demands<Owner>,
    calls: Tally<LargestCall>,
    counts: Tally<u64>,
    hand_overs: Tally<Moment>,
    waiting: BTreeSet<Owner>,
}

/// The largest call of an identity of so much `weight`, in the order of what that takes of a burst which is shared by weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct LargestCall {
    pub(super) largest: u64,
    pub(super) weight: u64,
}

impl Ord for LargestCall {
    fn cmp(&self, other: &Self) -> Ordering {
        let ratio = |largest: u64, weight: u64| u128::from(largest) * u128::from(weight);
        ratio(self.largest, other.weight).cmp(&ratio(other.largest, self.weight))
    }
}

impl PartialOrd for LargestCall {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for LargestCall {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for LargestCall {}

impl Identity {
    /// The weights of its sessions.
    pub(super) fn weights(&self) -> u64 {
        u64::try_from(self.sums.weight).unwrap_or(u64::MAX)
    }

    /// More sessions give it no more weight.
    pub(super) fn weight(&self) -> u64 {
        (self.weights() / self.sums.count.max(1)).max(1)
    }

    pub(super) fn call(&self) -> LargestCall {
        LargestCall { largest: self.largest, weight: self.weight() }
    }

    fn demand(&self) -> Demand<Owner> {
        let share = u64::try_from(self.sums.demand).unwrap_or(u64::MAX).min(SHARES);
        Demand { id: self.owner, share, weight: self.weight() }
    }
}

impl Identities {
    /// One of them is `after` where it was `before`.
    pub(super) fn change(&mut self, before: Option<Identity>, after: Option<Identity>) {
        if before == after {
            return;
        }
        before.iter().for_each(|before| self.remove(before));
        after.iter().for_each(|after| self.insert(after));
    }

    fn insert(&mut self, identity: &Identity) {
        self.weights += u128::from(identity.weight());
        self.sums = self.sums.plus(identity.sums);
        self.demands.insert(identity.demand());
        self.calls.add(identity.call());
        self.counts.add(identity.sums.count);
        self.hand_overs.add(identity.last_turn.0);
        if identity.waits {
            self.waiting.insert(identity.owner);
        }
    }

    fn remove(&mut self, identity: &Identity) {
        self.weights -= u128::from(identity.weight());
        self.sums = self.sums.less(identity.sums);
        self.demands.remove(&identity.demand());
        self.calls.remove(identity.call());
        self.counts.remove(identity.sums.count);
        self.hand_overs.remove(identity.last_turn.0);
        self.waiting.remove(&identity.owner);
    }

    /// The sums of `other` are the same, or there is a bug here.
    pub(super) fn audit(&self, other: &Identities) {
        debug_assert_eq!((self.weights, self.sums), (other.weights, other.sums));
        debug_assert_eq!(self.demands.sum(), other.demands.sum());
        debug_assert_eq!((&self.calls, &self.counts), (&other.calls, &other.counts));
        debug_assert_eq!((&self.hand_overs, &self.waiting), (&other.hand_overs, &other.waiting));
    }
}

/// All identities, of which one asks: by a session that is none of those that are kept.
#[derive(Debug)]
pub(super) struct Several<'a> {
    all: Cow<'a, Identities>,
    /// The one that asks, without the session that does, if it has others.
    aside: Option<Identity>,
    /// The same with that session.
    pub(super) own: Identity,
}

impl<'a> Several<'a> {
    pub(super) fn new(all: Cow<'a, Identities>, aside: Option<Identity>, own: Identity) -> Self {
        Several { all, aside, own }
    }

    /// What all sessions add up to, the one that asks included.
    pub(super) fn sums(&self) -> Sums {
        let aside = self.aside.map_or(Sums::default(), |aside| aside.sums);
        self.all.sums.less(aside).plus(self.own.sums)
    }

    /// What their weights add up to.
    pub(super) fn weights(&self) -> u128 {
        let aside = self.aside.map_or(0, |aside| u128::from(aside.weight()));
        self.all.weights - aside + u128::from(self.own.weight())
    }

    /// The largest call, for the weight of its identity.
    pub(super) fn largest_call(&self) -> LargestCall {
        let others = self.all.calls.last_without(self.aside.map(|aside| aside.call()));
        others.map_or(self.own.call(), |others| others.max(self.own.call()))
    }

    /// What of the `share` of all is due to the one that asks.
    pub(super) fn due(&self, share: u64) -> u64 {
        let aside = self.aside.map(|aside| aside.demand());
        self.all.demands.share_beside(aside.as_ref(), &self.own.demand(), share)
    }

    /// How many sessions the one has that has fewest.
    pub(super) fn fewest(&self) -> u64 {
        let others = self.all.counts.first_without(self.aside.map(|aside| aside.sums.count));
        others.map_or(self.own.sums.count, |others| others.min(self.own.sums.count))
    }

    /// When the last one of them that had a part hands it over, or did.
    pub(super) fn last_hand_over(&self) -> Moment {
        self.all.hand_overs.last().map_or(self.own.last_turn.0, |last| last.max(self.own.last_turn.0))
    }

    /// The others whose sessions wait.
    pub(super) fn others_waiting(&self) -> impl Iterator<Item = Owner> {
        self.all.waiting.iter().copied().filter(|owner| *owner != self.own.owner)
    }
}
