//! The sessions of one pool, with orders and sums over all of them. In the order of time: when the next lease expires,
//! when the next orphaned calls do, when a session ages, since when one is idle, when a mirror is reviewed. As sums:
//! what sessions claim, and what they take. [`Sessions::update`] changes a session and keeps all of that true. So
//! lending walks no sessions.

pub(super) mod audit;
mod change;
mod orders;
mod places;
mod reading;
mod resting;
mod sharing;

use super::agenda::Agenda;
use super::ages::{Age, Ages};
use super::family::Place;
use super::rare::{MaybeMoment, Rare};
use super::session::Session;
use crate::rule::Draw;
use crate::share::{Owner, Share};
use crate::sizing::Claims;
use change::READ_AT_ONCE;
use lessor_protocol::Moment;
use orders::Orders;
use places::Places;
pub(super) use reading::SaturatedTotals;
use reading::{Entry, Reading, Totals, saturated};
use std::collections::BTreeMap;
use std::ops::Index;
use std::time::Duration;

/// The sessions of one pool.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    by_place: Places,
    /// Orders and sums over all sessions; `None` while there is one at most.
    orders: Option<Box<Orders>>,
    /// Number of the pool's own sessions of each identity.
    owners: SessionsByOwner,
    /// How sessions are read, or will be after a change: see [`Sessions::reading_of`].
    reading: Reading,
}

/// Number of sessions of each identity. Sessions without an identity are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SessionsByOwner(Rare<BTreeMap<Owner, usize>>);

impl SessionsByOwner {
    fn add(&mut self, owner: Owner) {
        if owner != Owner::NONE {
            *self.0.entry(owner).or_default() += 1;
        }
    }

    fn remove(&mut self, owner: Owner) {
        let Some(counts) = self.0.unusual() else { return };
        let Some(count) = counts.get_mut(&owner) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&owner);
        }
        if counts.is_empty() {
            self.0.reset();
        }
    }

    fn count(&self, owner: Owner) -> usize {
        self.0.get(&owner).copied().unwrap_or(0)
    }
}

/// The claims of others while the only session asks.
static NO_CLAIMS: Claims<Place> = Claims::new();

impl Sessions {
    /// Creates an empty set for a pool in which claims age by `ages`.
    pub(super) fn new(ages: Ages) -> Self {
        Sessions {
            by_place: Places::default(),
            orders: None,
            owners: SessionsByOwner::default(),
            reading: Reading { term: ages.term, source: ages.source, has_distances: false },
        }
    }

    /// Makes the round-trip times of sessions count.
    pub(super) fn with_distances(mut self) -> Self {
        self.reading.has_distances = true;
        self
    }

    /// Returns the longest round-trip time of sessions that take or want anything, where distances count. Looks at all
    /// sessions only if the farthest one has come nearer or does not count any more.
    pub(super) fn distance(&mut self) -> Duration {
        let Some(orders) = &mut self.orders else {
            return self.by_place.sole().and_then(|(_, it)| self.reading.distance(it)).unwrap_or_default();
        };
        if orders.farthest.1.is_none() {
            let distances =
                self.by_place.iter().filter_map(|(place, it)| Some((self.reading.distance(it)?, place)));
            orders.farthest =
                distances.max().map_or_else(Default::default, |(far, place)| (far, Some(place)));
        }
        orders.farthest.0
    }

    /// Returns how claims age.
    pub(super) fn ages(&self) -> Ages {
        self.reading.ages()
    }

    /// Returns the claims of sessions that share, without a session that asks.
    pub(super) fn claims(&self) -> &Claims<Place> {
        debug_assert!(self.by_place.sole().is_none_or(|(_, it)| it.age == Age::Asking));
        self.orders.as_deref().map_or(&NO_CLAIMS, |orders| &orders.claims)
    }

    /// Returns the claims to permits that are spent again when calls end, without a session that asks.
    pub(super) fn wanted(&self) -> &Claims<Place> {
        debug_assert!(self.by_place.sole().is_none_or(|(_, it)| it.age == Age::Asking));
        self.orders.as_deref().map_or(&NO_CLAIMS, |orders| &orders.wanted)
    }

    /// Returns the sums over all sessions that share.
    fn totals(&self) -> Totals {
        match &self.orders {
            Some(orders) => orders.sums,
            None => self.by_place.sole().map_or(Totals::default(), |(_, it)| self.reading.adds(it)),
        }
    }

    /// Returns the first session in `order`, and its moment. `at` gives the moment of an only session, if it is in that
    /// order.
    fn first(
        &self,
        order: impl FnOnce(&Orders) -> &Agenda,
        at: impl FnOnce(Place, &Session) -> Option<Moment>,
    ) -> Option<(Moment, Place)> {
        match &self.orders {
            Some(orders) => order(orders).first(),
            None => self.by_place.sole().and_then(|(place, it)| Some((at(place, it)?, place))),
        }
    }

    /// Returns when the next age is reviewed, and of which session.
    fn first_age(&self) -> Option<(Moment, Place)> {
        self.first(|orders| &orders.ages, |_, session| session.age_reviewed.get())
    }

    /// Returns the session that has been idle longest of all that have used anything, and since when.
    fn first_idle(&self) -> Option<(Moment, Place)> {
        self.first(|orders| &orders.idle, |place, session| self.reading.idle(place, session).used())
    }

    /// Returns the session that has been idle longest of all that have used nothing, and since when.
    fn first_unused(&self) -> Option<(Moment, Place)> {
        self.first(|orders| &orders.unused, |place, session| self.reading.idle(place, session).unused())
    }

    /// Returns when the first orphaned calls expire, and of which session.
    fn first_calls(&self) -> Option<(Moment, Place)> {
        self.first(|orders| &orders.call_expiries, |_, session| session.calls.next_expiry())
    }

    /// Returns what sharing sessions take together.
    pub(super) fn draws(&self) -> Draw {
        let Totals { at_once, demand_milli, .. } = self.totals();
        Draw { at_once: saturated(at_once), demand_milli: saturated(demand_milli) }
    }

    /// Returns what sharing sessions take, want, wait for and hold together.
    pub(super) fn sums(&self) -> SaturatedTotals {
        self.totals().into()
    }

    /// Returns what sharing sessions of `group`, or of no group, take, want, wait for and hold together.
    pub(super) fn sums_of(&self, group: Option<usize>) -> SaturatedTotals {
        let sole = || self.by_place.sole().filter(|(_, it)| self.reading.group(it) == group);
        match &self.orders {
            Some(orders) => orders.totals_of(group).into(),
            None => sole().map_or(Totals::default(), |(_, it)| self.reading.adds(it)).into(),
        }
    }

    /// Ages sessions: by `now`, a session that has not asked for long claims less.
    pub(super) fn age(&mut self, now: Moment) {
        self.reread_some(READ_AT_ONCE);
        while let Some((at, place)) = self.first_age().filter(|(at, _)| *at <= now) {
            self.orders.iter_mut().for_each(|orders| orders.ages.remove(at, place));
            let reading = self.reading_of(place);
            self.update(place, |session| {
                session.age_reviewed = MaybeMoment::NONE;
                if let Some((_, age)) = reading.next_age(session).filter(|(at, _)| *at <= now) {
                    session.age = age;
                }
            });
        }
        self.age_sharers(now);
    }

    /// Keeps the session at `place`, which asks now, where it is found without a search.
    pub(super) fn attend(&mut self, place: Place) {
        self.by_place.attend(place);
    }

    /// Returns the session at `place`.
    pub(super) fn get(&self, place: Place) -> Option<&Session> {
        self.by_place.get(place)
    }

    /// Whether there is a session at `place`.
    pub(super) fn contains(&self, place: Place) -> bool {
        self.by_place.get(place).is_some()
    }

    /// Returns all sessions with their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Session)> {
        self.by_place.iter()
    }

    /// Returns all sessions.
    pub(super) fn values(&self) -> impl Iterator<Item = &Session> {
        self.by_place.iter().map(|(_, session)| session)
    }

    /// Returns the number of sessions, mirrors included.
    pub(super) fn len(&self) -> usize {
        self.by_place.len()
    }

    /// Whether there are no sessions.
    pub(super) fn is_empty(&self) -> bool {
        self.by_place.len() == 0
    }

    /// Returns the number of sessions that are no mirrors.
    pub(super) fn own(&self) -> usize {
        match &self.orders {
            Some(orders) => self.by_place.len() - orders.reviews.len(),
            None => self.by_place.sole().into_iter().filter(|(place, _)| !place.is_mirror()).count(),
        }
    }

    /// Whether any of the pool's own sessions is of another identity than `owner`.
    pub(super) fn are_of_others(&self, owner: Owner) -> bool {
        self.owners.0.keys().any(|other| *other != owner)
    }

    /// Returns the number of the pool's own sessions of `owner`.
    pub(super) fn of(&self, owner: Owner) -> usize {
        self.owners.count(owner)
    }

    /// Sets what the session at `place` counts for. The session asks, so it claims nothing.
    ///
    /// # Panics
    /// If there is none: the caller has admitted it.
    pub(super) fn share(&mut self, place: Place, share: Share) {
        let before = self[place].share.owner;
        self.note(place, |session| session.share = Rare::of(share));
        if before != share.owner && !place.is_mirror() {
            self.owners.remove(before);
            self.owners.add(share.owner);
        }
    }

    /// Returns the number of sessions with a live lease.
    pub(super) fn live(&self) -> usize {
        match &self.orders {
            Some(orders) => orders.expiries.len(),
            None => self.by_place.sole().into_iter().filter(|(_, it)| it.expires.get().is_some()).count(),
        }
    }

    /// Returns the permits in flight.
    pub(super) fn in_flight(&self) -> u64 {
        let sole = || self.by_place.sole().map_or(0, |(_, it)| it.calls.in_flight());
        self.orders.as_deref().map_or_else(sole, |orders| orders.in_flight)
    }

    /// Returns the end of each live lease and the permits that are out on it, soonest first.
    pub(super) fn leases(&self) -> impl Iterator<Item = (Moment, u64)> {
        let sole = self.by_place.sole().and_then(|(_, it)| Some((it.expires.get()?, it.outstanding)));
        let orders = self.orders.as_deref().into_iter().flat_map(|orders| orders.expiries.iter());
        sole.into_iter().chain(orders.map(|(end, place)| (end, self[place].outstanding)))
    }

    /// Returns the end of the live lease that ends last.
    pub(super) fn last_expiry(&self) -> Option<Moment> {
        match &self.orders {
            Some(orders) => orders.expiries.last().map(|(end, _)| end),
            None => self.by_place.sole().and_then(|(_, it)| it.expires.get()),
        }
    }

    /// Returns the first live lease that ends by `now`, with its end.
    pub(super) fn expired(&self, now: Moment) -> Option<(Moment, Place)> {
        self.first(|orders| &orders.expiries, |_, session| session.expires.get())
            .filter(|(end, _)| *end <= now)
    }

    /// Returns the first session that has orphaned calls which expire by `now`.
    pub(super) fn with_expired_calls(&self, now: Moment) -> Option<Place> {
        self.first_calls().filter(|(expires, _)| *expires <= now).map(|(_, place)| place)
    }

    /// Returns the mirror whose review comes first, and when that is.
    pub(super) fn next_review(&self) -> Option<(Moment, Place)> {
        self.first(|orders| &orders.reviews, |place, it| place.is_mirror().then_some(it.reviewed))
    }

    /// Adds `session`, in the place of one that is there. Returns whether the place was free.
    pub(super) fn insert(&mut self, place: Place, session: Session) -> bool {
        let was_there = self.contains(place);
        self.remove(place);
        if self.orders.is_none() && !self.is_empty() {
            self.orders = Some(Box::new(self.ordered()));
        }
        let mut session = Box::new(session);
        (session.age_reviewed, session.expires) = (MaybeMoment::NONE, MaybeMoment::NONE);
        let reading = self.reading_of(place);
        let orders = self.orders.as_deref_mut();
        if let Some(orders) = orders {
            reading.note(place, &mut session, Some(&mut orders.ages));
            orders.index(place, Entry::default(), reading.entry(place, &session));
            orders.count(place, &session, &reading);
        } else {
            reading.note(place, &mut session, None);
        }
        if !place.is_mirror() {
            self.owners.add(session.share.owner);
        }
        self.by_place.insert(place, session);
        !was_there
    }

    /// Makes the orders and sums over all sessions.
    fn ordered(&self) -> Orders {
        let mut orders = Orders::default();
        for (place, session) in self.iter() {
            orders.index(place, Entry::default(), self.reading.entry(place, session));
            session.age_reviewed.get().into_iter().for_each(|at| orders.ages.insert(at, place));
        }
        orders
    }

    /// Changes the session at `place`.
    ///
    /// # Panics
    /// If there is none: the caller has admitted it.
    pub(super) fn update<R>(&mut self, place: Place, change: impl FnOnce(&mut Session) -> R) -> R {
        let reading = self.reading_of(place);
        self.reread(place, (reading, reading), change)
    }

    /// Changes the session at `place`, which is read by `before` until now, and by `after` from now on.
    fn reread<R>(
        &mut self,
        place: Place,
        (before, after): (Reading, Reading),
        change: impl FnOnce(&mut Session) -> R,
    ) -> R {
        let session = self.by_place.get_mut(place).expect("it was admitted");
        let Some(orders) = self.orders.as_deref_mut() else {
            let result = change(session);
            after.note(place, session, None);
            return result;
        };
        let before = before.entry(place, session);
        let result = change(session);
        after.note(place, session, Some(&mut orders.ages));
        orders.index(place, before, after.entry(place, session));
        orders.count(place, session, &after);
        result
    }

    /// Changes the lease of the session at `place`, which asks, as [`Sessions::update`] does. Only the end of its lease is
    /// in any order or sum.
    pub(super) fn update_lease<R>(&mut self, place: Place, change: impl FnOnce(&mut Session) -> R) -> R {
        let reading = self.reading_of(place);
        let session = self.by_place.get_mut(place).expect("it was admitted");
        let others = |session: &Session| Entry { expires: None, ..reading.entry(place, session) };
        let before = (reading.expires(session), cfg!(test).then(|| others(session)));
        let result = change(session);
        debug_assert_eq!((session.age, before.1), (Age::Asking, cfg!(test).then(|| others(session))));
        let expires = reading.expires(session);
        session.expires = expires.into();
        if let Some(orders) = self.orders.as_deref_mut() {
            orders.expiries.reschedule(place, before.0, expires);
            orders.count(place, session, &reading);
        }
        result
    }

    /// Changes parts of the session at `place` that are in no order and no sum: a session that asks claims nothing.
    ///
    /// # Panics
    /// If there is none: the caller has admitted it.
    pub(super) fn note(&mut self, place: Place, change: impl FnOnce(&mut Session)) {
        let reading = self.reading_of(place);
        let session = self.by_place.get_mut(place).expect("it was admitted");
        let before = cfg!(test).then(|| reading.entry(place, session));
        change(session);
        debug_assert_eq!(before, cfg!(test).then(|| reading.entry(place, session)), "{session:?}");
    }

    /// Forgets the session at `place`.
    pub(super) fn remove(&mut self, place: Place) {
        let Some(session) = self.by_place.remove(place) else { return };
        if !place.is_mirror() {
            self.owners.remove(session.share.owner);
        }
        if self.len() < 2 {
            // A session that is left alone is read as all would have been after the change.
            self.reread_some(usize::MAX);
            self.orders = None;
        }
        let reading = self.reading_of(place);
        if let Some(orders) = self.orders.as_deref_mut() {
            session.age_reviewed.get().into_iter().for_each(|at| orders.ages.remove(at, place));
            orders.index(place, reading.entry(place, &session), Entry::default());
            orders.sharers.iter_mut().for_each(|sharers| sharers.forget(place));
        }
    }

    /// Forgets each of the pool's own sessions that has used anything and has been idle since `then`, at least.
    pub(super) fn forget_idle(&mut self, then: Moment) {
        while let Some((_, place)) = self.first_idle().filter(|(since, _)| *since <= then) {
            self.remove(place);
        }
    }

    /// Forgets each of the pool's own sessions that has used nothing and has been idle since `then`, at least.
    pub(super) fn forget_unused(&mut self, then: Moment) {
        while let Some((_, place)) = self.first_unused().filter(|(since, _)| *since <= then) {
            self.remove(place);
        }
    }
}

impl Index<Place> for Sessions {
    type Output = Session;

    /// # Panics
    /// If there is none at `place`: the caller has admitted it.
    fn index(&self, place: Place) -> &Session {
        self.get(place).expect("it was admitted")
    }
}
