//! Those that have a part of a steady flow or want one, as a session that asks sees them. Each identity has a part of the flow for its
//! sessions alone, if that is enough for the largest call of each. Otherwise identities come by turns, and the sessions of each one
//! after the other. Where all are of one identity, the first that came is the first. It looks at no session, and by turns at each identity
//! that waits.

use super::demands::{Demand, Demands};
use super::identities::{Identity, Several};
use super::sharers::{Members, Sharers, Sums};
use super::waiting::Waiters;
use crate::rule::{Part, SHARES};
use crate::share::Owner;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// A turn that no session takes for so long goes to another identity. Those that are there ask once or more meanwhile, unless they are
/// far away.
pub(super) const FORFEIT: Duration = Duration::from_millis(60);

/// A session that asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks {
    pub(super) owner: Owner,
    pub(super) weight: u64,
    /// What it demands of the rate.
    pub(super) demand: u64,
    /// Its largest call.
    pub(super) largest: u64,
    /// Since when it has waited for its turn.
    pub(super) waits_since: Option<Moment>,
}

impl Asks {
    fn sums(&self) -> Sums {
        Sums {
            count: 1,
            weight: self.weight.into(),
            demand: self.demand.into(),
            largest: self.largest.into(),
            ..Sums::default()
        }
    }
}

/// A session that asks, and those that it shares with.
#[derive(Debug)]
pub(super) struct Row<'a> {
    now: Moment,
    me: Asks,
    /// The others. None are kept while a session is alone.
    sharers: Option<&'a Sharers>,
    /// All that share a whole, the session that asks included.
    sums: Sums,
    /// All identities, if several come by turns.
    owners: Option<Several<'a>>,
    /// What they share: the flow, or what is due to their identity.
    pub(super) whole: Part,
    /// What the others leave of that, if it is not the flow.
    pub(super) room: Option<Part>,
}

/// What of `all` is due to `weight` of `weights`.
fn part_of(all: u64, weight: u64, weights: u128) -> u64 {
    (u128::from(all) * u128::from(weight) / weights.max(1)) as u64
}

impl<'a> Row<'a> {
    /// The row of a flow with room for a `burst` in all buckets, of the session that asks beside `sharers`.
    pub(super) fn new(now: Moment, burst: u64, me: Asks, sharers: Option<&'a Sharers>) -> Self {
        let whole = Part { cap: burst, share: SHARES };
        let others = sharers.and_then(|sharers| sharers.identity(me.owner));
        let taken = others.map_or(Sums::default(), |others| others.sums);
        let sums = taken.plus(me.sums());
        let row = Row { now, me, sharers, sums, owners: None, whole, room: None };
        let Some(sharers) = sharers.filter(|sharers| sharers.are_of_others(me.owner)) else { return row };
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
                // Its identity shares a part of the flow, beside all others.
                let Part { cap, share } = taken.charged();
                let room =
                    Part { cap: part.cap.saturating_sub(cap), share: part.share.saturating_sub(share) };
                Row { whole: part, room: Some(room), ..row }
            }
            None => Row { sums: owners.sums(), owners: Some(owners), ..row },
        }
    }

    /// What is due to the identity of the session that asks, if such a part is enough for each identity.
    fn own_part(&self, owners: &Several<'_>) -> Option<Part> {
        let (call, weights) = (owners.largest_call(), owners.weights());
        let cap = |weight| part_of(self.whole.cap, weight, weights);
        let is_enough = call.largest <= cap(call.weight);
        is_enough.then(|| Part { cap: cap(owners.own.weight()), share: owners.due(self.whole.share) })
    }

    /// Whether several identities come by turns.
    pub(super) fn has_several_owners(&self) -> bool {
        self.owners.is_some()
    }

    /// How many are in it.
    pub(super) fn count(&self) -> u64 {
        self.sums.count
    }

    /// What their largest calls add up to.
    pub(super) fn needs(&self) -> u64 {
        u64::try_from(self.sums.largest).unwrap_or(u64::MAX)
    }

    /// The others of the identity of the session that asks.
    fn own(&self) -> Option<&'a Members> {
        self.sharers?.members(self.me.owner)
    }

    /// Those whose turn comes before that of the session that asks.
    pub(super) fn ahead(&self) -> Waiters {
        let since = self.me.waits_since.unwrap_or(Moment::NEVER);
        let own = self.own().map_or(Waiters::default(), |own| own.waiting().before(since));
        let (Some(owners), Some(sharers)) = (&self.owners, self.sharers) else { return own };
        // An identity whose turn it is has left it for so long that any other one may have it: its sessions may be made up.
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

    /// The weight of all in the row: as many turns make a round. Each identity has as long a turn, however many sessions it has: as if
    /// it had as few as any other.
    pub(super) fn weights(&self) -> u128 {
        let of_owners = |owners: &Several<'_>| owners.weights() * u128::from(owners.fewest());
        self.owners.as_ref().map_or(self.sums.weight, of_owners)
    }

    /// The part of the room for a burst that is due to the session that asks.
    pub(super) fn even(&self) -> u64 {
        let weight = self.me.weight;
        match &self.owners {
            None => part_of(self.whole.cap, weight, self.weights()),
            Some(owners) => {
                let of_own = part_of(self.whole.cap, owners.own.weight(), owners.weights());
                part_of(of_own, weight, owners.own.weights().into())
            }
        }
    }

    /// The share of the rate that is due to the session that asks: what it demands, or the water level of weighted max-min. What no
    /// session demands is shared by weight.
    pub(super) fn share(&self) -> u64 {
        let due = self.owners.as_ref().map_or(self.whole.share, |owners| owners.due(self.whole.share));
        let me = Demand { id: (), share: self.me.demand, weight: self.me.weight };
        match self.own() {
            Some(own) => own.demands().share_beside(None, &me, due),
            None => Demands::<()>::default().share_beside(None, &me, due),
        }
    }
}

/// When a session of `identity` has its turn that so many of its own come `before`, if each identity has the flow for as long as its
/// weight, of all `weights`, says: after its last turn it waits for as long as the others are to have theirs. The first in this order
/// has the next turn; of one identity, the first that came.
fn turn_of(identity: &Identity, before: u64, weights: u128) -> Moment {
    let (ended, lasted) = identity.last_turn;
    let own = u128::from(identity.weight());
    // The turns of the others, and those of its own that come first with the others' after each.
    let parts = (weights - own) + u128::from(before) * weights;
    let waits = u128::from(nanos(lasted)) * parts / own;
    ended + Duration::from_nanos(u64::try_from(waits).unwrap_or(u64::MAX))
}
