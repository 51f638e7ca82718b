//! A pool below others: `user` under `tenant` under `vendor`. A permit is charged to all of them or to none. Limits
//! pass the pools above with each exchange; a pool keeps no pointer to another.
//!
//! Every ancestor keeps, for each session of a pool below it, a session of its own that mirrors it. The mirror has the same
//! permits out until the same end. It wants what the pools below can lend of what its session wants. So each ancestor has
//! the ends of all leases below it in its one queue. It is advanced piecewise over each of these ends, in order, whichever
//! session asks. It shares what it has among all sessions below it, and its books say what its children lent. A child burns
//! a lease at the same instant as all its mirrors.

use super::ages::{Age, KEPT_POLLS};
use super::claims::poll;
use super::greed::RTT_MAX;
use super::session::Session;
use super::session::Settlement;
use super::{Pool, SessionId};
use crate::packed::Carrier;
use crate::share::Share;
use crate::sizing::{self, Claim, Supply};
use lessor_protocol::sizing::PERMIT;
use lessor_protocol::{Ask, Grant, InFlight};
use std::sync::atomic::{AtomicU64, Ordering};

/// Holder of a lease: a session of this pool, or of a pool below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Number of the pool below; 0 for the pool itself.
    below: u64,
    session: SessionId,
}

impl Place {
    /// Returns the place of a session that asks this pool itself.
    pub(super) fn own(session: SessionId) -> Self {
        Place { below: 0, session }
    }

    /// Returns the place of a session that asks the pool numbered `pool` below.
    pub(super) fn below(pool: u64, session: SessionId) -> Self {
        Place { below: pool, session }
    }

    /// Carries every field.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.number(&mut self.below);
        carrier.number(&mut self.session.0);
    }

    /// Returns the session.
    pub(super) fn session(self) -> SessionId {
        self.session
    }

    /// Whether the place mirrors the lease of a pool below.
    pub(super) fn is_mirror(self) -> bool {
        self.below > 0
    }
}

/// Number of the next pool. It tells pools apart in the pools above them; nothing but their order depends on it.
static MADE: AtomicU64 = AtomicU64::new(1);

/// Returns the number of a new pool.
pub(super) fn number() -> u64 {
    MADE.fetch_add(1, Ordering::Relaxed)
}

/// A pool above another, with the share that the asking session has there. The nearest pool comes first.
#[derive(Debug)]
pub struct Above<'a> {
    /// The pool.
    pub pool: &'a mut Pool,
    /// Share of the session, from that limit's configuration.
    pub share: Share,
}

impl Pool {
    /// Whether the pool has the mirror `place`. A mirror that was forgotten had nothing out: no settlement concerns it.
    pub(super) fn mirrors(&self, place: Place) -> bool {
        self.sessions.contains(place)
    }

    /// Applies `settlement` of `ask` to the mirror of `session`, which asks a pool below. A forgotten mirror had
    /// nothing out, and burned permits no longer come back here: it starts over.
    pub(super) fn mirror(&mut self, place: Place, session: &Session, ask: &Ask, settlement: &Settlement) {
        if !self.mirrors(place) {
            let mut newcomer = self.newcomer(*session.share);
            // The mirror goes by the same deadline as its session.
            newcomer.end = newcomer.end.max(session.end);
            newcomer.is_unproven = session.is_unproven;
            newcomer.spent = session.spent.saturating_sub(settlement.spent + settlement.spent_late);
            self.add_mirror(place, newcomer);
        }
        let mirror = &self.sessions[place];
        let known = mirror.known_part(settlement);
        self.settle_by(place, ask, &known);
    }

    /// Orphans the running calls of `place`, whose session is new to the pool below. That pool may have forgotten the
    /// session before its calls in flight here end.
    pub(super) fn orphan_running_calls(&mut self, place: Place) {
        if self.sessions.contains(place) {
            let now = self.now;
            self.update_calls(place, |calls, longest| calls.orphan_running(now, longest));
        }
    }

    /// Returns `ask` of `place` as the pools above remember it: of what the session takes and waits for, what this pool can
    /// lend it by weighted max-min. The pools above would keep the rest from other sessions, and lend it to none. A pool that
    /// leases is lent more by the one above for what its sessions want.
    pub(super) fn lendable_of(&mut self, place: Place, ask: Ask) -> Ask {
        if self.plan.is_borrowed || self.flow.is_some() || self.ledgers.are_reusable() {
            return ask;
        }
        let share = *self.sessions[place].share;
        let claim = |queue| Claim { share, ..self.sessions.ages().claim_to(ask.demand_milli, queue) };
        let all = claim(ask.waiting);
        let soon = self.lends_soon(place);
        if self.sessions.claims().needs() + u128::from(all.need) <= u128::from(soon) {
            return ask;
        }
        let (term, sustained) = (self.term, self.sustained());
        let supply =
            Supply { left: soon, stock: soon, soon: 0, within_term: soon, sustained, term, poll: poll(term) };
        let (others, supply, _) = self.peers(share, supply);
        let spends = claim(0);
        // A limit of an hour can lend much now, and little on average.
        let now = u128::from(supply.within_term) * PERMIT;
        let demand = sizing::share_of(spends, others, supply.sustained.max(now));
        let demand_milli = u128::from(ask.demand_milli).saturating_mul(demand).div_ceil(spends.mean.max(1));
        let demand_milli = u64::try_from(demand_milli).unwrap_or(ask.demand_milli);
        let now = sizing::share_of(all, others, now);
        // Parts of a permit add up: one claim in so many has a whole one.
        let is_less = now < u128::from(ask.waiting) * PERMIT;
        let now = if is_less { now + self.excess_demand.unclaimed } else { now };
        let permits = u64::try_from(now / PERMIT).unwrap_or(u64::MAX);
        let (waiting, want) = (ask.waiting.min(permits), ask.want.min(permits));
        if is_less {
            self.excess_demand.unclaimed = now - u128::from(waiting) * PERMIT;
        }
        Ask { demand_milli, waiting, want, ..ask }
    }

    /// Returns the permits that can be lent within a term, or once the next window begins if `place` asks again after that.
    fn lends_soon(&self, place: Place) -> u64 {
        let back = KEPT_POLLS * poll(self.term) + self.sessions[place].rtt.min(RTT_MAX);
        let begins = self.lease_end().is_some_and(|end| end.since(self.now) <= back);
        let most = if begins { self.ceiling() } else { self.ledgers.within(self.term) };
        most.saturating_sub(self.reserve())
    }

    pub(super) fn fall_silent(&mut self, place: Place, seq: u64) {
        self.end_turn_of(place);
        if self.sessions.contains(place) {
            self.sessions.update(place, |session| {
                (session.seq, session.demand_milli, session.waiting, session.wanted) = (seq, 0, 0, 0);
                (session.has_left, session.age) = (true, Age::Gone);
            });
            // The session no longer reports its calls in flight: they were spent by now.
            self.orphan_calls(place, 0, self.now);
        }
        self.foresee_silence();
    }
}

/// Returns `ask` as it is remembered while the session is lent nothing by decision: it keeps nothing from others.
pub(super) fn claims_nothing(ask: Ask) -> Ask {
    Ask { demand_milli: 0, waiting: 0, want: 0, ..ask }
}

/// Combines what two pools grant to the same ask: the lesser in every respect.
pub(super) fn least(a: Grant, b: Grant) -> Grant {
    let is_scarce = |grant: Grant| !grant.ask_after.is_zero();
    Grant {
        kept: a.kept.min(b.kept),
        permits: a.permits.min(b.permits),
        term: a.term.min(b.term),
        horizon: a.horizon.min(b.horizon),
        ceiling: a.ceiling.min(b.ceiling),
        ask_after: a.ask_after.max(b.ask_after),
        retry_after: match (is_scarce(a), is_scarce(b)) {
            // `None` of a scarce grant means never.
            (true, true) => a.retry_after.zip(b.retry_after).map(|(a, b)| a.max(b)),
            (false, _) => b.retry_after,
            (true, false) => a.retry_after,
        },
        rate: a.rate,
        in_flight: match (a.in_flight, b.in_flight) {
            (Some(a), Some(b)) => Some(InFlight {
                longest: a.longest.max(b.longest),
                hold: a.hold.zip(b.hold).map(|(a, b)| a.min(b)),
            }),
            // Where another rule is promised too, no permit is spent again.
            (cap, None) | (None, cap) => cap.map(|cap| InFlight { hold: None, ..cap }),
        },
    }
}
