//! The sessions of one pool, and what is known of all of them together. In the order of time: when the next lease expires, when the
//! next orphaned calls do, when a session ages, since when one is idle, when a mirror is reviewed. As sums: what they claim, and
//! what they take. A session is changed by [`Sessions::update`] only, which keeps all of that true. So lending walks no sessions,
//! but for the turns of a steady flow (`rates.rs`).

use super::claims::{Age, Ages};
use super::family::Place;
use super::session::Session;
use crate::rule::Draw;
use crate::sizing::{Claim, Claims};
use lessor_protocol::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;
use std::time::Duration;

/// Where there are more sessions than so many, one audit in so many is made.
const AUDITED: usize = 16;

/// A term that differs by less than one in so many parts is about the same.
const NEAR_PARTS: u32 = 8;

/// The sessions of one pool.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    /// Ordered, so that the same asks give the same answers.
    by_place: BTreeMap<Place, Session>,
    /// The end of each live lease.
    expiries: BTreeSet<(Moment, Place)>,
    /// When the next orphaned calls expire, for each session that has any.
    call_expiries: BTreeSet<(Moment, Place)>,
    /// When to look whether a mirror can be forgotten, for each mirror.
    reviews: BTreeSet<(Moment, Place)>,
    /// Since when each of the pool's own sessions has had nothing live and said nothing.
    idle: BTreeSet<(Moment, Place)>,
    /// When the next session claims less because it has not asked for long.
    ages: BTreeSet<(Moment, Place)>,
    reading: Reading,
    /// What those claim that share, and the same where permits are spent again.
    claims: Claims<Place>,
    wanted: Claims<Place>,
    sums: Totals,
}

/// What sessions add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Permits in flight, for people.
    in_flight: u64,
    /// What those that share take, want and wait for.
    at_once: u128,
    demand_milli: u128,
    wanted: u128,
    waiting: u128,
}

/// What those that share take, want and wait for, as far as that can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) demand_milli: u64,
    pub(super) wanted: u64,
    pub(super) waiting: u64,
}

/// Where a session stands in the order of time, and what it adds to the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    expires: Option<Moment>,
    calls_expire: Option<Moment>,
    reviewed: Option<Moment>,
    idle: Option<Moment>,
    ages: Option<Moment>,
    claim: Option<Claim>,
    wanted: Option<Claim>,
    adds: Totals,
}

/// How sessions are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    ages: Ages,
    /// Whether permits are spent again when their calls end.
    are_reusable: bool,
}

impl Reading {
    fn entry(&self, place: Place, session: &Session) -> Entry {
        let shares = |number: u64| if session.shares() { u128::from(number) } else { 0 };
        let draw = session.draw();
        let adds = Totals {
            in_flight: session.calls.in_flight(),
            at_once: draw.at_once.into(),
            demand_milli: draw.demand_milli.into(),
            wanted: shares(session.wanted),
            waiting: shares(session.waiting),
        };
        // One that takes and wants nothing is the same at any age.
        let is_nothing = Totals { in_flight: 0, ..adds } == Totals::default();
        let next = self.ages.next(session).filter(|_| !is_nothing);
        let is_idle = !place.is_mirror() && !session.is_live() && session.calls.next_expiry().is_none();
        Entry {
            expires: session.is_live().then_some(session.end),
            calls_expire: session.calls.next_expiry(),
            reviewed: place.is_mirror().then_some(session.reviewed),
            idle: is_idle.then(|| session.end.max(session.answered)),
            ages: next.map(|(at, _)| at),
            claim: self.ages.claim(session),
            wanted: self.ages.wanted(session).filter(|_| self.are_reusable),
            adds,
        }
    }
}

impl Sessions {
    /// None, of a pool whose leases last for `term` where nothing clips them. Whether its permits are spent again when their calls
    /// end, `are_reusable` says.
    pub(super) fn new(term: Duration, are_reusable: bool) -> Self {
        Sessions {
            by_place: BTreeMap::new(),
            expiries: BTreeSet::new(),
            call_expiries: BTreeSet::new(),
            reviews: BTreeSet::new(),
            idle: BTreeSet::new(),
            ages: BTreeSet::new(),
            reading: Reading { ages: Ages::new(term), are_reusable },
            claims: Claims::default(),
            wanted: Claims::default(),
            sums: Totals::default(),
        }
    }

    /// Leases last for about `term` from now on: as [`Sessions::go_by`] where that makes a difference. A term that the allocator above
    /// tells changes a little with each exchange.
    pub(super) fn go_by_about(&mut self, term: Duration, are_reusable: bool) {
        let known = self.reading.ages.term();
        let is_near = term.abs_diff(known) * NEAR_PARTS <= known;
        self.go_by(if is_near { known } else { term }, are_reusable);
    }

    /// They are those of such a pool from now on: what each session claims changes with it.
    pub(super) fn go_by(&mut self, term: Duration, are_reusable: bool) {
        if self.reading == (Reading { ages: Ages::new(term), are_reusable }) {
            return;
        }
        let before = std::mem::replace(self, Sessions::new(term, are_reusable));
        for (place, mut session) in before.by_place {
            // How old it is by the other term, the next look at the time says.
            session.age = Age::Fresh;
            self.insert(place, session);
        }
    }

    /// How long a session that does not ask claims what.
    pub(super) fn ages(&self) -> &Ages {
        &self.reading.ages
    }

    /// What those claim that share, but for a session that asks.
    pub(super) fn claims(&self) -> &Claims<Place> {
        &self.claims
    }

    /// The same where permits are spent again when their calls end.
    pub(super) fn wanted(&self) -> &Claims<Place> {
        &self.wanted
    }

    /// What they take.
    pub(super) fn draws(&self) -> Draw {
        let Totals { at_once, demand_milli, .. } = self.sums;
        Draw { at_once: saturated(at_once), demand_milli: saturated(demand_milli) }
    }

    /// What they take, want and wait for.
    pub(super) fn sums(&self) -> Sums {
        let Totals { demand_milli, wanted, waiting, .. } = self.sums;
        Sums { demand_milli: saturated(demand_milli), wanted: saturated(wanted), waiting: saturated(waiting) }
    }

    /// Lets those claim less that have not asked for long when it is `now`.
    pub(super) fn age(&mut self, now: Moment) {
        while let Some(&(_, place)) = self.ages.first().filter(|(at, _)| *at <= now) {
            let ages = self.reading.ages;
            self.update(place, |session| session.age = ages.next(session).map_or(Age::Gone, |(_, age)| age));
        }
    }

    /// The session at `place`.
    pub(super) fn get(&self, place: Place) -> Option<&Session> {
        self.by_place.get(&place)
    }

    /// Whether there is one at `place`.
    pub(super) fn contains(&self, place: Place) -> bool {
        self.by_place.contains_key(&place)
    }

    /// All of them, with their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Session)> {
        self.by_place.iter().map(|(&place, session)| (place, session))
    }

    /// All of them.
    pub(super) fn values(&self) -> impl Iterator<Item = &Session> {
        self.by_place.values()
    }

    /// How many there are, mirrors included.
    pub(super) fn len(&self) -> usize {
        self.by_place.len()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// How many there are that are no mirrors.
    pub(super) fn own(&self) -> usize {
        self.by_place.len() - self.reviews.len()
    }

    /// How many of them have a live lease.
    pub(super) fn live(&self) -> usize {
        self.expiries.len()
    }

    /// Permits in flight.
    pub(super) fn in_flight(&self) -> u64 {
        self.sums.in_flight
    }

    /// The permits that are out on each live lease, with its end, soonest first.
    pub(super) fn leases(&self) -> impl Iterator<Item = (Moment, u64)> {
        self.expiries.iter().map(|&(end, place)| (end, self[place].outstanding))
    }

    /// The end of the last live lease.
    pub(super) fn last_expiry(&self) -> Option<Moment> {
        self.expiries.last().map(|&(end, _)| end)
    }

    /// The first live lease that ends by `now`, with its end.
    pub(super) fn expired(&self, now: Moment) -> Option<(Moment, Place)> {
        self.expiries.first().copied().filter(|(end, _)| *end <= now)
    }

    /// The first session that has orphaned calls which expire by `now`.
    pub(super) fn with_expired_calls(&self, now: Moment) -> Option<Place> {
        self.call_expiries.first().filter(|(expires, _)| *expires <= now).map(|&(_, place)| place)
    }

    /// The mirror whose review comes first, and when that is.
    pub(super) fn next_review(&self) -> Option<(Moment, Place)> {
        self.reviews.first().copied()
    }

    /// Adds `session`, in the place of one that is there. Returns whether none was.
    pub(super) fn insert(&mut self, place: Place, session: Session) -> bool {
        let after = self.reading.entry(place, &session);
        let before = self.by_place.insert(place, session);
        let entry = before.as_ref().map(|it| self.reading.entry(place, it));
        self.index(place, entry.unwrap_or_default(), after);
        before.is_none()
    }

    /// Changes the session at `place`.
    ///
    /// # Panics
    /// If there is none: the caller has admitted it.
    pub(super) fn update<R>(&mut self, place: Place, change: impl FnOnce(&mut Session) -> R) -> R {
        let session = self.by_place.get_mut(&place).expect("it was admitted");
        let before = self.reading.entry(place, session);
        let result = change(session);
        let after = self.reading.entry(place, session);
        self.index(place, before, after);
        result
    }

    /// Forgets the session at `place`.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(session) = self.by_place.remove(&place) {
            self.index(place, self.reading.entry(place, &session), Entry::default());
        }
    }

    /// Forgets each of the pool's own sessions that has been idle since `then`, or for longer.
    pub(super) fn forget_idle(&mut self, then: Moment) {
        while let Some(&(_, place)) = self.idle.first().filter(|(since, _)| *since <= then) {
            self.remove(place);
        }
    }

    fn index(&mut self, place: Place, before: Entry, after: Entry) {
        if before == after {
            return;
        }
        let moved = |order: &mut BTreeSet<(Moment, Place)>, before: Option<Moment>, after| {
            if before != after {
                before.map(|at| order.remove(&(at, place)));
                after.map(|at| order.insert((at, place)));
            }
        };
        moved(&mut self.expiries, before.expires, after.expires);
        moved(&mut self.call_expiries, before.calls_expire, after.calls_expire);
        moved(&mut self.reviews, before.reviewed, after.reviewed);
        moved(&mut self.idle, before.idle, after.idle);
        moved(&mut self.ages, before.ages, after.ages);
        let claimed = |claims: &mut Claims<Place>, before: Option<Claim>, after| {
            if before != after {
                before.into_iter().for_each(|claim| claims.remove(place, claim));
                after.into_iter().for_each(|claim| claims.insert(place, claim));
            }
        };
        claimed(&mut self.claims, before.claim, after.claim);
        claimed(&mut self.wanted, before.wanted, after.wanted);
        self.sums = self.sums.less(before.adds).plus(after.adds);
    }

    /// What is known in the order of time is true of each session, or there is a bug here.
    pub(super) fn audit(&self, now: Moment) {
        // Of many sessions at some instants only: it takes as long as all else that a test does.
        if self.len() > AUDITED && !now.as_nanos().is_multiple_of(AUDITED as u64) {
            return;
        }
        let entries = || self.iter().map(|(place, it)| (place, self.reading.entry(place, it)));
        let order = |at: fn(Entry) -> Option<Moment>| {
            entries().filter_map(|(place, entry)| Some((at(entry)?, place))).collect::<BTreeSet<_>>()
        };
        debug_assert_eq!(self.expiries, order(|entry| entry.expires));
        debug_assert_eq!(self.call_expiries, order(|entry| entry.calls_expire));
        debug_assert_eq!(self.reviews, order(|entry| entry.reviewed));
        debug_assert_eq!(self.idle, order(|entry| entry.idle));
        debug_assert_eq!(self.ages, order(|entry| entry.ages));
        debug_assert_eq!(
            self.sums,
            entries().fold(Totals::default(), |sums, (_, entry)| sums.plus(entry.adds))
        );
        self.claims.audit(entries().filter_map(|(place, entry)| Some((place, entry.claim?))));
        self.wanted.audit(entries().filter_map(|(place, entry)| Some((place, entry.wanted?))));
    }
}

impl Totals {
    fn plus(self, more: Totals) -> Totals {
        Totals {
            in_flight: self.in_flight + more.in_flight,
            at_once: self.at_once + more.at_once,
            demand_milli: self.demand_milli + more.demand_milli,
            wanted: self.wanted + more.wanted,
            waiting: self.waiting + more.waiting,
        }
    }

    fn less(self, fewer: Totals) -> Totals {
        Totals {
            in_flight: self.in_flight - fewer.in_flight,
            at_once: self.at_once - fewer.at_once,
            demand_milli: self.demand_milli - fewer.demand_milli,
            wanted: self.wanted - fewer.wanted,
            waiting: self.waiting - fewer.waiting,
        }
    }
}

fn saturated(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

impl Index<Place> for Sessions {
    type Output = Session;

    /// # Panics
    /// If there is none at `place`: the caller has admitted it.
    fn index(&self, place: Place) -> &Session {
        &self.by_place[&place]
    }
}
