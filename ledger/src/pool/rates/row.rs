//! The sessions that have or want a part of a steady flow, as a session that asks sees them. Each identity has a part
//! of the flow for its own sessions, if its part covers its largest call, for every identity. Otherwise identities take
//! turns, and so do the sessions of each. Within an identity, the session that came first is the first. An ask looks at
//! no session, and where identities take turns, at each identity that waits.

use super::demands::{Demand, Demands};
use super::identities::{Identity, Several};
use super::sharers::{FlowSums, Members, Sharers};
use super::waiting::Waiters;
use crate::rule::{Part, SHARES};
use crate::share::Owner;
use lessor_protocol::Moment;
use lessor_protocol::moment::{nanos, span_of};
use std::time::Duration;

/// Time after which a turn that no session takes goes to another identity. Sessions that are there ask at least once
/// meanwhile, unless they are far away.
pub(super) const FORFEIT: Duration = Duration::from_millis(60);

/// A session that asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks {
    pub(super) owner: Owner,
    pub(super) weight: u64,
    /// The share of the rate that it demands.
    pub(super) demand: u64,
    /// Its largest call, in permits.
    pub(super) largest: u64,
    /// When it began to wait for its turn, if it waits.
    pub(super) waits_since: Option<Moment>,
}

impl Asks {
    fn sums(&self) -> FlowSums {
        FlowSums {
            count: 1,
            weight: self.weight.into(),
            demand: self.demand.into(),
            largest: self.largest.into(),
            ..FlowSums::default()
        }
    }
}

/// A session that asks, and the sessions that it shares with.
#[derive(Debug)]
pub(super) struct Row<'a> {
    now: Moment,
    me: Asks,
    /// The other sessions; `None` while the session is alone.
    sharers: Option<&'a Sharers>,
    /// Sums over all sessions that share `whole`, the asking one included.
    sums: FlowSums,
    /// All identities, if several take turns.
    owners: Option<Several<'a>>,
    /// The part that the sessions share: the flow, or the part due to their identity.
    pub(super) whole: Part,
    /// The part of `whole` that the other sessions leave; `None` if `whole` is the flow.
    pub(super) room: Option<Part>,
}

/// Returns the part of `all` that is due to `weight` of `weights`.
fn part_of(all: u64, weight: u64, weights: u128) -> u64 {
    (u128::from(all) * u128::from(weight) / weights.max(1)) as u64
}

impl<'a> Row<'a> {
    /// Makes the row of the session that asks beside `sharers`, on a flow with room for `burst` permits in all buckets.
    pub(super) fn new(now: Moment, burst: u64, me: Asks, sharers: Option<&'a Sharers>) -> Self {
        let whole = Part { cap: burst, share: SHARES };
        let others = sharers.and_then(|sharers| sharers.identity(me.owner));
        let taken = others.map_or(FlowSums::default(), |others| others.sums);
        let sums = taken.plus(me.sums());
        let row = Row { now, me, sharers, sums, owners: None, whole, room: None };
        let Some(sharers) = sharers.filter(|sharers| sharers.has_other_owners(me.owner)) else { return row };
        let largest = others.map_or(me.largest, |others| others.largest.max(me.largest));
        let own = Identity {
            owner: me.owner,
            sums,
            largest,
            waits: me.waits_since.is_some(),
            last_turn: sharers.last_turn(me.owner),
        };
        let owners = Several::new(sharers.identities(), others, own);
        match row.own_part(&owners) {
            Some(part) => {
                // The sessions of its identity share a part of the flow, apart from all others.
                let Part { cap, share } = taken.charged();
                let room =
                    Part { cap: part.cap.saturating_sub(cap), share: part.share.saturating_sub(share) };
                Row { whole: part, room: Some(room), ..row }
            }
            None => Row { sums: owners.sums(), owners: Some(owners), ..row },
        }
    }

    /// Returns the part due to the identity that asks, if each identity's part covers its largest call.
    fn own_part(&self, owners: &Several<'_>) -> Option<Part> {
        let (call, weights) = (owners.largest_call(), owners.weights());
        let cap = |weight| part_of(self.whole.cap, weight, weights);
        let is_enough = call.largest <= cap(call.weight);
        is_enough.then(|| Part { cap: cap(owners.own.weight()), share: owners.due(self.whole.share) })
    }

    /// Whether several identities take turns.
    pub(super) fn has_several_owners(&self) -> bool {
        self.owners.is_some()
    }

    /// Returns the number of sessions in the row.
    pub(super) fn count(&self) -> u64 {
        self.sums.count
    }

    /// Returns the sum of their largest calls, in permits.
    pub(super) fn needs(&self) -> u64 {
        u64::try_from(self.sums.largest).unwrap_or(u64::MAX)
    }

    /// Returns the other sessions of the identity that asks.
    fn own(&self) -> Option<&'a Members> {
        self.sharers?.members(self.me.owner)
    }

    /// Returns the waiting sessions with a turn before the asking session's.
    pub(super) fn ahead(&self) -> Waiters {
        let since = self.me.waits_since.unwrap_or(Moment::NEVER);
        let own = self.own().map_or(Waiters::default(), |own| own.waiting().before(since));
        let (Some(owners), Some(sharers)) = (&self.owners, self.sharers) else { return own };
        // The identity whose turn it is has left it unused so long that any other may have it: its sessions may be made
        // up.
        if self.now > owners.last_hand_over() + FORFEIT {
            return own;
        }
        let weights = owners.weights();
        let mine = (turn_of(&owners.own, own.count, weights), since);
        let others = owners.others_waiting();
        let others = others.filter_map(|owner| Some((sharers.identity(owner)?, sharers.members(owner)?)));
        let ahead = others.map(|(identity, members)| {
            members.waiting().ahead_of(mine, |before| turn_of(&identity, before, weights))
        });
        ahead.fold(own, Waiters::and)
    }

    /// Returns the weight that makes a round of turns. Where identities take turns, each counts as many sessions as the
    /// identity with fewest: how long its turns are does not depend on its number of sessions.
    pub(super) fn weights(&self) -> u128 {
        let of_owners = |owners: &Several<'_>| owners.weights() * u128::from(owners.fewest());
        self.owners.as_ref().map_or(self.sums.weight, of_owners)
    }

    /// Returns the part of the burst that is due to the session that asks, in permits: its largest call, and its part
    /// of the room that the largest calls of all sessions leave. `None` if the burst does not cover these calls.
    pub(super) fn cap(&self) -> Option<u64> {
        let spare = self.whole.cap.checked_sub(self.needs())?;
        let weight = self.me.weight;
        let part = match &self.owners {
            None => part_of(spare, weight, self.weights()),
            Some(owners) => {
                let of_own = part_of(spare, owners.own.weight(), owners.weights());
                part_of(of_own, weight, owners.own.weights().into())
            }
        };
        Some(self.me.largest + part)
    }

    /// Returns the share of the rate that is due to the session that asks: its demand, or the water level of weighted
    /// max-min. Rate that no session demands is shared by weight.
    pub(super) fn share(&self) -> u64 {
        let due = self.owners.as_ref().map_or(self.whole.share, |owners| owners.due(self.whole.share));
        let me = Demand::for_rate((), self.me.demand, self.me.weight);
        match self.own() {
            Some(own) => own.demands().share_beside(None, &me, due),
            None => Demands::<()>::default().share_beside(None, &me, due),
        }
    }
}

/// Returns when a session of `identity` has its turn, if `before` sessions of that identity come first. Each identity
/// has the flow for a time in proportion to its weight: after its last turn it waits while the others have theirs. The
/// session with the earliest moment is next; within one identity, the session that came first.
fn turn_of(identity: &Identity, before: u64, weights: u128) -> Moment {
    let (ended, lasted) = identity.last_turn;
    let own = u128::from(identity.weight());
    // The turns of the other identities, and a full round for each session of its own that comes first.
    let parts = (weights - own) + u128::from(before) * weights;
    let waits = u128::from(nanos(lasted)) * parts / own;
    ended + span_of(waits)
}
