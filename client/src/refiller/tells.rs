//! What the background task tells whatever exports metrics: how much its pools did and how they stand, once a second, and how
//! long a call takes that it chooses now and then.

use super::Refiller;
use crate::local_pool::{CLOCK, LocalPool};
use crate::tally::{TELL_EVERY, Tally};
use lessor_protocol::{Fallback, Moment};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A call is chosen this often at most, of one pool after the other. More often would show more of what is rare, and each one
/// that is chosen waits for three readings of the clock.
const TIME_EVERY: Duration = Duration::from_millis(20);

/// Pools whose next call is to be timed and has not come yet, at most: of many keys most are not called again soon, and to look
/// at each of them all the time would be work for nothing. What an older one finds is not told.
const MARKED_MAX: usize = 64;

/// When to tell next, and whom to choose.
#[derive(Debug, Default)]
pub(super) struct Tells {
    tells: Moment,
    times: Moment,
    turn: usize,
    marked: VecDeque<Weak<LocalPool>>,
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

    /// What limits that are in fallback do, by where that is told: some may be told of together.
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

    /// Has the next call of one of `known` timed, if it is time, and tells what those took that were.
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
