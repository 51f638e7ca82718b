//! Calls in flight on one pool, for handles that hold permits until the call is over. Where the allocator does not
//! count calls in flight, such calls are ordinary spends.

use super::{CLOCK, LocalPool};
use crate::pace::Refill;
use crate::slot::Short;
use lessor_protocol::Moment;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl LocalPool {
    /// Spends `permits` on a call. Returns `true` if the allocator counts the call, which then ends with
    /// [`LocalPool::hand_back`] or [`LocalPool::lapse`]. Otherwise as [`LocalPool::take`].
    pub(crate) fn enter(&self, permits: u64, first: bool) -> Result<bool, Short> {
        if permits == 0 || !self.hot.counts_flights.load(Ordering::Acquire) {
            return self.take(permits, first).map(|()| false);
        }
        if !first && self.slow_path().has_line() {
            return Err(Short::Empty);
        }
        if self.is_paced() {
            self.hold_at_pace(permits, first, CLOCK.now())?;
            return Ok(self.enter_held(permits));
        }
        self.enter_from_slot(permits, first).map(|()| true)
    }

    /// As [`LocalPool::enter`], once no line is in the way and the allocator counts calls in flight.
    pub(super) fn enter_from_slot(&self, permits: u64, first: bool) -> Result<(), Short> {
        let mut refill = self.refill();
        // Read under the lock: a thread that waited for it past the end of the lease must not spend.
        let now = CLOCK.now();
        let entered = refill.enter(self.slot(), permits, now).map(|_| ());
        self.mind(refill, now);
        if entered.is_err() {
            self.collected_in_vain(permits, first);
        }
        entered
    }

    /// As [`LocalPool::enter`], but in shadow mode or fallback a call may pass without permits, and is then not
    /// counted.
    pub(crate) fn enter_or_pass(&self, permits: u64, first: bool) -> Result<bool, Short> {
        match self.enter(permits, first) {
            Err(_) if self.try_pass(permits, first) => Ok(false),
            entered => entered,
        }
    }

    /// As [`LocalPool::enter`], for permits that [`LocalPool::hold`] set aside.
    pub(crate) fn enter_held(&self, permits: u64) -> bool {
        if permits == 0 || !self.hot.counts_flights.load(Ordering::Acquire) {
            self.spend_held(permits);
            return false;
        }
        let mut refill = self.refill();
        let now = CLOCK.now();
        refill.enter_held(self.slot(), permits, now);
        self.mind(refill, now);
        true
    }

    /// Begins the call of the reservation `number`. Returns the permits that the call has to hand back, where the
    /// allocator counts calls in flight.
    pub(crate) fn enter_reserved(&self, number: u64) -> Option<u64> {
        if !self.hot.counts_flights.load(Ordering::Acquire) {
            self.settle(number);
            return None;
        }
        let mut refill = self.refill();
        let now = CLOCK.now();
        let entered = refill.enter_reserved(self.slot(), number, now);
        self.mind(refill, now);
        entered
    }

    /// Permits of this process's calls in flight, which hand them back when they end.
    pub(super) fn in_flight(&self) -> u64 {
        if !self.hot.counts_flights.load(Ordering::Acquire) {
            return 0;
        }
        let refill = self.refill();
        refill.calls().busy() + refill.calls().running().unwrap_or(0)
    }

    /// Ends a call with `permits` that [`LocalPool::enter`] counted.
    pub(crate) fn hand_back(&self, permits: u64) {
        let mut refill = self.refill();
        let now = CLOCK.now();
        let reused = refill.hand_back(self.slot(), permits, now);
        self.mind(refill, now);
        if reused > 0 {
            self.call_line();
        }
    }

    /// Notes that the end of a counted call with `permits` will not be reported.
    pub(crate) fn lapse(&self, permits: u64) {
        let mut refill = self.refill();
        refill.lapse(permits, CLOCK.now());
    }

    /// Unlocks `refill`, and wakes the background task if the changes under the lock make the task due.
    fn mind(&self, refill: MutexGuard<'_, Refill>, now: Moment) {
        let rtt = Duration::from_micros(u64::from(self.hot.rtt_us.load(Ordering::Relaxed)));
        let due = refill.due(self.slot(), self.seen(), now, rtt);
        drop(refill);
        if due <= now {
            self.nudge();
        }
    }
}
