//! Reservations on one limit, for calls whose cost is known only when they are over.

use super::Limit;
use crate::refusal::Refusal;
use crate::reservation::Reservation;
use std::time::Duration;

impl Limit {
    /// Reserves `permits` now, or none, for a call whose cost is known only when it is over. See [`Reservation`].
    ///
    /// It takes a lock for as long as noting one number takes. Where the limit caps calls in flight, the permits that a
    /// settled reservation has spent count as in flight for as long as a call may take, as after
    /// [`Limit::try_acquire`]. Where the limit has a steady flow, permits that are given back leave a gap in the flow.
    ///
    /// # Errors
    /// As [`Limit::try_acquire`].
    pub fn try_reserve(&self, permits: u64) -> Result<Reservation, Refusal> {
        self.reserved(permits, false).ok_or_else(|| self.pool.refuse(permits))
    }

    /// Reserves `permits`, waiting for them if need be.
    ///
    /// # Errors
    /// As [`Limit::acquire`].
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn reserve(&self, permits: u64) -> Result<Reservation, Refusal> {
        self.wait(permits, |first| self.reserved(permits, first)).await
    }

    /// Reserves `permits` if they become available within `patience`.
    ///
    /// # Errors
    /// As [`Limit::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn reserve_within(&self, permits: u64, patience: Duration) -> Result<Reservation, Refusal> {
        self.wait_within(permits, patience, |first| self.reserved(permits, first)).await
    }

    fn reserved(&self, permits: u64, first: bool) -> Option<Reservation> {
        let number = self.pool.reserve_or_pass(permits, first).ok()?;
        Some(self.reservation(number, permits))
    }

    pub(crate) fn reservation(&self, number: Option<u64>, permits: u64) -> Reservation {
        // Nothing was set aside without a number, so there is nothing to report.
        let task = number.and(self.task.clone());
        Reservation::new(self.pool.clone(), task, number, permits)
    }
}
