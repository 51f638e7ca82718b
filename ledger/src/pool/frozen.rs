//! A pool as a value that is put away after each exchange and goes on at the next, in whatever process that is: the *root* of
//! a limit that several allocators lease from a store. Unlike a [`super::Record`] it knows each session.
//!
//! It keeps all that decides what is lent. What an ask was answered is left out: who leases from a store asks each time anew.

use super::family::Place;
use super::feedback::SavedFeedback;
use super::flights::{Flights, SavedFlights};
use super::session::{Burn, Session};
use super::{Books, Plan, Pool, SessionId};
use crate::Rule;
use crate::pacing::Pacer;
use crate::rule::{At, Gap, Saved, Since};
use crate::share::Share;
use lessor_protocol::{Moment, PERMITS_MAX, Terms};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A pool that was put away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frozen {
    /// When.
    written: At,
    /// Nothing is granted before this.
    opens: At,
    /// Until then leases may be out that were lent by other rules, or in an earlier life.
    outlived: At,
    /// Until then a session may go by what an earlier life told it.
    earlier: At,
    /// The total that was ever granted; and of that, what was spent, what came back, and what burned.
    books: [u64; 4],
    /// The books of its rules, in their order.
    rules: Vec<Saved>,
    vendor: SavedFeedback,
    /// What it may lend while it eases off, and since when that is so.
    pacer: Option<(u64, At)>,
    #[serde(rename = "lessees")]
    sessions: Vec<FrozenLessee>,
}

/// One session's part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FrozenLessee {
    id: u64,
    seq: u64,
    answered: At,
    lent: At,
    end: At,
    spent: u64,
    out: u64,
    burned: u64,
    burns: Vec<(At, u64)>,
    demand: u64,
    waiting: u64,
    wanted: u64,
    /// How long its leases last, and how far away it is.
    term: Duration,
    rtt: Duration,
    /// What it may have in flight, where that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flights: Option<SavedFlights>,
}

impl Plan {
    /// Whether a pool of this can be put away: no other allocator lends to it, it has no steady flow, and it is shared evenly.
    pub fn is_freezable(&self) -> bool {
        let is_even = self.sharing.guaranteed.is_empty() && self.sharing.safe.is_none();
        let has_flow = self.rules.iter().any(|rule| rule.flow().is_some());
        is_even && !has_flow && !self.is_borrowed
    }
}

impl Frozen {
    /// When it was put away, on the clock that it went by.
    pub fn written(&self) -> Moment {
        self.written.as_calendar()
    }

    /// The same, as it is written down.
    pub fn written_at(&self) -> At {
        self.written
    }
}

impl Pool {
    /// What must hold.
    pub fn rules(&self) -> &[Rule] {
        &self.plan.rules
    }

    /// Whether no allocator is sure on which side of a boundary the time is.
    fn is_blurred(&self) -> bool {
        self.plan.is_root
    }

    /// The instant that no lease may outlive, unless what it holds is charged ahead.
    pub(super) fn lease_end(&self) -> Option<Moment> {
        if self.is_blurred() { self.ledgers.lease_end_in_doubt() } else { self.ledgers.lease_end() }
    }

    /// The instant that no lease may outlive at all. Where no allocator is sure on which side of a boundary the time is, that is
    /// the next boundary.
    pub(super) fn lease_end_ahead(&self) -> Option<Moment> {
        if self.is_blurred() { self.lease_end() } else { self.ledgers.lease_end_ahead() }
    }

    /// The allocator that tells it something does not know the time well: the true time is at most `latest`.
    pub fn doubt(&mut self, latest: Moment) {
        self.ledgers.doubt(latest);
    }

    /// It, to be put away at `now`. `None` of one that cannot be, see [`Plan::is_freezable`].
    pub fn freeze(&mut self, now: Moment) -> Option<Frozen> {
        if !self.plan.is_freezable() {
            return None;
        }
        self.advance(now);
        let Books { granted, spent, returned, burned, outstanding: _ } = self.books;
        let pacer = match self.pacer {
            Pacer::Free => None,
            // No more than fits: it is less than what may be lent.
            Pacer::Easing { credit, at } => Some((u64::try_from(credit).unwrap_or(u64::MAX), at.into())),
        };
        let sessions =
            self.sessions.iter().map(|(place, session)| FrozenLessee::of(place.session(), session));
        Some(Frozen {
            written: self.now.into(),
            opens: self.opens.into(),
            outlived: self.outlived.into(),
            earlier: self.records.earlier().into(),
            books: [granted, spent, returned, burned],
            rules: self.ledgers.save()?,
            vendor: self.feedback.save(),
            pacer,
            sessions: sessions.collect(),
        })
    }

    /// The pool that was `frozen`, as it stands at `now`. `None` if no pool by this plan can have been so.
    pub fn thawed(plan: Arc<Plan>, frozen: &Frozen, gap: Gap, now: Moment) -> Option<Pool> {
        let since = Since { gap, written: frozen.written, now, terms: plan.terms };
        let then = since.moment(frozen.written);
        if !plan.is_freezable() || then > now || frozen.sessions.len() > plan.lessees_max {
            return None;
        }
        let mut pool = Pool::new(plan, then);
        for session in &frozen.sessions {
            let (place, thawed) = session.thawed(since)?;
            if !pool.sessions.insert(place, thawed) {
                return None;
            }
        }
        let out = pool.sessions.values().map(|session| session.outstanding).sum::<u64>();
        let until = pool.sessions.last_expiry().unwrap_or(then);
        pool.books = books(frozen.books, out)?;
        // Sessions that were forgotten are in the books still.
        let sum = |part: fn(&Session) -> u64| pool.sessions.values().map(part).sum::<u64>();
        if sum(|session| session.burned) > pool.books.burned
            || sum(|session| session.spent) > pool.books.spent
        {
            return None;
        }
        let counts = pool.longest.is_some();
        let charged = sum(|session| session.flights.charged());
        let are_books_true = pool.ledgers.restore(&frozen.rules, since, (out, until))
            && pool.ledgers.in_flight() == Some(charged)
            && (counts || pool.sessions.in_flight() == 0);
        if !are_books_true {
            return None;
        }
        pool.feedback.restore(&frozen.vendor, since);
        pool.opens = since.moment(frozen.opens);
        pool.outlived = since.moment(frozen.outlived).max(if gap == Gap::Unknown { until } else { then });
        pool.records.goes_on(since.moment(frozen.earlier));
        pool.pacer = match frozen.pacer {
            Some((credit, at)) => Pacer::Easing { credit: credit.into(), at: since.moment(at).min(now) },
            None => Pacer::Free,
        };
        pool.recount_ahead();
        pool.advance(now);
        pool.audit();
        Some(pool)
    }
}

impl FrozenLessee {
    fn of(id: SessionId, session: &Session) -> Self {
        FrozenLessee {
            id: id.0,
            seq: session.seq,
            answered: session.answered.into(),
            lent: session.lent.into(),
            end: session.end.into(),
            spent: session.spent,
            out: session.outstanding,
            burned: session.burned,
            burns: session.burns().map(|burn| (burn.at.into(), burn.permits)).collect(),
            demand: session.demand_milli,
            waiting: session.waiting,
            wanted: session.wanted,
            term: session.term,
            rtt: session.rtt,
            flights: session.flights.save(),
        }
    }

    fn thawed(&self, since: Since) -> Option<(Place, Session)> {
        let totals = [self.spent, self.out, self.burned, self.demand, self.waiting, self.wanted, self.seq];
        let burns = self.burns.iter().try_fold(0_u64, |sum, (_, permits)| sum.checked_add(*permits))?;
        let is_sane = totals.iter().all(|total| *total <= PERMITS_MAX)
            && burns <= self.burned
            && self.burns.is_sorted_by_key(|(at, _)| *at)
            && self.term <= Terms::TERM_MAX;
        if !is_sane {
            return None;
        }
        let mut session = Session::new(Share::EVEN, since.moment(self.answered));
        (session.seq, session.spent, session.outstanding) = (self.seq, self.spent, self.out);
        (session.lent, session.end) = (since.moment(self.lent), since.moment(self.end));
        (session.demand_milli, session.waiting, session.wanted) = (self.demand, self.waiting, self.wanted);
        (session.term, session.rtt) = (self.term, self.rtt);
        let burns = self.burns.iter().map(|&(at, permits)| Burn { at: since.moment(at), permits });
        session.thaw_burned(self.burned, burns);
        session.flights = match &self.flights {
            Some(flights) => Flights::thawed(flights, since)?,
            None => Flights::default(),
        };
        Some((Place::own(SessionId(self.id)), session))
    }
}

/// The books that say so, with `outstanding` permits; `None` if those are none.
fn books([granted, spent, returned, burned]: [u64; 4], outstanding: u64) -> Option<Books> {
    let sum = [spent, returned, burned, outstanding].into_iter().try_fold(0_u64, u64::checked_add)?;
    (sum == granted).then_some(Books { granted, spent, returned, burned, outstanding })
}
