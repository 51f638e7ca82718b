//! What of one pool is in its limit's tally: the background task puts it there now and then, out of what the slot and the
//! books know anyway, so that no call counts anything for it.

use super::{CLOCK, LocalPool, UNKNOWN};
use crate::tally::{Now, Tally, Totals};
use lessor_protocol::Moment;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

impl LocalPool {
    pub(crate) fn tally(&self) -> &Tally {
        &self.cold.tally
    }

    pub(crate) fn shared_tally(&self) -> Arc<Tally> {
        self.cold.tally.clone()
    }

    /// Adds to the tally what has happened since this was last done. The background task does, before it lets go of a pool.
    pub(crate) fn count_up(&self) {
        // Numbers: no panic can have left them half changed.
        let mut counted = self.cold.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = self.totals();
        self.tally().add(totals.since(*counted));
        *counted = totals.max(*counted);
    }

    fn totals(&self) -> Totals {
        // Refusals first: of those the ones that came to something else are taken off, which may be more by then.
        let refused = self.slot().refused();
        Totals {
            admitted: self.refill().admitted(self.slot()),
            refused,
            shadow: self.shadow_refused(),
            fallback: self.fallback_passed(),
            vendor_refused: self.vendor_refused(),
        }
    }

    /// The allocator has answered: the pool has so many permits `left`, and a window of so long, if it said so. `waits` says whether
    /// it brought nothing, or told to wait for more.
    pub(crate) fn answered(&self, left: Option<u64>, window_ms: Option<u64>, waits: bool) {
        self.cold.left.store(left.unwrap_or(UNKNOWN), Ordering::Relaxed);
        self.cold.window_ms.store(window_ms.unwrap_or(0), Ordering::Relaxed);
        // One that does not know what there is says nothing of what others get.
        let told_to_wait = u32::from(waits && left.is_some());
        self.cold.told_to_wait.fetch_add(told_to_wait, Ordering::Relaxed);
        self.cold.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Permits that the pool had left at its last answer, if it said so.
    pub(crate) fn reported_left(&self) -> Option<u64> {
        Some(self.cold.left.load(Ordering::Relaxed)).filter(|left| *left != UNKNOWN)
    }

    /// The window of the rule with the least limit, if the allocator told one.
    pub(crate) fn window(&self) -> Option<Duration> {
        let millis = self.cold.window_ms.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// How often the allocator has answered.
    pub(crate) fn answers(&self) -> u32 {
        self.cold.answers.load(Ordering::Relaxed)
    }

    /// How often it has answered that what it has left is not for this process now.
    pub(crate) fn told_to_wait(&self) -> u32 {
        self.cold.told_to_wait.load(Ordering::Relaxed)
    }

    /// The lease was extended, by the answer to an ask that was first sent at `first_sent`.
    pub(crate) fn leased(&self, first_sent: Moment) {
        self.cold.leased.store(first_sent.as_nanos(), Ordering::Relaxed);
    }

    /// How things stand.
    pub(crate) fn stands(&self) -> Now {
        let now = CLOCK.now();
        let leased = Moment::from_nanos(self.cold.leased.load(Ordering::Relaxed));
        let is_live = now < self.slot().deadline();
        Now {
            available: self.there_at(now),
            waiting: self.slow_path().queued(),
            lease_age: if is_live { now.since(leased) } else { Default::default() },
        }
    }
}
