//! Calls that report when they end, for limits that cap calls in flight.

use super::Limit;
use crate::guard::Guard;
use crate::refusal::Refusal;
use std::time::Duration;

impl Limit {
    /// Starts a call that takes `permits` now, or does not start it. The call lasts until the guard is dropped.
    ///
    /// Where the limit caps calls in flight (a `concurrency` rule), use this rather than [`Limit::try_acquire`]: a
    /// permit that is only acquired counts as in flight for as long as a call may take. There it takes a lock for as
    /// long as counting one call takes. For other limits it is the same as `try_acquire`, and dropping the guard does
    /// nothing.
    ///
    /// # Errors
    /// As [`Limit::try_acquire`].
    pub fn try_enter(&self, permits: u64) -> Result<Guard, Refusal> {
        match self.pool.enter_or_pass(permits, false) {
            Ok(counted) => Ok(self.guard(permits, counted)),
            Err(_) => Err(self.pool.refuse(permits)),
        }
    }

    /// Starts a call that takes `permits`, waiting for them if need be, first come, first served within one
    /// [`crate::Priority`].
    ///
    /// # Errors
    /// As [`Limit::acquire`].
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn enter(&self, permits: u64) -> Result<Guard, Refusal> {
        self.wait(permits, |first| self.started(permits, first)).await
    }

    /// Starts a call that takes `permits` if they become available within `patience`.
    ///
    /// # Errors
    /// As [`Limit::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn enter_within(&self, permits: u64, patience: Duration) -> Result<Guard, Refusal> {
        self.wait_within(permits, patience, |first| self.started(permits, first)).await
    }

    /// Makes the guard at once, so that a dropped future drops it too.
    pub(super) fn started(&self, permits: u64, first: bool) -> Option<Guard> {
        Some(self.guard(permits, self.pool.enter_or_pass(permits, first).ok()?))
    }
}
