//! Sessions that count from zero again, though they are known. A node forgets a pool that it holds nothing of and has told all
//! of, and a caller uses the pool once more. The session of the node goes on, for the sake of all other pools.

use super::Pool;
use super::family::{Above, Place};
use super::session::Session;
use lessor_protocol::Ask;

impl Pool {
    /// Lets the session at `place` count from zero if that is what `ask` does, here and where it is `mirror` above. What it may
    /// have in flight goes on to count.
    pub(super) fn reset_sessions(&mut self, place: Place, above: &mut [Above<'_>], mirror: Place, ask: &Ask) {
        if self.sessions.get(place).is_some_and(|session| session.comes_back(ask)) {
            self.reset_totals(place);
            above.iter_mut().for_each(|above| above.pool.reset_totals(mirror));
        }
    }

    fn reset_totals(&mut self, place: Place) {
        self.orphan_running_calls(place);
        if self.sessions.contains(place) {
            self.sessions.update(place, Session::reset_totals);
        }
    }
}

impl Session {
    /// Whether `ask` is from a session that has forgotten all: it claims nothing, its totals would fall, and nothing is out. It
    /// is no old copy: old copies have old numbers.
    fn comes_back(&self, ask: &Ask) -> bool {
        let Ask { spent_total, held, running, unguarded, shadow_refused, .. } = *ask;
        let claims = [spent_total, held, running.unwrap_or(0), unguarded, shadow_refused];
        let falls = self.spent > 0 || self.said.shadow_refused > 0;
        claims == [0; 5] && falls && self.outstanding == 0 && self.turn.lent.charged().cap == 0
    }
}
