//! Calls that pass although there are no permits for them: in shadow mode, or in a fallback. The pool's other methods
//! use it where they would refuse. It waits for nothing.

use super::{CLOCK, Condition, LocalPool};
use crate::fallback::Standby;
use crate::slot::{SLOT_MAX, Short};
use crate::stripe_hint::stripe_hint;
use lessor_holder::safe_allowance::Paid;
use lessor_protocol::Moment;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Shortest wait for the safe share before it is looked at again.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl LocalPool {
    /// Whether every call that would be refused passes, in shadow mode or in an open fallback, while the client runs.
    #[inline]
    pub(crate) fn lets_all_pass(&self) -> bool {
        self.passes() && self.cold.standby.lets_all_pass()
    }

    /// Whether shadow mode lets calls pass.
    pub(crate) fn in_shadow_mode(&self) -> bool {
        self.passes() && self.cold.standby.in_shadow_mode()
    }

    #[inline]
    fn passes(&self) -> bool {
        self.hot.passes.load(Ordering::Relaxed) && self.condition() != Condition::Closed
    }

    /// Lets a call of `permits` pass that would be refused, if shadow mode or a fallback allows it. No caller overtakes
    /// the line; `first` says that it is the caller's turn.
    pub(crate) fn try_pass(&self, permits: u64, first: bool) -> bool {
        let passes = self.lets_all_pass() || self.take_share(permits, first).is_some();
        if passes {
            self.let_pass(permits);
        }
        passes
    }

    /// Takes `permits` of this process's safe share. [`LocalPool::let_pass`] or [`LocalPool::put_back_share`] must
    /// follow.
    pub(crate) fn take_share(&self, permits: u64, first: bool) -> Option<Paid> {
        let is_open = self.passes() && (first || !self.slow_path().has_line());
        if is_open { self.cold.standby.take_share(permits, CLOCK.now()) } else { None }
    }

    /// Undoes [`LocalPool::take_share`], and wakes no caller.
    pub(crate) fn put_back_share(&self, taken: Paid) {
        self.cold.standby.put_back_share(taken);
    }

    /// Charges the safe share for `permits` that were spent beyond a reservation. Returns false if the share does not
    /// apply now.
    pub(super) fn owe_share(&self, permits: u64) -> bool {
        self.passes() && self.cold.standby.owe_share(permits, CLOCK.now())
    }

    /// How long a call of `permits` has to wait for the safe share; `None` if the share does not apply now.
    pub(super) fn share_in(&self, permits: u64, now: Moment) -> Option<Duration> {
        let wait = if self.passes() { self.cold.standby.share_in(permits, now) } else { None };
        wait.map(|wait| wait.max(WAIT_MIN))
    }

    /// Whether a call of `permits` could take them from the safe share now.
    pub(super) fn share_is_due(&self, permits: u64, now: Moment) -> bool {
        self.passes() && self.cold.standby.share_in(permits, now) == Some(Duration::ZERO)
    }

    /// Returns shadow mode and fallback. A caller that changes them calls [`LocalPool::refresh_passes`].
    pub(crate) fn standby(&self) -> &Standby {
        &self.cold.standby
    }

    /// Updates `passes` after a change of shadow mode or fallback.
    pub(crate) fn refresh_passes(&self) {
        self.hot.passes.store(self.cold.standby.lets_some_pass(), Ordering::Relaxed);
    }

    /// Counts `permits` that would have been refused. They are demand all the same.
    #[cold]
    pub(crate) fn let_pass(&self, permits: u64) {
        // No slot could ever lend more: the excess is no demand, and its totals would overflow.
        let permits = permits.min(SLOT_MAX);
        if !self.cold.standby.counts(permits) {
            self.cold.shadow_refused.fetch_add(permits, Ordering::Relaxed);
        }
        self.slot().refuse(stripe_hint(), permits);
        self.nudge();
    }

    /// Permits let pass in shadow mode so far.
    pub(crate) fn shadow_refused(&self) -> u64 {
        self.cold.shadow_refused.load(Ordering::Relaxed)
    }

    /// As [`LocalPool::take`], but in shadow mode or fallback a call may pass without permits.
    pub(crate) fn take_or_pass(&self, permits: u64, first: bool) -> Result<(), Short> {
        self.take(permits, first).or_else(|short| self.try_pass(permits, first).then_some(()).ok_or(short))
    }
}
