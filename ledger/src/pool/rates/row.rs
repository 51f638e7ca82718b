//! Those that have a part of a steady flow or want one, as a session that asks sees them. Each identity has a part of the flow for its
//! sessions alone, if that is enough for the largest call of each. Otherwise identities come by turns, and the sessions of each one
//! after the other. Where all are of one identity, the first that came is the first. It looks at identities, and at no session.

use super::demands::{Demand, Demands};
use super::sharers::{LastTurn, Members, Sharers, Sums};
use super::waiting::Waiters;
use crate::rule::{Part, SHARES};
use crate::share::Owner;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::collections::BTreeMap;
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
    /// The others of its identity.
    own: Option<&'a Members>,
    /// All that share a whole, the session that asks included.
    sums: Sums,
    /// What there is of each identity, if several share it.
    owners: Option<Identities<'a>>,
    /// What they share: the flow, or what is due to their identity.
    pub(super) whole: Part,
    /// What the others leave of that, if it is not the flow.
    pub(super) room: Option<Part>,
}

/// Several identities.
#[derive(Debug)]
struct Identities<'a> {
    all: BTreeMap<Owner, OfOwner<'a>>,
    /// The weights of all of them.
    weights: u128,
}

/// The sessions of one identity.
#[derive(Debug)]
struct OfOwner<'a> {
    /// But for the one that asks.
    members: Option<&'a Members>,
    sums: Sums,
    /// Their largest call.
    largest: u64,
    /// When the last of them that had a part hands it over, or did, and how long it had it.
    last_turn: LastTurn,
}

impl<'a> OfOwner<'a> {
    /// The members of `owner` as `sharers` have them, and perhaps the session that asks.
    fn new(sharers: &'a Sharers, owner: Owner, me: Option<&Asks>) -> Self {
        let members = sharers.members(owner);
        let others = members.map_or(Sums::default(), Members::sums);
        let largest = members.map_or(0, Members::largest);
        OfOwner {
            members,
            sums: me.map_or(others, |me| others.plus(me.sums())),
            largest: me.map_or(largest, |me| largest.max(me.largest)),
            last_turn: sharers.last_turn(owner),
        }
    }

    fn weights(&self) -> u64 {
        fits(self.sums.weight)
    }

    /// More sessions give it no more weight.
    fn weight(&self) -> u64 {
        (self.weights() / self.sums.count.max(1)).max(1)
    }

    fn demand(&self, owner: Owner) -> Demand<Owner> {
        Demand { id: owner, share: fits(self.sums.demand).min(SHARES), weight: self.weight() }
    }
}

/// What of `all` is due to `weight` of `weights`.
fn part_of(all: u64, weight: u64, weights: u128) -> u64 {
    (u128::from(all) * u128::from(weight) / weights.max(1)) as u64
}

fn fits(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

impl<'a> Row<'a> {
    /// The row of a flow with room for a `burst` in all buckets, of the session that asks beside `sharers`. None are kept while it is
    /// alone.
    pub(super) fn new(now: Moment, burst: u64, me: Asks, sharers: Option<&'a Sharers>) -> Self {
        let whole = Part { cap: burst, share: SHARES };
        let own = sharers.and_then(|sharers| sharers.members(me.owner));
        let sums = own.map_or(Sums::default(), Members::sums).plus(me.sums());
        let row = Row { now, me, own, sums, owners: None, whole, room: None };
        match sharers.filter(|sharers| sharers.are_of_others(me.owner)) {
            Some(sharers) => row.among(Identities::new(sharers, &me)),
            None => row,
        }
    }

    /// The same where several identities share.
    fn among(self, owners: Identities<'a>) -> Self {
        let Some(part) = self.own_part(&owners) else {
            let sums = owners.all.values().fold(Sums::default(), |sums, owner| sums.plus(owner.sums));
            return Row { sums, owners: Some(owners), ..self };
        };
        // Its identity shares a part of the flow, beside all others.
        let taken = self.own.map_or(Part::default(), |own| own.sums().charged());
        let room =
            Part { cap: part.cap.saturating_sub(taken.cap), share: part.share.saturating_sub(taken.share) };
        Row { whole: part, room: Some(room), ..self }
    }

    /// What is due to the identity of the session that asks, if such a part is enough for each identity.
    fn own_part(&self, owners: &Identities<'_>) -> Option<Part> {
        let cap = |owner: &OfOwner<'_>| part_of(self.whole.cap, owner.weight(), owners.weights);
        if owners.all.values().any(|owner| owner.largest > cap(owner)) {
            return None;
        }
        let own = owners.all.get(&self.me.owner)?;
        Some(Part { cap: cap(own), share: owners.due_to(self.me.owner, own, self.whole.share) })
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
        fits(self.sums.largest)
    }

    /// Those whose turn comes before that of the session that asks.
    pub(super) fn ahead(&self) -> Waiters {
        let since = self.me.waits_since.unwrap_or(Moment::NEVER);
        let of_own = self.own.map_or(Waiters::default(), |own| own.waiting().before(since));
        let Some((owners, own)) = self.own().filter(|(owners, _)| !owners.is_forfeit(self.now)) else {
            return of_own;
        };
        let mine = (owners.turn_of(own, of_own.count), since);
        let others = owners.all.iter().filter(|(owner, _)| **owner != self.me.owner);
        let waiting = others.filter_map(|(_, other)| Some((other, other.members?.waiting())));
        let ahead =
            waiting.map(|(other, waiting)| waiting.ahead_of(mine, |before| owners.turn_of(other, before)));
        ahead.fold(of_own, Waiters::and)
    }

    /// The weight of all in the row: as many turns make a round. Each identity has as long a turn, however many sessions it has: as if
    /// it had as few as any other.
    pub(super) fn weights(&self) -> u128 {
        let Some(owners) = &self.owners else { return self.sums.weight };
        let fewest = owners.all.values().map(|owner| owner.sums.count).min().unwrap_or(1);
        owners.weights * u128::from(fewest)
    }

    /// What there is of all identities, and of that of the session that asks, if several share.
    fn own(&self) -> Option<(&Identities<'a>, &OfOwner<'a>)> {
        let owners = self.owners.as_ref()?;
        Some((owners, owners.all.get(&self.me.owner)?))
    }

    /// The part of the room for a burst that is due to the session that asks.
    pub(super) fn even(&self) -> u64 {
        let weight = self.me.weight;
        match self.own() {
            None => part_of(self.whole.cap, weight, self.weights()),
            Some((owners, own)) => {
                let of_own = part_of(self.whole.cap, own.weight(), owners.weights);
                part_of(of_own, weight, own.weights().into())
            }
        }
    }

    /// The share of the rate that is due to the session that asks: what it demands, or the water level of weighted max-min. What no
    /// session demands is shared by weight.
    pub(super) fn share(&self) -> u64 {
        let due = match self.own() {
            None => self.whole.share,
            Some((owners, own)) => owners.due_to(self.me.owner, own, self.whole.share),
        };
        let me = Demand { id: (), share: self.me.demand, weight: self.me.weight };
        match self.own {
            Some(own) => own.demands().share_beside(&me, due),
            None => Demands::<()>::default().share_beside(&me, due),
        }
    }
}

impl<'a> Identities<'a> {
    /// Those of `sharers`, and of the session that asks.
    fn new(sharers: &'a Sharers, me: &Asks) -> Self {
        let mine = (me.owner, OfOwner::new(sharers, me.owner, Some(me)));
        let others = sharers.identities().filter(|(owner, _)| *owner != me.owner);
        let others = others.map(|(owner, _)| (owner, OfOwner::new(sharers, owner, None)));
        let all: BTreeMap<_, _> = others.chain([mine]).collect();
        let weights = all.values().map(|owner| u128::from(owner.weight())).sum();
        Identities { all, weights }
    }

    /// What of the `share` of all is due to the identity `own` of `owner`.
    fn due_to(&self, owner: Owner, own: &OfOwner<'_>, share: u64) -> u64 {
        let others = self.all.iter().filter(|(other, _)| **other != owner);
        let others: Demands<Owner> = others.map(|(other, it)| it.demand(*other)).collect();
        others.share_beside(&own.demand(owner), share)
    }

    /// Whether an identity whose turn it is has left it for so long that any other one may have it: its sessions may be made up.
    fn is_forfeit(&self, now: Moment) -> bool {
        let last = self.all.values().map(|owner| owner.last_turn.0).max();
        last.is_some_and(|last| now > last + FORFEIT)
    }

    /// When a session of `owner` has its turn that so many of its own come `before`, if each identity has the flow for as long as its
    /// weight says: after its last turn it waits for as long as the others are to have theirs. The first in this order has the next
    /// turn; of one identity, the first that came.
    fn turn_of(&self, owner: &OfOwner<'_>, before: u64) -> Moment {
        let (ended, lasted) = owner.last_turn;
        let (own, all) = (u128::from(owner.weight()), self.weights);
        // The turns of the others, and those of its own that come first with the others' after each.
        let parts = (all - own) + u128::from(before) * all;
        let waits = u128::from(nanos(lasted)) * parts / own;
        ended + Duration::from_nanos(u64::try_from(waits).unwrap_or(u64::MAX))
    }
}
