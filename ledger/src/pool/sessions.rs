//! The sessions of one pool, and what is known of all of them together. In the order of time: when the next lease expires, when the
//! next orphaned calls do, when a session ages, since when one is idle, when a mirror is reviewed. As sums: what they claim, and
//! what they take. A session is changed by [`Sessions::update`] only, which keeps all of that true. So lending walks no sessions,
//! but for the turns of a steady flow (`rates.rs`).

mod resting;

use super::agenda::Agenda;
use super::claims::{Age, Ages};
use super::family::Place;
use super::session::Session;
use crate::rule::Draw;
use crate::sizing::{Claim, Claims};
use lessor_protocol::Moment;
use std::collections::BTreeMap;
use std::ops::Index;
use std::time::Duration;

/// Where there are more sessions than so many, one audit in so many is made.
const AUDITED: usize = 16;

/// A term that differs by less than one in so many parts is about the same.
const NEAR_PARTS: u32 = 8;

/// The sessions of one pool.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    /// Ordered, so that the same asks give the same answers. In boxes, so that a search reads places only.
    by_place: BTreeMap<Place, Box<Session>>,
    /// The end of each live lease.
    expiries: Agenda,
    /// When the next orphaned calls expire, for each session that has any.
    call_expiries: Agenda,
    /// When to look whether a mirror can be forgotten, for each mirror.
    reviews: Agenda,
    /// Since when each of the pool's own sessions has had nothing live and said nothing.
    idle: Agenda,
    /// When to look whether a session claims less because it has not asked for long. Each ask puts that off, so a look may find that it
    /// is too early: most asks need not move it.
    ages: Agenda,
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
    /// It claims nothing meanwhile, and what it claimed is set aside.
    is_asking: bool,
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
        let (is_asking, is_live) = (session.age == Age::Asking, session.is_live());
        let is_idle = !place.is_mirror() && !is_asking && !is_live && session.calls.next_expiry().is_none();
        Entry {
            is_asking,
            // Most that have spent all are lent more at once.
            expires: if is_asking && !is_live { session.expires } else { is_live.then_some(session.end) },
            calls_expire: session.calls.next_expiry(),
            reviewed: place.is_mirror().then_some(session.reviewed),
            idle: is_idle.then(|| session.end.max(session.answered)),
            ages: self.next_age(session).map(|(at, _)| at),
            claim: self.ages.claim(session),
            wanted: self.ages.wanted(session).filter(|_| self.are_reusable),
            adds,
        }
    }

    /// The age that `session` has next, and when. One that takes and wants nothing is the same at any age.
    fn next_age(&self, session: &Session) -> Option<(Moment, Age)> {
        let takes = !session.draw().is_none() || session.wanted > 0 || session.waiting > 0;
        self.ages.next(session).filter(|_| takes)
    }
}

/// The age of `session` is looked at again at `next` at the latest, if that is anything.
fn review_age(ages: &mut Agenda, place: Place, session: &mut Session, next: Option<Moment>) {
    let Some(next) = next.filter(|next| session.age_reviewed.is_none_or(|at| *next < at)) else { return };
    if let Some(at) = session.age_reviewed.replace(next) {
        ages.remove(at, place);
    }
    ages.insert(next, place);
}

impl Sessions {
    /// None, of a pool whose leases last for `term` where nothing clips them. Whether its permits are spent again when their calls
    /// end, `are_reusable` says.
    pub(super) fn new(term: Duration, are_reusable: bool) -> Self {
        Sessions {
            by_place: BTreeMap::new(),
            expiries: Agenda::default(),
            call_expiries: Agenda::default(),
            reviews: Agenda::default(),
            idle: Agenda::default(),
            ages: Agenda::default(),
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
            self.insert(place, *session);
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
        while let Some((at, place)) = self.ages.first().filter(|(at, _)| *at <= now) {
            self.ages.remove(at, place);
            let reading = self.reading;
            self.update(place, |session| {
                session.age_reviewed = None;
                if let Some((_, age)) = reading.next_age(session).filter(|(at, _)| *at <= now) {
                    session.age = age;
                }
            });
        }
    }

    /// The session at `place`.
    pub(super) fn get(&self, place: Place) -> Option<&Session> {
        self.by_place.get(&place).map(|session| &**session)
    }

    /// Whether there is one at `place`.
    pub(super) fn contains(&self, place: Place) -> bool {
        self.by_place.contains_key(&place)
    }

    /// All of them, with their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Session)> {
        self.by_place.iter().map(|(&place, session)| (place, &**session))
    }

    /// All of them.
    pub(super) fn values(&self) -> impl Iterator<Item = &Session> {
        self.by_place.values().map(|session| &**session)
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
        self.expiries.iter().map(|(end, place)| (end, self[place].outstanding))
    }

    /// The end of the last live lease.
    pub(super) fn last_expiry(&self) -> Option<Moment> {
        self.expiries.last().map(|(end, _)| end)
    }

    /// The first live lease that ends by `now`, with its end.
    pub(super) fn expired(&self, now: Moment) -> Option<(Moment, Place)> {
        self.expiries.first().filter(|(end, _)| *end <= now)
    }

    /// The first session that has orphaned calls which expire by `now`.
    pub(super) fn with_expired_calls(&self, now: Moment) -> Option<Place> {
        self.call_expiries.first().filter(|(expires, _)| *expires <= now).map(|(_, place)| place)
    }

    /// The mirror whose review comes first, and when that is.
    pub(super) fn next_review(&self) -> Option<(Moment, Place)> {
        self.reviews.first()
    }

    /// Adds `session`, in the place of one that is there. Returns whether none was.
    pub(super) fn insert(&mut self, place: Place, session: Session) -> bool {
        let was_there = self.contains(place);
        self.remove(place);
        let session = self.by_place.entry(place).or_insert(Box::new(session));
        (session.age_reviewed, session.expires) = (None, None);
        let after = self.reading.entry(place, session);
        session.expires = after.expires;
        review_age(&mut self.ages, place, session, after.ages);
        self.index(place, Entry::default(), after);
        !was_there
    }

    /// Changes the session at `place`.
    ///
    /// # Panics
    /// If there is none: the caller has admitted it.
    pub(super) fn update<R>(&mut self, place: Place, change: impl FnOnce(&mut Session) -> R) -> R {
        let session = self.by_place.get_mut(&place).expect("it was admitted");
        let before = Entry { expires: session.expires, ..self.reading.entry(place, session) };
        let result = change(session);
        let after = self.reading.entry(place, session);
        session.expires = after.expires;
        review_age(&mut self.ages, place, session, after.ages);
        self.index(place, before, after);
        result
    }

    /// Changes of the session at `place` what is in no order of time and no sum: a session that asks claims nothing.
    ///
    /// # Panics
    /// If there is none: the caller has admitted it.
    pub(super) fn note(&mut self, place: Place, change: impl FnOnce(&mut Session)) {
        let session = self.by_place.get_mut(&place).expect("it was admitted");
        let before = cfg!(debug_assertions).then(|| self.reading.entry(place, session));
        change(session);
        debug_assert_eq!(before, Some(self.reading.entry(place, session)), "{session:?}");
    }

    /// Forgets the session at `place`.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(session) = self.by_place.remove(&place) {
            if let Some(at) = session.age_reviewed {
                self.ages.remove(at, place);
            }
            let before = Entry { expires: session.expires, ..self.reading.entry(place, &session) };
            self.index(place, before, Entry::default());
        }
    }

    /// Forgets each of the pool's own sessions that has been idle since `then`, or for longer.
    pub(super) fn forget_idle(&mut self, then: Moment) {
        while let Some((_, place)) = self.idle.first().filter(|(since, _)| *since <= then) {
            self.remove(place);
        }
    }

    fn index(&mut self, place: Place, before: Entry, after: Entry) {
        if before == after {
            return;
        }
        let moved = |agenda: &mut Agenda, before: Option<Moment>, after: Option<Moment>| {
            if before != after {
                before.into_iter().for_each(|at| agenda.remove(at, place));
                after.into_iter().for_each(|at| agenda.insert(at, place));
            }
        };
        moved(&mut self.expiries, before.expires, after.expires);
        moved(&mut self.call_expiries, before.calls_expire, after.calls_expire);
        moved(&mut self.reviews, before.reviewed, after.reviewed);
        moved(&mut self.idle, before.idle, after.idle);
        let has_asked = before.is_asking && !after.is_asking;
        let claimed =
            |claims: &mut Claims<Place>, before: Option<Claim>, claim: Option<Claim>| match (before, claim) {
                (Some(before), _) if after.is_asking => claims.set_aside(place, before),
                (Some(before), Some(claim)) => claims.replace(place, before, claim),
                (Some(before), None) => claims.remove(place, before),
                (None, Some(claim)) => claims.insert(place, claim),
                (None, None) if has_asked => claims.drop_aside(place),
                (None, None) => {}
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
            entries().filter_map(|(place, entry)| Some((at(entry)?, place))).collect::<Agenda>()
        };
        debug_assert_eq!(self.expiries, order(|entry| entry.expires));
        debug_assert_eq!(self.call_expiries, order(|entry| entry.calls_expire));
        debug_assert_eq!(self.reviews, order(|entry| entry.reviewed));
        debug_assert_eq!(self.idle, order(|entry| entry.idle));
        let reviews = self.iter().filter_map(|(place, session)| Some((session.age_reviewed?, place)));
        debug_assert_eq!(self.ages, reviews.collect());
        debug_assert!(self.iter().all(|(place, session)| {
            let ages = self.reading.entry(place, session).ages;
            ages.is_none_or(|ages| session.age_reviewed.is_some_and(|at| at <= ages))
        }));
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
