//! Bounds on greedy sessions, while more is wanted than there is. A session holds no more than its share without
//! spending it, is lent nothing before the wait that it was told is over, and has no more turns than a session that is
//! farther away. Lending checks all three.

use super::Pool;
use super::claims::poll;
use super::family::Place;
use super::lend::millis_above;
use crate::rule::THOUSAND_SECONDS;
use crate::sizing::{self, Claim, Peers, Supply};
use lessor_protocol::sizing::lasts;
use lessor_protocol::{Ask, Moment};
use std::time::Duration;

/// Number of terms for which a session may hold more than its share without spending as much, while more is wanted than
/// there is.
const HELD_TERMS: u32 = 8;

/// Part of its wait, a hundredth, by which a node may ask early: clocks drift by less.
const WAIT_SLACK: u32 = 100;

/// Further time by which a node may ask early: the wire carries waits in milliseconds.
const MILLISECOND: Duration = Duration::from_millis(1);

/// Longest round trip for which nearer sessions leave turns to a distant one: half way around the earth, with room.
pub(super) const RTT_MAX: Duration = Duration::from_millis(500);

/// Longest time, in round trips of the farthest session, that a nearer one waits for the others to have had a permit.
const ROUND_RTTS: u32 = 4;

/// The longest round trip of the sessions of the highest priority that lately found too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Farthest {
    pub(super) priority: u64,
    pub(super) rtt: Duration,
    /// By then the session has asked again, or wants nothing.
    pub(super) until: Moment,
}

impl Pool {
    /// Notes how far away the session at `place` is, if it holds nothing and found too little: `permits` are to be lent for
    /// `ask`. A session may say any round trip, but asks no sooner than a round trip after an answer. Where that is short
    /// beside a poll, all sessions ask equally often. Permits of a pool that leases are on their way from above. A root is
    /// put away after each exchange.
    pub(super) fn note_distance(&mut self, place: Place, ask: &Ask, permits: u64) {
        let (session, now) = (&self.sessions[place], self.now);
        let rtt = session.rtt.min(RTT_MAX).min(now.since(session.answered));
        let lacks = permits < ask.want && session.outstanding == 0 && !session.is_unproven;
        if !lacks || rtt <= poll(self.term) / 2 || self.plan.is_root || self.plan.is_borrowed {
            return;
        }
        let (priority, until) = (session.share.priority, now + 2 * session.term + rtt);
        let known = self.excess_demand.farthest;
        if (priority, rtt) >= (known.priority, known.rtt) || known.until <= now {
            self.excess_demand.farthest = Farthest { priority, rtt, until };
        }
    }

    /// Returns for how long the share of the session at `place` accrues at most: a term, or the time between two asks of a
    /// distant session that has reported before.
    pub(super) fn accrues_for(&self, place: Place) -> Duration {
        let session = &self.sessions[place];
        let between =
            if session.is_unproven { self.term } else { poll(self.term) + session.rtt.min(RTT_MAX) };
        self.term.max(between)
    }

    /// Returns how long after its last grant `place` has its turn at a single permit, where `sessions` share `left` permits.
    /// A session asks again a poll and a round trip after an answer. One that is nearer than another would have more turns
    /// than that one, and find each permit first: it waits until all sessions could have had a permit. While there is one
    /// for each of them, or half of the most that there can be, it leaves none to others.
    pub(super) fn turn(&self, place: Place, sessions: u64, left: u64) -> Duration {
        let (poll, session) = (poll(self.term), &self.sessions[place]);
        let Farthest { priority, rtt, until } = self.excess_demand.farthest;
        let is_distant = rtt.saturating_sub(session.rtt) <= rtt / 2;
        let is_enough = left >= sessions.min((self.ceiling() / 2).max(2));
        if until <= self.now || session.share.priority > priority || is_distant || is_enough {
            return poll;
        }
        let a_round = lasts(sessions, self.ledgers.sustained(THOUSAND_SECONDS));
        a_round.min(ROUND_RTTS * rtt).max(poll)
    }

    /// Returns how many more permits `place` may hold, and whether it hoards: it has long held more than its share
    /// without spending it, and more than it saves up for its first call. A session that spends as much as it holds
    /// within a term is not bounded.
    pub(super) fn may_hold(
        &self,
        place: Place,
        ask: &Ask,
        claim: Claim,
        others: Peers<'_, Place>,
        supply: Supply,
    ) -> (u64, bool) {
        let session = &self.sessions[place];
        let held_for = self.now.since(session.turned_over.0);
        if held_for <= self.term || self.plan.is_root {
            return (u64::MAX, false);
        }
        let held = session.outstanding;
        // More comes from above as soon as more is wanted: permits held here are wanted by others only if all are.
        let wanted = if self.plan.is_borrowed { held } else { 0 };
        let most = sizing::may_hold(claim, others, supply.within_term.saturating_add(wanted), held - wanted);
        let most = most.unwrap_or(u64::MAX).max(self.saves_up(ask, claim, others, supply));
        (most.saturating_sub(held), held > most && held_for > self.term * HELD_TERMS)
    }

    /// Ends all waits that sessions were told before: an operator has changed what they were told of. An answer of this
    /// very moment was given before: the pool's time stands still while requests arrive in another order than they were
    /// dated.
    pub(super) fn end_waits(&mut self) {
        if !self.sessions.is_empty() {
            self.excess_demand.waits_ended = self.now + Duration::from_nanos(1);
        }
    }

    /// Returns when all waits that sessions were told before ended.
    pub(super) fn waits_ended(&self) -> Moment {
        self.excess_demand.waits_ended
    }

    /// Returns the rest of the wait that `place` was told with its last answer, unless all earlier waits ended at
    /// `ended`: an ask before its end gains nothing. A root enforces no wait: allocators ask it for their nodes, and it
    /// keeps no answers.
    pub(super) fn told_wait(&self, place: Place, ended: Moment) -> Option<Duration> {
        let session = &self.sessions[place];
        if session.answered < ended {
            return None;
        }
        let told = session.told.ask_after();
        let left = told.saturating_sub(self.now.since(session.answered));
        let is_early = left > told / WAIT_SLACK + MILLISECOND && !self.plan.is_root;
        is_early.then(|| millis_above(left))
    }
}
