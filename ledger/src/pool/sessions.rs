//! The sessions of one pool, and what is known of all of them in the order of time: when the next lease expires, when the next
//! orphaned calls expire, when the next mirror is reviewed. A session is changed by [`Sessions::update`] only, which keeps that true.

use super::family::Place;
use super::session::Session;
use lessor_protocol::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;

/// The sessions of one pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    /// Ordered, so that the same asks give the same answers.
    by_place: BTreeMap<Place, Session>,
    /// The end of each live lease.
    expiries: BTreeSet<(Moment, Place)>,
    /// When the next orphaned calls expire, for each session that has any.
    call_expiries: BTreeSet<(Moment, Place)>,
    /// When to look whether a mirror can be forgotten, for each mirror.
    reviews: BTreeSet<(Moment, Place)>,
    /// Permits in flight, for people.
    in_flight: u64,
}

/// Where a session stands in the order of time, and what it adds to the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    expires: Option<Moment>,
    calls_expire: Option<Moment>,
    reviewed: Option<Moment>,
    in_flight: u64,
}

impl Entry {
    fn of(place: Place, session: &Session) -> Self {
        Entry {
            expires: session.is_live().then_some(session.end),
            calls_expire: session.calls.next_expiry(),
            reviewed: place.is_mirror().then_some(session.reviewed),
            in_flight: session.calls.in_flight(),
        }
    }
}

impl Sessions {
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
        self.in_flight
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
        let after = Entry::of(place, &session);
        let before = self.by_place.insert(place, session);
        self.index(place, before.as_ref().map_or(Entry::default(), |it| Entry::of(place, it)), after);
        before.is_none()
    }

    /// Changes the session at `place`.
    ///
    /// # Panics
    /// If there is none: the caller has admitted it.
    pub(super) fn update<R>(&mut self, place: Place, change: impl FnOnce(&mut Session) -> R) -> R {
        let session = self.by_place.get_mut(&place).expect("it was admitted");
        let before = Entry::of(place, session);
        let result = change(session);
        let after = Entry::of(place, session);
        self.index(place, before, after);
        result
    }

    /// Forgets the session at `place`.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(session) = self.by_place.remove(&place) {
            self.index(place, Entry::of(place, &session), Entry::default());
        }
    }

    /// Forgets each session that is not to be `kept`.
    pub(super) fn retain(&mut self, kept: impl Fn(Place, &Session) -> bool) {
        let mut gone = vec![];
        self.by_place.retain(|&place, session| {
            let is_kept = kept(place, session);
            if !is_kept {
                gone.push((place, Entry::of(place, session)));
            }
            is_kept
        });
        gone.into_iter().for_each(|(place, entry)| self.index(place, entry, Entry::default()));
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
        self.in_flight = self.in_flight - before.in_flight + after.in_flight;
    }

    /// What is known in the order of time is true of each session, or there is a bug here.
    pub(super) fn audit(&self) {
        let order = |at: fn(Entry) -> Option<Moment>| {
            let each = self.iter().filter_map(move |(place, it)| Some((at(Entry::of(place, it))?, place)));
            each.collect::<BTreeSet<_>>()
        };
        debug_assert_eq!(self.expiries, order(|entry| entry.expires));
        debug_assert_eq!(self.call_expiries, order(|entry| entry.calls_expire));
        debug_assert_eq!(self.reviews, order(|entry| entry.reviewed));
        debug_assert_eq!(self.in_flight, self.values().map(|it| it.calls.in_flight()).sum::<u64>());
    }
}

impl Index<Place> for Sessions {
    type Output = Session;

    /// # Panics
    /// If there is none at `place`: the caller has admitted it.
    fn index(&self, place: Place) -> &Session {
        &self.by_place[&place]
    }
}
