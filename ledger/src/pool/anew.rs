//! Sessions that count from zero again, though they are known. A node forgets a pool that it holds nothing of and has told all
//! of, and a caller uses the pool once more. The session of the node goes on, for the sake of all other pools.

use super::Pool;
use super::family::{Above, Place};
use super::session::Session;
use lessor_protocol::Ask;

impl Pool {
    /// Lets the session at `place` count from zero if that is what `ask` does, here and where it is `mirror` above. What it may
    /// have in flight goes on to count.
    pub(super) fn count_anew(&mut self, place: Place, above: &mut [Above<'_>], mirror: Place, ask: &Ask) {
        if self.sessions.get(place).is_some_and(|session| session.comes_back(ask)) {
            self.begin_from_zero(place);
            above.iter_mut().for_each(|above| above.pool.begin_from_zero(mirror));
        }
    }

    fn begin_from_zero(&mut self, place: Place) {
        self.begin_anew(place);
        if self.sessions.contains(place) {
            self.sessions.update(place, Session::begin_from_zero);
        }
    }
}

impl Session {
    /// Whether `ask` is from a session that has forgotten all: it claims nothing, its totals would fall, and nothing is out. It
    /// is no old copy: old copies have old numbers.
    fn comes_back(&self, ask: &Ask) -> bool {
        let Ask { spent_total, held, running, unguarded, shadow_refused, .. } = *ask;
        let claims = [spent_total, held, running.unwrap_or(0), unguarded, shadow_refused];
        let falls = self.spent > 0 || self.shadow_refused > 0;
        claims == [0; 5] && falls && self.outstanding == 0 && self.turn.lent.charged().cap == 0
    }
}
