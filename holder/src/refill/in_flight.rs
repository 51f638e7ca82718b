//! Calls that report their end: what a node's side of a pool does about them. The handles call it under the pool's
//! lock, so that a report sees each call once. Like the rest of a refill, it reads no clock.

use super::{Asked, Refill, Seen};
use crate::calls::SessionCalls;
use crate::permits::{Pacer, Permits, Short};
use lessor_protocol::sizing::need;
use lessor_protocol::{InFlight, Moment, PERMITS_MAX};
use std::time::Duration;

/// Where permits are spent again, demand is the number in use, in thousandths: the mean that it would spend in this
/// time.
const IN_USE: Duration = Duration::from_millis(1);

/// Thousandths in one permit.
const IN_USE_PARTS: u64 = 1_000;

impl<P: Pacer> Refill<P> {
    /// Returns the calls in flight.
    pub fn calls(&self) -> &SessionCalls {
        &self.calls
    }

    /// Spends `permits` on a call that reports its end with [`Refill::hand_back`]. Returns how many are still free.
    ///
    /// # Errors
    /// As [`Permits::take`].
    pub fn enter(&mut self, slot: &impl Permits, permits: u64, now: Moment) -> Result<u64, Short> {
        let left = slot.take(permits, now)?;
        self.calls.take(permits, now);
        Ok(left)
    }

    /// Does the same for permits that were set aside, see `Slot::hold` of the client.
    pub fn enter_held(&mut self, slot: &impl Permits, permits: u64, now: Moment) -> u64 {
        let left = slot.spend_held(permits);
        self.calls.take(permits, now);
        left
    }

    /// Records that calls with `permits` that were entered have ended. Returns how many can be spent again.
    pub fn hand_back(&mut self, slot: &impl Permits, permits: u64, now: Moment) -> u64 {
        let in_hand = slot.balance().total() + self.reserved.permits();
        let ended = self.calls.hand_back(permits, in_hand, self.is_stopped, now);
        // If their lease is over, they can be spent only once an answer extends it.
        slot.install(ended.reused, 0, Moment::ORIGIN);
        self.removed += ended.removed;
        ended.reused
    }

    /// Records that no caller will report the end of entered calls with `permits`. They count for as long as a call may
    /// take.
    pub fn lapse(&mut self, permits: u64, now: Moment) {
        self.calls.lapse(permits, now);
    }

    /// Returns, after [`Refill::close`], the permits whose calls are in flight, where the allocator counts them.
    pub fn left_running(&self) -> Option<u64> {
        self.calls.left_running()
    }

    /// Learns from the answer to `ask` whether the allocator counts calls in flight.
    pub(super) fn learn_of_cap(&mut self, cap: Option<InFlight>, ask: &Asked) {
        let calls = if cap.is_some() { Some(&mut *self.calls) } else { self.calls.unusual() };
        if let Some(calls) = calls {
            calls.on_grant(cap, ask.spent_total + self.forgotten, ask.unguarded);
        }
    }

    /// Returns the permits to have in hand and in use: the average in use with a safety stock, or a little more than
    /// right now.
    pub(super) fn target_in_use(&self) -> u64 {
        let busy = self.calls.busy();
        need(self.demand.milli(), IN_USE).max(busy + busy.isqrt())
    }

    /// Learns how fast permits are wanted or, where they are spent again, how many are in use at once.
    pub(super) fn observe(&mut self, slot: &impl Permits, seen: Seen, now: Moment) {
        let attempts = self.attempts(slot, seen);
        if self.calls.hold().is_some() {
            let total = self.calls.usage(seen.refused, self.horizon, now);
            self.demand.observe(total, now, self.horizon);
            self.attempted = attempts;
        } else {
            self.demand.observe(attempts, now, self.horizon);
            self.attempted = self.demand.attempts();
        }
    }

    /// Returns the demand in permits per 1,000 s or, where permits are spent again, in thousandths of a permit in use.
    pub(super) fn reported_demand(&self) -> u64 {
        let parts = if self.calls.hold().is_some() { IN_USE_PARTS } else { 1 };
        (self.demand.milli() / parts).min(PERMITS_MAX)
    }
}
