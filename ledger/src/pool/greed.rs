//! Bounds on greedy sessions, while more is wanted than there is. A session holds no more than its share without
//! spending it, and is lent nothing before the wait that it was told is over. Lending checks both.

use super::Pool;
use super::family::Place;
use super::lend::millis_above;
use crate::sizing::{self, Claim, Peers, Supply};
use std::time::Duration;

/// Number of terms for which a session may hold more than its share without spending as much, while more is wanted than
/// there is.
const HELD_TERMS: u32 = 8;

/// Part of its wait, a hundredth, by which a node may ask early: clocks drift by less.
const WAIT_SLACK: u32 = 100;

/// Further time by which a node may ask early: the wire carries waits in milliseconds.
const MILLISECOND: Duration = Duration::from_millis(1);

impl Pool {
    /// Returns how many more permits `place` may hold, and whether it hoards: it has long held more than its share without
    /// spending it. A session that spends as much as it holds within a term is not bounded.
    pub(super) fn may_hold(
        &self,
        place: Place,
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
        let most = sizing::may_hold(claim, others, supply.within_term.saturating_add(held));
        let most = most.unwrap_or(u64::MAX);
        (most.saturating_sub(held), held > most && held_for > self.term * HELD_TERMS)
    }

    /// Returns the rest of the wait that `place` was told with its last answer: an ask before its end gains nothing. A
    /// root enforces no wait: allocators ask it for their nodes, and it keeps no answers.
    pub(super) fn told_wait(&self, place: Place) -> Option<Duration> {
        let session = &self.sessions[place];
        let told = session.told.answer().grant().map_or(Duration::ZERO, |grant| grant.ask_after);
        let left = told.saturating_sub(self.now.since(session.answered));
        let is_early = left > told / WAIT_SLACK + MILLISECOND && !self.plan.is_root;
        is_early.then(|| millis_above(left))
    }
}
