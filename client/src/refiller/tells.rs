//! What the background task passes to the exporter of metrics: once a second the counts and figures of its pools, and
//! the duration of a call that it chooses now and then.

use super::Refiller;
use crate::local_pool::{CLOCK, LocalPool};
use crate::tally::{TELL_EVERY, Tally};
use lessor_protocol::{Fallback, Moment};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Shortest time between two calls that are chosen to be timed, of one pool after the other. A shorter time would show
/// more rare events, but each timed call waits for three readings of the clock.
const TIME_EVERY: Duration = Duration::from_millis(20);

/// Most pools whose next call is to be timed and has not come yet. Of many keys most are not called again soon, and
/// checking all of them each time would be useless work. The result of a pool beyond this number is dropped.
const MARKED_MAX: usize = 64;

/// When metrics are updated next, and which pools have a call timed.
#[derive(Debug, Default)]
pub(super) struct Tells {
    tells: Moment,
    times: Moment,
    turn: usize,
    marked: VecDeque<Weak<LocalPool>>,
}

impl Refiller {
    /// Updates the metrics if it is time. Returns when that is next, if any pool is known.
    pub(super) fn tell_in_time(&mut self) -> Moment {
        let now = CLOCK.now();
        if now >= self.tells.tells {
            self.tells.tells = now + TELL_EVERY;
            self.tell();
        }
        if self.known.is_empty() { Moment::NEVER } else { self.tells.tells }
    }

    /// Updates the metrics for all known pools. Unknown pools have done nothing since the task let go of them.
    pub(super) fn tell(&self) {
        let tallies = self.shared.tallies();
        for tally in &tallies {
            tally.begin();
        }
        for pool in self.known.iter().filter(|pool| !pool.is_forgotten()) {
            pool.count_up();
            pool.tally().add_now(pool.stands());
        }
        let fallen = self.fallen();
        for tally in &tallies {
            tally.publish(fallen.get(&Arc::as_ptr(tally)).copied());
        }
    }

    /// Returns the fallbacks of the limits that are in one, by tally: several limits may share a tally.
    fn fallen(&self) -> HashMap<*const Tally, Fallback> {
        let fallen = self.shared.fallen().clone();
        if fallen.is_empty() {
            return HashMap::new();
        }
        let plain = self.shared.plain_pools();
        let fallen = plain.iter().filter_map(|pool| {
            let fallback = *fallen.get(&pool.name().limit)?;
            Some((std::ptr::from_ref(pool.tally()), fallback))
        });
        fallen.collect()
    }

    /// Records the durations of calls that were timed and, if it is time, has the next call of one of `known` timed.
    pub(super) fn time_calls(&mut self, known: &[Arc<LocalPool>], now: Moment) {
        let Tells { times, turn, marked, .. } = &mut self.tells;
        marked.retain(|pool| {
            let Some(pool) = pool.upgrade() else { return false };
            let timed = pool.takes_timed();
            if let Some((took, admitted)) = timed {
                pool.tally().timed(took, admitted);
            }
            timed.is_none()
        });
        if now < *times || known.is_empty() {
            return;
        }
        *times = now + TIME_EVERY;
        *turn = (*turn + 1) % known.len();
        let pool = &known[*turn];
        pool.time_next();
        if marked.iter().all(|marked| marked.as_ptr() != Arc::as_ptr(pool)) {
            marked.push_back(Arc::downgrade(pool));
        }
        if marked.len() > MARKED_MAX {
            marked.pop_front();
        }
    }
}
