//! Calls that take a large part of a limit. While a pool eases off, credit is kept for one term only, so such a call
//! would never get through although there is enough for it. While more is wanted than there is, a session saves up for
//! such a call out of its share.

use super::Pool;
use super::family::Place;
use crate::pacing::credit_max;
use crate::rule::Pace;
use crate::sizing::{self, Claim, Peers, Supply};
use lessor_protocol::Ask;
use std::time::Duration;

impl Pool {
    /// Returns how long credit is saved up for `place` while the pool eases off. A session asks once in its term, which is
    /// longer if the session is far away.
    pub(super) fn saves_for(&self, place: Place) -> Duration {
        self.term.max(self.sessions[place].term)
    }

    /// Returns what `ask` lacks for its first waiting call, if the call is larger than `pace` ever saves up and all
    /// that it lacks is there.
    pub(super) fn lacks_for_large(&self, place: Place, ask: &Ask, pace: Option<Pace>) -> u64 {
        let lacks = ask.largest.saturating_sub(ask.held);
        let is_large = pace.is_some_and(|pace| ask.largest > credit_max(pace, self.saves_for(place)));
        let waits = ask.waiting >= lacks.max(1);
        if is_large && waits && self.left() >= lacks { lacks } else { 0 }
    }

    /// Returns what a session with `claim` may hold unspent for its first waiting call: what that call takes, up to the
    /// session's share of the whole limit.
    pub(super) fn saves_up(&self, ask: &Ask, claim: Claim, others: Peers<'_, Place>, supply: Supply) -> u64 {
        if ask.waiting < ask.largest {
            return 0;
        }
        ask.largest.min(sizing::part_of_all(claim, others, supply.sustained, self.ceiling()))
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
