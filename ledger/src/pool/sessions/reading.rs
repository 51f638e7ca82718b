//! How one session of a pool is read: where it stands in each order of time, what it claims, and what it adds to the sums.

use crate::pool::agenda::Agenda;
use crate::pool::ages::{Age, Ages};
use crate::pool::family::Place;
use crate::pool::ledgers::Source;
use crate::pool::session::Session;
use crate::sizing::Claim;
use lessor_protocol::Moment;
use std::time::Duration;

/// Where a session stands in the order of time, and what it adds to the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Whether it asks now. It claims nothing meanwhile, and what it claimed is set aside.
    pub(super) is_asking: bool,
    pub(super) expires: Option<Moment>,
    pub(super) calls_expire: Option<Moment>,
    pub(super) reviewed: Option<Moment>,
    pub(super) idle: Idle,
    pub(super) claim: Option<Claim>,
    pub(super) wanted: Option<Claim>,
    pub(super) in_flight: u64,
    pub(super) adds: Totals,
    /// The guaranteed group to whose sums it adds `adds` as well.
    pub(super) group: Option<usize>,
    /// Its round-trip time, where distances count.
    pub(super) distance: Option<Duration>,
}

/// Since when a session has had nothing live and said nothing. Mirrors are never idle: they are reviewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Idle {
    /// The session is not idle.
    #[default]
    No,
    /// The session is idle, and rules or its own totals may still count what it has used.
    Used(Moment),
    /// The session is idle, and has used nothing.
    Unused(Moment),
}

impl Idle {
    /// Returns since when the session is idle, if it has used anything.
    pub(super) fn used(self) -> Option<Moment> {
        if let Idle::Used(since) = self { Some(since) } else { None }
    }

    /// Returns since when the session is idle, if it has used nothing.
    pub(super) fn unused(self) -> Option<Moment> {
        if let Idle::Unused(since) = self { Some(since) } else { None }
    }
}

/// How sessions are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Length of a lease that nothing clips.
    pub(super) term: Duration,
    /// Where the permits come from.
    pub(super) source: Source,
    /// Whether the round-trip times of sessions count: a lease from above has to outlast exchanges with them.
    pub(super) has_distances: bool,
}

impl Reading {
    /// Returns how the claims of sessions age.
    pub(super) fn ages(&self) -> Ages {
        Ages { term: self.term, source: self.source }
    }

    /// Whether permits are spent again when their calls end.
    pub(super) fn are_reusable(&self) -> bool {
        self.source == Source::EndedCalls
    }

    /// Returns when the lease of `session` is taken to end.
    pub(super) fn expires(&self, session: &Session) -> Option<Moment> {
        let (is_asking, is_live) = (session.age == Age::Asking, session.is_live());
        // Most sessions that have spent all their permits are lent more at once.
        if is_asking && !is_live { session.expires.get() } else { is_live.then_some(session.end) }
    }

    /// Returns since when `session` has had nothing live and said nothing, if it is the pool's own.
    pub(super) fn idle(&self, place: Place, session: &Session) -> Idle {
        let is_idle = !place.is_mirror()
            && session.age != Age::Asking
            && !session.is_live()
            && session.calls.next_expiry().is_none();
        let since = session.end.max(session.answered);
        match is_idle {
            false => Idle::No,
            true if session.is_unused() => Idle::Unused(since),
            true => Idle::Used(since),
        }
    }

    pub(super) fn adds(&self, session: &Session) -> Totals {
        let shares = |number: u64| if session.shares() { u128::from(number) } else { 0 };
        let draw = session.draw();
        Totals {
            at_once: draw.at_once.into(),
            demand_milli: draw.demand_milli.into(),
            wanted: shares(session.wanted),
            waiting: shares(session.waiting),
            out: shares(session.outstanding),
        }
    }

    /// Returns the round-trip time of `session`, where distances count, while it takes or wants anything.
    pub(super) fn distance(&self, session: &Session) -> Option<Duration> {
        let is_here = self.has_distances && matches!(session.age, Age::Fresh | Age::Silent);
        (is_here && takes(session)).then_some(session.rtt)
    }

    /// Returns the guaranteed group of `session` if it shares.
    pub(super) fn group(&self, session: &Session) -> Option<usize> {
        session.share.group.filter(|_| session.shares())
    }

    pub(super) fn entry(&self, place: Place, session: &Session) -> Entry {
        let entry = Entry {
            is_asking: session.age == Age::Asking,
            expires: self.expires(session),
            calls_expire: session.calls.next_expiry(),
            reviewed: place.is_mirror().then_some(session.reviewed),
            in_flight: session.calls.in_flight(),
            ..Entry::default()
        };
        // A session that asks is not idle, and shares nothing.
        if entry.is_asking {
            return entry;
        }
        Entry {
            idle: self.idle(place, session),
            claim: self.ages().claim(session),
            wanted: if self.are_reusable() { self.ages().wanted(session) } else { None },
            adds: self.adds(session),
            group: self.group(session),
            distance: self.distance(session),
            ..entry
        }
    }

    /// Notes in `session` when its lease is taken to end, and when its age is reviewed at the latest.
    pub(super) fn note(&self, place: Place, session: &mut Session, ages: Option<&mut Agenda>) {
        session.expires = self.expires(session).into();
        let next = self.next_age(session).map(|(at, _)| at);
        let before = session.age_reviewed.get();
        let Some(next) = next.filter(|next| before.is_none_or(|at| *next < at)) else { return };
        session.age_reviewed = Some(next).into();
        if let Some(ages) = ages {
            before.into_iter().for_each(|at| ages.remove(at, place));
            ages.insert(next, place);
        }
    }

    /// Returns the age that `session` has next, and when. A session that takes and wants nothing is the same at any
    /// age.
    pub(super) fn next_age(&self, session: &Session) -> Option<(Moment, Age)> {
        self.ages().next(session).filter(|_| takes(session))
    }
}

fn takes(session: &Session) -> bool {
    !session.draw().is_none() || session.wanted > 0 || session.waiting > 0
}

/// Sums of what sharing sessions take, want, wait for and hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) at_once: u128,
    pub(super) demand_milli: u128,
    pub(super) wanted: u128,
    pub(super) waiting: u128,
    pub(super) out: u128,
}

impl Totals {
    pub(super) fn plus(self, more: Totals) -> Totals {
        Totals {
            at_once: self.at_once + more.at_once,
            demand_milli: self.demand_milli + more.demand_milli,
            wanted: self.wanted + more.wanted,
            waiting: self.waiting + more.waiting,
            out: self.out + more.out,
        }
    }

    pub(super) fn less(self, fewer: Totals) -> Totals {
        Totals {
            at_once: self.at_once - fewer.at_once,
            demand_milli: self.demand_milli - fewer.demand_milli,
            wanted: self.wanted - fewer.wanted,
            waiting: self.waiting - fewer.waiting,
            out: self.out - fewer.out,
        }
    }
}

/// Sums of what sharing sessions take, want, wait for and hold, at most [`u64::MAX`] each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) struct SaturatedTotals {
    pub(in crate::pool) demand_milli: u64,
    pub(in crate::pool) wanted: u64,
    pub(in crate::pool) waiting: u64,
    pub(in crate::pool) out: u64,
}

impl From<Totals> for SaturatedTotals {
    fn from(totals: Totals) -> Self {
        let Totals { demand_milli, wanted, waiting, out, at_once: _ } = totals;
        let [demand_milli, wanted, waiting, out] = [demand_milli, wanted, waiting, out].map(saturated);
        SaturatedTotals { demand_milli, wanted, waiting, out }
    }
}

pub(super) fn saturated(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}
