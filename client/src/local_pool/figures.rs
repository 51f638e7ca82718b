//! Adds one pool's totals to its limit's tally. The background task does so now and then, from counts that the slot and
//! the refill have anyway, so that no call counts anything for the tally.

use super::{CLOCK, Condition, LocalPool, UNKNOWN};
use crate::tally::{Now, Tally, Totals};
use lessor_protocol::Moment;
use lessor_protocol::lock_anyway::LockAnyway;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl LocalPool {
    pub(crate) fn tally(&self) -> &Tally {
        &self.cold.tally
    }

    pub(crate) fn shared_tally(&self) -> Arc<Tally> {
        self.cold.tally.clone()
    }

    /// Adds what has happened since the last time to the tally. The background task also calls it before it lets go of
    /// a pool.
    pub(crate) fn count_up(&self) {
        let mut counted = self.cold.counted.lock_anyway();
        let totals = self.totals();
        self.tally().add(totals.since(*counted));
        *counted = totals.max(*counted);
    }

    fn totals(&self) -> Totals {
        // Refusals are read first. Refusals that other counters have too are subtracted later, and their number may
        // have grown by then.
        let refused = self.slot().refused();
        Totals {
            admitted: self.refill().admitted(self.slot()),
            refused,
            shadow: self.shadow_refused(),
            fallback: self.fallback_passed(),
            vendor_refused: self.vendor_refused(),
        }
    }

    /// Notes an answer of the allocator: the permits `left` in the pool and the window in milliseconds, if it told
    /// them. `waits` says whether the answer brought nothing, or told to wait for more.
    pub(crate) fn answered(&self, left: Option<u64>, window_ms: Option<u64>, waits: bool) {
        self.cold.left.store(left.unwrap_or(UNKNOWN), Ordering::Relaxed);
        self.cold.window_ms.store(window_ms.unwrap_or(0), Ordering::Relaxed);
        // An allocator that does not know what is left says nothing about other nodes.
        let told_to_wait = u32::from(waits && left.is_some());
        self.cold.told_to_wait.fetch_add(told_to_wait, Ordering::Relaxed);
        self.cold.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Permits that the pool had left at its last answer, if the answer told them.
    pub(crate) fn reported_left(&self) -> Option<u64> {
        Some(self.cold.left.load(Ordering::Relaxed)).filter(|left| *left != UNKNOWN)
    }

    /// Returns the window of the rule with the least limit, if the allocator told one.
    pub(crate) fn window(&self) -> Option<Duration> {
        let millis = self.cold.window_ms.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// Number of answers of the allocator, wrapping.
    pub(crate) fn answers(&self) -> u32 {
        self.cold.answers.load(Ordering::Relaxed)
    }

    /// Number of answers that told what is left but brought nothing, or told to wait; wrapping.
    pub(crate) fn told_to_wait(&self) -> u32 {
        self.cold.told_to_wait.load(Ordering::Relaxed)
    }

    /// Notes that the answer to an ask first sent at `first_sent` extended the lease.
    pub(crate) fn leased(&self, first_sent: Moment) {
        self.cold.leased.store(first_sent.as_nanos(), Ordering::Relaxed);
    }

    /// Returns the current figures of the pool; none once the client is closed, although callers may still be about to
    /// leave the line.
    pub(crate) fn stands(&self) -> Now {
        if self.condition() == Condition::Closed {
            return Now::default();
        }
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
