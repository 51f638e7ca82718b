//! The reference: finds these figures by a walk over all sessions at each ask. Written for clarity, not for speed.

use super::super::row::FORFEIT;
use super::super::sharers::demand_of;
use super::super::waiting::Waiters;
use super::Figures;
use crate::pool::Pool;
use crate::pool::family::Place;
use crate::pool::session::Session;
use crate::rule::{Part, SHARES};
use crate::share::Owner;
use lessor_protocol::moment::{nanos, span_of};
use lessor_protocol::{Ask, Moment};
use std::collections::BTreeMap;
use std::time::Duration;

/// Returns the figures of `place`, which demands of the flow of `pool` what `ask` says.
pub(super) fn figures(pool: &Pool, place: Place, ask: &Ask) -> Figures {
    let flow = pool.flow.as_deref().expect("it has one");
    let demand = |session, milli, waiting| demand_of(flow.speed(), session, milli, waiting);
    let others = others_in_flow(pool, place);
    let others = others.map(|other| (other, demand(other, other.demand_milli, other.waiting)));
    let me = &pool.sessions[place];
    let me = (me, demand(me, ask.demand_milli, ask.waiting));
    let burst = flow.burst().saturating_sub(pool.reserve());
    let row = Row::new(pool.now, burst, me, others.collect(), pool.sessions.values());
    let holders = || pool.sessions.values().filter(|other| other.turn.lent.charged().cap > 0);
    Figures {
        whole: row.whole,
        room: row.room,
        count: row.others.len() as u64 + 1,
        needs: row.needs(),
        weights: row.weights(),
        cap: row.cap(),
        share: row.share(),
        ahead: Waiters {
            count: row.ahead().count() as u64,
            largest: row.ahead().map(|it| u128::from(it.turn.largest)).sum(),
        },
        is_of_several: row.owners.is_some(),
        hand_overs: (holders().map(|it| it.turn.hands_over + it.rtt).min(), holders().count()),
    }
}

/// Whether `session` has or wants a part of the flow.
pub(super) fn is_in_flow(pool: &Pool, session: &Session) -> bool {
    let wants = session.demand_milli > 0 || session.waiting > 0 || session.turn.waits_since.is_some();
    session.turn.lent.charged().cap > 0
        || (wants && pool.now.since(session.answered) <= pool.sessions.ages().active(session.rtt))
}

/// Returns the sessions other than `place` that have or want a part of the flow.
fn others_in_flow(pool: &Pool, place: Place) -> impl Iterator<Item = &Session> {
    let others = pool.sessions.iter().filter(move |&(other, _)| other != place);
    others.map(|(_, it)| it).filter(|session| is_in_flow(pool, session))
}

/// A session that asks, and the sessions that it shares with.
#[derive(Debug)]
struct Row<'a> {
    now: Moment,
    /// The session that asks, and what it demands of the rate.
    me: (&'a Session, u64),
    /// The other sessions, and what each demands.
    others: Vec<(&'a Session, u64)>,
    /// All identities, if several take turns.
    owners: Option<Identities>,
    /// The part that the sessions share: the flow, or the part due to their identity.
    whole: Part,
    /// The part of `whole` that the other sessions leave; `None` if `whole` is the flow.
    room: Option<Part>,
}

/// Several identities that share a flow.
#[derive(Debug)]
struct Identities {
    all: BTreeMap<Owner, OfOwner>,
    /// The sum of their weights.
    weights: u128,
}

/// The sessions of one identity.
#[derive(Debug, Default)]
struct OfOwner {
    count: u64,
    weights: u64,
    demand: u64,
    /// Their largest call.
    largest: u64,
    /// The last turn of any of its sessions: when the part is or was handed over, and how long the session had it.
    last_turn: (Moment, Duration),
    /// When each session that waits, and is still there, began to wait, in order.
    waiting: Vec<Moment>,
}

impl OfOwner {
    fn add(&mut self, session: &Session, demand: u64, waits_since: Option<Moment>) {
        self.count += 1;
        self.weights = self.weights.saturating_add(session.share.weight);
        self.demand = self.demand.saturating_add(demand).min(SHARES);
        self.largest = self.largest.max(session.turn.largest);
        self.waiting.extend(waits_since);
    }

    /// Notes the last turn of `session`, which is of this identity.
    fn note_turn(&mut self, session: &Session) {
        let turn = &session.turn;
        self.last_turn = self.last_turn.max((turn.hands_over, turn.hands_over.since(turn.began)));
    }

    /// Returns the average weight of its sessions: more sessions give an identity no more weight.
    fn weight(&self) -> u64 {
        (self.weights / self.count.max(1)).max(1)
    }
}

/// Returns the part of `all` that is due to `weight` of `weights`.
fn part_of(all: u64, weight: u64, weights: u128) -> u64 {
    (u128::from(all) * u128::from(weight) / weights.max(1)) as u64
}

impl<'a> Row<'a> {
    /// Makes the row on a flow with room for `burst` permits in all buckets. Each of `known` may have had a turn.
    fn new(
        now: Moment,
        burst: u64,
        me: (&'a Session, u64),
        others: Vec<(&'a Session, u64)>,
        known: impl Iterator<Item = &'a Session>,
    ) -> Self {
        let whole = Part { cap: burst, share: SHARES };
        let mut row = Row { now, me, others, owners: None, whole, room: None };
        if row.others.iter().all(|(other, _)| other.share.owner == me.0.share.owner) {
            return row;
        }
        let mut all: BTreeMap<Owner, OfOwner> = BTreeMap::new();
        for (session, demand) in row.all() {
            let owner = all.entry(session.share.owner).or_default();
            owner.add(session, demand, row.waits_since(session));
        }
        all.values_mut().for_each(|owner| owner.waiting.sort_unstable());
        for session in known {
            if let Some(owner) = all.get_mut(&session.share.owner) {
                owner.note_turn(session);
            }
        }
        let weights = all.values().map(|owner| u128::from(owner.weight())).sum();
        let owners = Identities { all, weights };
        match row.own_part(&owners) {
            Some(part) => row.keep_apart(part),
            None => row.owners = Some(owners),
        }
        row
    }

    fn all(&self) -> impl Iterator<Item = (&'a Session, u64)> {
        self.others.iter().copied().chain([self.me])
    }

    /// Returns the part due to the identity that asks, if each identity's part covers its largest call.
    fn own_part(&self, owners: &Identities) -> Option<Part> {
        let cap = |owner: &OfOwner| part_of(self.whole.cap, owner.weight(), owners.weights);
        if owners.all.values().any(|owner| owner.largest > cap(owner)) {
            return None;
        }
        let own = owners.all.get(&self.me.0.share.owner)?;
        Some(Part { cap: cap(own), share: self.due_to(owners, own) })
    }

    /// Leaves only the sessions of its identity in the row, which share `part` of the flow.
    fn keep_apart(&mut self, part: Part) {
        let owner = self.me.0.share.owner;
        self.others.retain(|(other, _)| other.share.owner == owner);
        let taken = self.others.iter().map(|(other, _)| other.turn.lent.charged());
        self.room = Some(taken.fold(part, |left, taken| Part {
            cap: left.cap.saturating_sub(taken.cap),
            share: left.share.saturating_sub(taken.share),
        }));
        self.whole = part;
    }

    /// Returns since when `session` has waited for its turn, if it waits and is still there.
    fn waits_since(&self, session: &Session) -> Option<Moment> {
        session.turn.waits_since.filter(|_| self.now <= session.turn.expected)
    }

    /// Returns the waiting sessions with a turn before the asking session's.
    fn ahead(&self) -> impl Iterator<Item = &'a Session> {
        let my_place = self.place(self.me.0, self.me.0.turn.waits_since.unwrap_or(Moment::NEVER));
        let (owner, is_forfeit) = (self.me.0.share.owner, self.is_forfeit());
        let others = self.others.iter().map(|(other, _)| *other);
        others.filter(move |other| {
            let is_there = other.share.owner == owner || !is_forfeit;
            is_there && self.waits_since(other).is_some_and(|since| self.place(other, since) < my_place)
        })
    }

    /// Whether the identity whose turn it is has left it unused so long that any other may have it: its sessions may be
    /// made up.
    fn is_forfeit(&self) -> bool {
        let last =
            self.owners.iter().flat_map(|owners| owners.all.values()).map(|owner| owner.last_turn.0).max();
        last.is_some_and(|last| self.now > last + FORFEIT)
    }

    /// Returns when a session that has waited since `since` has its turn: the first in this order is next. Each
    /// identity has the flow for a time in proportion to its weight: after its last turn it waits while the others have
    /// theirs.
    fn place(&self, session: &Session, since: Moment) -> (Moment, Moment) {
        let of_session = |owners: &Identities| {
            let owner = owners.all.get(&session.share.owner)?;
            let (ended, lasted) = owner.last_turn;
            let before = owner.waiting.partition_point(|waits| *waits < since) as u64;
            let (own, all) = (u128::from(owner.weight()), owners.weights);
            // The turns of the other identities, and a full round for each session of its own that comes first.
            let parts = (all - own) + u128::from(before) * all;
            let waits = u128::from(nanos(lasted)) * parts / own;
            Some(ended + span_of(waits))
        };
        (self.owners.as_ref().and_then(of_session).unwrap_or(Moment::ORIGIN), since)
    }

    /// Returns the weight that makes a round of turns. Where identities take turns, each counts as many sessions as the
    /// identity with fewest: how long its turns are does not depend on its number of sessions.
    fn weights(&self) -> u128 {
        let Some(owners) = &self.owners else {
            return self.all().map(|(session, _)| u128::from(session.share.weight)).sum();
        };
        let fewest = owners.all.values().map(|owner| owner.count).min().unwrap_or(1);
        owners.weights * u128::from(fewest)
    }

    /// Returns all identities and the one that asks, if several take turns.
    fn own(&self) -> Option<(&Identities, &OfOwner)> {
        let owners = self.owners.as_ref()?;
        Some((owners, owners.all.get(&self.me.0.share.owner)?))
    }

    /// Returns the sum of the largest calls of all, in permits.
    fn needs(&self) -> u64 {
        self.all().map(|(session, _)| session.turn.largest).sum()
    }

    /// Returns the part of the burst that is due to the session that asks, in permits, if the burst covers the largest
    /// calls of all.
    fn cap(&self) -> Option<u64> {
        let me = self.me.0;
        let spare = self.whole.cap.checked_sub(self.needs())?;
        let part = match self.own() {
            None => part_of(spare, me.share.weight, self.weights()),
            Some((owners, own)) => {
                let of_own = part_of(spare, own.weight(), owners.weights);
                part_of(of_own, me.share.weight, own.weights.into())
            }
        };
        Some(me.turn.largest + part)
    }

    /// Returns the share of the rate that is due to the session that asks: its demand, or the water level of weighted
    /// max-min. Rate that no session demands is shared by weight.
    fn share(&self) -> u64 {
        let owner = self.me.0.share.owner;
        let of_own = self.all().filter(|(session, _)| session.share.owner == owner);
        let mut claims: Vec<_> = of_own.map(|(session, demand)| (demand, session.share.weight)).collect();
        let due = match self.own() {
            None => self.whole.share,
            Some((owners, own)) => self.due_to(owners, own),
        };
        water_level(&mut claims, (self.me.1, self.me.0.share.weight), due)
    }

    /// Returns the share of the rate that is due to the identity `own`.
    fn due_to(&self, owners: &Identities, own: &OfOwner) -> u64 {
        let mut claims: Vec<_> = owners.all.values().map(|owner| (owner.demand, owner.weight())).collect();
        water_level(&mut claims, (own.demand, own.weight()), self.whole.share)
    }
}

/// Returns what `mine`, one of `claims`, gets of `all`. A claim is a demand and a weight.
pub(in crate::pool::rates) fn water_level(claims: &mut [(u64, u64)], mine: (u64, u64), all: u64) -> u64 {
    claims.sort_unstable_by(|a, b| {
        (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1)))
    });
    let mut weights: u128 = claims.iter().map(|claim| u128::from(claim.1)).sum();
    let mut left = u128::from(all);
    let of_all = weights.max(1);
    for &(demand, weight) in claims.iter() {
        let (demand, weight) = (u128::from(demand), u128::from(weight));
        if demand * weights > left * weight {
            // This claim and all after it share what is left by weight.
            let level = (left * u128::from(mine.1) / weights.max(1)) as u64;
            return if u128::from(mine.0) * weights > left * u128::from(mine.1) {
                level
            } else {
                mine.0.max(1)
            };
        }
        left -= demand;
        weights -= weight;
    }
    mine.0 + (left * u128::from(mine.1) / of_all) as u64
}
