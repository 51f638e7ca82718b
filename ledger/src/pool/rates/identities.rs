//! The identities that share a flow, each with sums over its sessions. Orders and sums over all identities say what is
//! due to one of them without a look at the others.

use super::demands::{Demand, Demands};
use super::sharers::{FlowSums, LastTurn};
use super::tally::Tally;
use crate::rule::SHARES;
use crate::share::Owner;
use lessor_protocol::Moment;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// An identity that shares a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) owner: Owner,
    /// Sums over its sessions.
    pub(super) sums: FlowSums,
    /// The largest call of any of its sessions, in permits.
    pub(super) largest: u64,
    /// Whether any of its sessions waits.
    pub(super) waits: bool,
    /// The last turn of any of its sessions: when the part is or was handed over, and how long the session had it.
    pub(super) last_turn: LastTurn,
}

/// All identities that share a flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Identities {
    weights: u128,
    sums: FlowSums,
    demands: Demands<Owner>,
    calls: Tally<LargestCall>,
    counts: Tally<u64>,
    hand_overs: Tally<Moment>,
    waiting: BTreeSet<Owner>,
}

/// The largest call of an identity, ordered by call per weight: by the burst it needs where a burst is shared by
/// weight.
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
    /// Returns the sum of the weights of its sessions.
    pub(super) fn weights(&self) -> u64 {
        u64::try_from(self.sums.weight).unwrap_or(u64::MAX)
    }

    /// Returns the average weight of its sessions: more sessions give an identity no more weight.
    pub(super) fn weight(&self) -> u64 {
        (self.weights() / self.sums.count.max(1)).max(1)
    }

    pub(super) fn call(&self) -> LargestCall {
        LargestCall { largest: self.largest, weight: self.weight() }
    }

    fn demand(&self) -> Demand<Owner> {
        let share = u64::try_from(self.sums.demand).unwrap_or(u64::MAX).min(SHARES);
        Demand::for_rate(self.owner, share, self.weight())
    }
}

impl Identities {
    /// Replaces the identity `before` by `after`.
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

    /// Asserts in debug builds that the orders and sums of `other` are equal.
    pub(super) fn audit(&self, other: &Identities) {
        debug_assert_eq!((self.weights, self.sums), (other.weights, other.sums));
        debug_assert_eq!(self.demands.sum(), other.demands.sum());
        debug_assert_eq!((&self.calls, &self.counts), (&other.calls, &other.counts));
        debug_assert_eq!((&self.hand_overs, &self.waiting), (&other.hand_overs, &other.waiting));
    }
}

/// All identities as a session that asks sees them. That session is not counted in `all`.
#[derive(Debug)]
pub(super) struct Several<'a> {
    all: Cow<'a, Identities>,
    /// The identity that asks, without the asking session, if it has other sessions.
    aside: Option<Identity>,
    /// The identity that asks, with the asking session.
    pub(super) own: Identity,
}

impl<'a> Several<'a> {
    pub(super) fn new(all: Cow<'a, Identities>, aside: Option<Identity>, own: Identity) -> Self {
        Several { all, aside, own }
    }

    /// Returns the sums over all sessions, the asking one included.
    pub(super) fn sums(&self) -> FlowSums {
        let aside = self.aside.map_or(FlowSums::default(), |aside| aside.sums);
        self.all.sums.less(aside).plus(self.own.sums)
    }

    /// Returns the sum of the weights of all identities.
    pub(super) fn weights(&self) -> u128 {
        let aside = self.aside.map_or(0, |aside| u128::from(aside.weight()));
        self.all.weights - aside + u128::from(self.own.weight())
    }

    /// Returns the call that is largest for the weight of its identity.
    pub(super) fn largest_call(&self) -> LargestCall {
        let others = self.all.calls.last_without(self.aside.map(|aside| aside.call()));
        others.map_or(self.own.call(), |others| others.max(self.own.call()))
    }

    /// Returns the part of `share` that is due to the identity that asks.
    pub(super) fn due(&self, share: u64) -> u64 {
        let aside = self.aside.map(|aside| aside.demand());
        self.all.demands.share_beside(aside.as_ref(), &self.own.demand(), share)
    }

    /// Returns the number of sessions of the identity that has fewest.
    pub(super) fn fewest(&self) -> u64 {
        let others = self.all.counts.first_without(self.aside.map(|aside| aside.sums.count));
        others.map_or(self.own.sums.count, |others| others.min(self.own.sums.count))
    }

    /// Returns when the last session that had a part hands it over, or did.
    pub(super) fn last_hand_over(&self) -> Moment {
        self.all.hand_overs.last().map_or(self.own.last_turn.0, |last| last.max(self.own.last_turn.0))
    }

    /// Returns the other identities with waiting sessions.
    pub(super) fn others_waiting(&self) -> impl Iterator<Item = Owner> {
        self.all.waiting.iter().copied().filter(|owner| *owner != self.own.owner)
    }
}
