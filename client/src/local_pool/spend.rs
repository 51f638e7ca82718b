//! How permits leave a pool: a call spends them or sets them aside. The first in line is woken when permits are put
//! back.

use super::{CLOCK, LocalPool};
use crate::slot::{Short, Time, Watch};
use crate::stripe_hint::{stay, stripe_hint};
use lessor_protocol::{Moment, Tick};
use std::sync::atomic::Ordering;

/// Permits between two sums over a striped slot while a stripe of it is low. Reading what other threads write costs as
/// much as ten calls; a larger interval would find out late that little is left.
const SUM_EVERY: u64 = 64;

impl LocalPool {
    /// Spends `permits` if they are there. No call overtakes the line; `first` says that it is the caller's turn. A
    /// failure is not counted, because the caller may be about to wait.
    pub(crate) fn take(&self, permits: u64, first: bool) -> Result<(), Short> {
        self.spend(None, permits, first, self.hot.ticks.tick()).map_err(|(short, _)| short)
    }

    /// As [`LocalPool::take`], when the coarse clock has just shown `tick`. A failure comes with the time, which is a
    /// hint and never ahead of the true time.
    pub(super) fn spend(
        &self,
        watch: Option<&Watch>,
        permits: u64,
        first: bool,
        tick: Option<Tick>,
    ) -> Result<(), (Short, Moment)> {
        if permits == 0 {
            return Ok(());
        }
        let late_ns = self.hot.ticks.late_ns();
        let time = Time { tick, late_ns, shared: watch, exact: || CLOCK.now() };
        let stripe_hint = stripe_hint();
        if !first && self.slow_path().has_line() {
            return Err((Short::Empty, self.slot().read_cached(stripe_hint, &time).earliest));
        }
        // Read once, as in the quick way.
        if self.slow_path().is_paced() {
            let now = CLOCK.now();
            return self.take_paced(permits, first, now).map_err(|short| (short, now));
        }
        self.spend_from_slot(stripe_hint, permits, first, &time)
    }

    /// As [`LocalPool::spend`], once no line is in the way and the limit has no steady flow.
    #[inline]
    pub(super) fn spend_from_slot<F: Fn() -> Moment>(
        &self,
        stripe_hint: usize,
        permits: u64,
        first: bool,
        time: &Time<'_, F>,
    ) -> Result<(), (Short, Moment)> {
        let left = match self.slot().spend(stripe_hint, permits, time) {
            Ok(left) => left,
            Err(short) => {
                self.collected_in_vain(permits, first);
                return Err(short);
            }
        };
        stay(left.stripe_hint);
        if self.slot().is_crowded() {
            self.nudge();
        }
        self.spent_down_to(left.free, permits);
        Ok(())
    }

    /// Wakes the background task if a spend of `permits` left a word of the slot low.
    #[inline]
    pub(super) fn spent_down_to(&self, left: u64, permits: u64) {
        if left < u64::from(self.fast_path().low_water.load(Ordering::Relaxed)) {
            self.run_low(left, permits);
        }
    }

    /// Handles a low word of the slot. Whether all words are low is checked only now and then.
    #[cold]
    pub(super) fn run_low(&self, left: u64, permits: u64) {
        if self.hot.doorbell.is_rung() {
            return;
        }
        let is_time = (left ^ (left + permits)) >= SUM_EVERY || left == 0;
        let is_low =
            || self.slot().balance().free < u64::from(self.fast_path().low_water.load(Ordering::Relaxed));
        if !self.slot().is_striped() || (is_time && is_low()) {
            self.wake_task();
        }
    }

    /// Sets `permits` aside at `now`, see [`Slot::hold`](crate::slot::Slot::hold); otherwise as [`LocalPool::take`].
    pub(crate) fn hold(&self, permits: u64, first: bool, now: Moment) -> Result<(), Short> {
        if permits == 0 {
            return Ok(());
        }
        if !first && self.slow_path().has_line() {
            return Err(Short::Empty);
        }
        self.set_aside(permits, first, now)
    }

    /// Sets `permits` aside, whether or not there is a line.
    pub(super) fn set_aside(&self, permits: u64, first: bool, now: Moment) -> Result<(), Short> {
        let held = self.slot().hold(permits, now).map(|_| ());
        if held.is_err() {
            self.collected_in_vain(permits, first);
        }
        held
    }

    /// Wakes the first in line, after a call found fewer than `permits`. The call may have collected permits of several
    /// stripes and put them back, and the first in line may have found too few meanwhile. Does nothing if the caller is
    /// itself the `first`.
    #[cold]
    pub(super) fn collected_in_vain(&self, permits: u64, first: bool) {
        if !first && permits > 1 && self.slot().is_striped() {
            self.call_line();
        }
    }

    /// Spends what [`LocalPool::hold`] set aside.
    pub(crate) fn spend_held(&self, permits: u64) {
        self.spent_down_to(self.slot().spend_held(permits), permits);
    }

    /// Frees what [`LocalPool::hold`] set aside, and wakes the first in line, which may have found no permits while
    /// these were aside.
    pub(crate) fn put_back(&self, permits: u64) {
        self.slot().put_back(permits);
        self.call_line();
    }

    /// Wakes the first in line, if there is a line, after permits were put where callers take them.
    ///
    /// # Memory ordering
    /// One caller joins the line and then looks for permits; another puts permits back and then looks for a line. The
    /// fences in `SlowPathFlags::join` and `SlowPathFlags::has_line_after_change` order both: at least one of the
    /// two sees what the other did.
    pub(crate) fn call_line(&self) {
        if self.slow_path().has_line_after_change() {
            self.call_first();
        }
    }
}
