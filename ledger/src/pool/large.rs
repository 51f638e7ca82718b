//! The first waiting call of a session, where it takes more than the session is lent at a time. Parts of such calls at
//! several sessions would serve none of them, and idle. So a node is lent all that its call lacks, or nothing.
//!
//! One of these calls has the turn: a call that its session's share has paid for since the session was last lent
//! something, of these the one of the highest priority, and of these the one that has waited longest. What it lacks is kept
//! for it. No call waits for the turn of a session that is silent, and no turn lasts for longer than the limit takes to
//! lend all of itself, and the call.

use super::Pool;
use super::ages::KEPT_POLLS;
use super::claims::poll;
use super::family::Place;
use super::greed::RTT_MAX;
use crate::pacing::credit_max;
use crate::rule::{Pace, THOUSAND_SECONDS};
use crate::sizing::{self, Claim, Peers, Supply};
use lessor_protocol::{Ask, Moment};
use std::cmp::Reverse;
use std::time::Duration;

/// The call that has the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LargeCall {
    place: Place,
    /// Permits that it lacks.
    lacks: u64,
    /// Priority of its session, and when that was last lent anything.
    rank: (u64, Reverse<Moment>),
    /// By then its session has asked again, or its callers no longer wait.
    until: Moment,
    /// When its turn is over in any case.
    ends: Moment,
}

/// What can be lent for a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForCall {
    /// Permits that the session would be lent otherwise.
    pub(super) sized: u64,
    /// Permits that the session may be lent at most.
    pub(super) wants: u64,
    /// Time since the session was last lent any, and the time in which its share pays for what the call lacks beyond that.
    pub(super) since: Duration,
    pub(super) pays_in: Duration,
    /// Permits that could be lent to the session if it shared with no other of its priority, and its share of them.
    pub(super) available: u64,
    pub(super) part: u64,
    /// Whether all sessions can have what they need.
    pub(super) is_abundant: bool,
    /// Permits that the pools below lend at most.
    pub(super) below: u64,
}

impl Pool {
    /// Returns how long credit is saved up for `place` while the pool eases off. A session asks once in its term, which is
    /// longer if the session is far away.
    pub(super) fn saves_for(&self, place: Place) -> Duration {
        self.term.max(self.sessions[place].term)
    }

    /// Returns what `ask` lacks for its first waiting call, if the call is larger than `pace` ever saves up and all
    /// that it lacks is there. Of a root: it is put away after each exchange, and nothing has a turn there.
    pub(super) fn lacks_for_large(&self, place: Place, ask: &Ask, pace: Option<Pace>) -> u64 {
        let lacks = ask.largest.saturating_sub(ask.held);
        let is_large = pace.is_some_and(|pace| ask.largest > credit_max(pace, self.saves_for(place)));
        let waits = ask.waiting >= lacks.max(1);
        if self.plan.is_root && is_large && waits && self.left() >= lacks { lacks } else { 0 }
    }

    /// Returns what a session with `claim` may hold unspent for its first waiting call: what that call takes, up to the
    /// session's share of the whole limit.
    pub(super) fn saves_up(&self, ask: &Ask, claim: Claim, others: Peers<'_, Place>, supply: Supply) -> u64 {
        if ask.waiting < ask.largest {
            return 0;
        }
        ask.largest.min(sizing::part_of_all(claim, others, supply.sustained, self.ceiling()))
    }

    /// Returns the permits that are kept from `place` for the call of another session that has the turn.
    pub(super) fn kept_for_large(&self, place: Place) -> u64 {
        self.turn_of_other(place).map_or(0, |call| call.lacks)
    }

    /// Returns the call of another session that has the turn before `place`.
    fn turn_of_other(&self, place: Place) -> Option<LargeCall> {
        let call = self.excess_demand.large.filter(|call| call.place != place)?;
        let lasts =
            self.now < call.until.min(call.ends) && self.sessions[place].share.priority <= call.rank.0;
        lasts.then_some(call)
    }

    /// Whether the first call of `ask` may have a turn. While more is wanted than comes back, a call of more than half of the
    /// limit has none: others would have nothing for a whole window.
    fn has_turns(&self, ask: &Ask) -> bool {
        let demand = self.sessions.draws().demand_milli.saturating_add(ask.demand_milli);
        ask.largest <= self.ceiling() / 2 || demand <= self.ledgers.sustained(THOUSAND_SECONDS)
    }

    /// Returns what to lend for `ask`, whose first call lacks more than it would be lent otherwise. If that is all that the
    /// call lacks, also returns from when on the session accrues its share once it is lent that. Notes whose turn it is. The
    /// turn ends when the call is lent: another pool of the family may not have as much yet.
    pub(super) fn for_first_call(
        &mut self,
        place: Place,
        ask: &Ask,
        lends: ForCall,
    ) -> (u64, Option<Moment>) {
        let ForCall { sized, wants, since, pays_in, available, part, is_abundant, below } = lends;
        let own = self.excess_demand.large.filter(|call| call.place == place);
        let lacks = ask.largest.saturating_sub(ask.held);
        let may_wait = lacks <= wants && ask.waiting >= lacks && self.has_turns(ask);
        // A limit below gathers first. What is kept here before it can lend the call idles.
        if !may_wait || below < lacks || self.sessions[place].is_unproven || self.plan.is_root {
            self.end_turn_of(place);
            return (sized, None);
        }
        // A new session has accrued nothing. A turn that lasts for too long ends: another pool of the family may keep the
        // permits for another call.
        let (now, is_new) = (self.now, self.sessions[place].lent == Moment::ORIGIN);
        let since = if is_new { Duration::ZERO } else { since };
        let has_ended = own.is_some_and(|call| call.ends <= now);
        if has_ended {
            self.end_turn_of(place);
        }
        if is_new || has_ended {
            self.sessions.note(place, |session| session.lent = now);
        }
        let ends = own.filter(|_| !has_ended).map(|call| call.ends);
        let session = &self.sessions[place];
        let rank = (session.share.priority, Reverse(session.lent));
        // The call gathers what it lacks before its share has paid for it, so it waits for no longer than that.
        let gathers_in = self.ledgers.span(lacks.saturating_sub(available));
        let is_paid = since.saturating_add(gathers_in) >= pays_in || part >= lacks;
        let other = self.turn_of_other(place);
        let has_turn = is_paid && other.is_none_or(|call| call.rank < rank);
        let kept = other.filter(|_| !has_turn).map_or(0, |call| call.lacks);
        let is_there = (has_turn || is_abundant) && available.saturating_sub(kept) >= lacks;
        // What is lent at once takes the turn of no other call, for which more has gathered.
        let live = self.excess_demand.large.filter(|call| now < call.until.min(call.ends));
        let displaces = live.is_some_and(|call| call.place != place);
        if has_turn && !(is_there && displaces) {
            let until = self.now + KEPT_POLLS * poll(self.term) + session.rtt.min(RTT_MAX);
            let longest = self.ledgers.span(self.ceiling().saturating_add(lacks));
            let ends = ends.unwrap_or(self.now + longest);
            self.excess_demand.large = Some(LargeCall { place, lacks, rank, until, ends });
        }
        if is_there {
            // What it accrued while its call gathered is not lost: it counts for the next call.
            return (lacks, Some(self.now.before(since.saturating_sub(pays_in).min(pays_in))));
        }
        // An earlier version of a region does not say that it lends on. No node has fewer permits waited for than its first
        // call takes.
        (if ask.lends_on || ask.waiting < ask.largest { sized } else { 0 }, None)
    }

    /// Ends the turn of `place`, if its call has the turn.
    pub(super) fn end_turn_of(&mut self, place: Place) {
        if self.excess_demand.large.is_some_and(|call| call.place == place) {
            self.excess_demand.large = None;
        }
    }

    /// Notes what the first waiting call of `place` still lacks after `ask` was answered with `granted` permits. A pool
    /// that leases reports the largest lack with its next ask. A session's earlier lack is replaced: much may have come
    /// since, and no pool lets a call through that seems to lack more than its callers wait for.
    pub(super) fn note_large_call(&mut self, place: Place, ask: &Ask, granted: u64) {
        let Some(borrower) = self.borrower.as_mut() else { return };
        let large = if ask.waiting > 0 { ask.largest } else { 0 };
        let lacks = large.saturating_sub(ask.held.saturating_add(granted));
        let others = borrower.lacks.filter(|(of, _)| *of != place);
        if others.is_none_or(|(_, most)| lacks > most) {
            borrower.lacks = (lacks > 0).then_some((place, lacks));
        }
    }
}
