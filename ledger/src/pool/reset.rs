//! Known sessions that count from zero again. A node forgets a pool once it holds nothing of it and has reported
//! everything; then a caller uses the pool again. The node's session goes on, for the sake of all other pools. And
//! sessions that might count from zero although not everything was reported: the pool does not go on with these.

use super::Pool;
use super::family::{Above, Place};
use super::session::Session;
use lessor_protocol::{Ask, Moment};

impl Pool {
    /// Lets the session at `place` count from zero if `ask` does, here and where it is `mirror` above. Calls that it
    /// may have in flight still count.
    pub(super) fn reset_sessions(&mut self, place: Place, above: &mut [Above<'_>], mirror: Place, ask: &Ask) {
        if self.sessions.get(place).is_some_and(|session| session.comes_back(ask)) {
            self.reset_totals(place);
            above.iter_mut().for_each(|above| above.pool.reset_totals(mirror));
        }
    }

    /// Goes on with none of its own sessions: each has to begin another one. What they hold, and what burned, stays charged.
    /// Another pool answers for this one from now on, and lets sessions count from zero.
    pub fn disown_sessions(&mut self, now: Moment) {
        self.advance(now);
        let own: Vec<(Place, u64)> = self
            .sessions
            .iter()
            .filter(|(place, _)| *place == Place::own(place.session()))
            .map(|(place, session)| (place, session.seq))
            .collect();
        own.into_iter().for_each(|(place, seq)| self.fall_silent(place, seq));
        self.audit();
    }

    fn reset_totals(&mut self, place: Place) {
        self.orphan_running_calls(place);
        if self.sessions.contains(place) {
            self.sessions.update(place, Session::reset_totals);
        }
    }
}

impl Session {
    /// Whether `ask` is from a session that has forgotten the pool: it claims nothing, its totals would fall, and
    /// nothing is out. It is no old copy of an ask: old copies have old sequence numbers.
    fn comes_back(&self, ask: &Ask) -> bool {
        let Ask { spent_total, held, running, unguarded, shadow_refused, .. } = *ask;
        let claims = spent_total | held | running.unwrap_or(0) | unguarded | shadow_refused;
        let falls = self.spent > 0 || self.said.shadow_refused > 0;
        claims == 0 && falls && self.outstanding == 0 && self.turn.lent.charged().cap == 0
    }
}
