//! What the background task tells whatever exports metrics: how much its pools did and how they stand, once a second, and how
//! long a call takes that it chooses now and then.

use super::Refiller;
use crate::local_pool::{CLOCK, LocalPool};
use crate::tally::TELL_EVERY;
use lessor_protocol::Moment;
use std::sync::Arc;
use std::time::Duration;

/// A call is chosen this often at most, of one pool after the other. More often would show more of what is rare, and each one
/// that is chosen waits for three readings of the clock.
const TIME_EVERY: Duration = Duration::from_millis(20);

/// When to tell next, and whom to choose.
#[derive(Debug, Default)]
pub(super) struct Tells {
    tells: Moment,
    times: Moment,
    turn: usize,
}

impl Refiller {
    /// Tells, if it is time. Returns when it is next, as long as there is anything to tell.
    pub(super) fn tell_in_time(&mut self) -> Moment {
        let now = CLOCK.now();
        if now >= self.tells.tells {
            self.tells.tells = now + TELL_EVERY;
            self.tell();
        }
        if self.known.is_empty() { Moment::NEVER } else { self.tells.tells }
    }

    /// Tells all that the pools did that it knows. Those that it does not know have done nothing since it let go of them.
    pub(super) fn tell(&self) {
        let plain = self.shared.plain_pools();
        for pool in &plain {
            pool.tally().begin();
        }
        for pool in self.known.iter().filter(|pool| !pool.is_forgotten()) {
            pool.count_up();
            pool.tally().add_now(pool.stands());
        }
        for pool in &plain {
            let fallen = self.shared.fallen().get(&pool.name().limit).copied();
            pool.tally().tell(fallen);
        }
    }

    /// Has the next call of one of `known` timed, if it is time, and tells what those took that were.
    pub(super) fn time_calls(&mut self, known: &[Arc<LocalPool>], now: Moment) {
        for pool in known {
            if let Some((took, admitted)) = pool.takes_timed() {
                pool.tally().timed(took, admitted);
            }
        }
        if now >= self.tells.times && !known.is_empty() {
            self.tells.times = now + TIME_EVERY;
            self.tells.turn = (self.tells.turn + 1) % known.len();
            known[self.tells.turn].time_next();
        }
    }
}
