//! Waiting for a permit of one limit: the calls that do, and what they share with those that start a call or reserve.

use super::Limit;
use crate::refusal::Refusal;
use crate::wait::wait_in_line;
use std::time::{Duration, Instant};

impl Limit {
    /// Spends `permits`, waiting for them if need be, first come, first served among callers of one [`crate::Priority`].
    ///
    /// The call is charged to the instant in which this ends: make it at once, as after [`Limit::try_acquire`]. To wait for
    /// several limits, use [`crate::all`]: after two acquires in a row the first permit is as old as the second wait is long.
    /// A call that has to wait for something else first uses [`Limit::reserve`] and [`crate::Reservation::is_good`].
    ///
    /// A future that was polled once has a place in line. Poll it on, or drop it: while it is first and is not polled, no
    /// caller behind it is served. `select!` drops the futures that lose; one that is kept outside of it, by `&mut`, stays in line.
    ///
    /// ```no_run
    /// # async fn example(limit: lessor::Limit, mut stop: tokio::sync::oneshot::Receiver<()>) -> Result<(), lessor::Refusal> {
    /// tokio::select! {
    ///     permit = limit.acquire(1) => permit?, // made here: if `stop` is faster, it is dropped, and leaves the line
    ///     _ = &mut stop => return Ok(()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] and [`Refusal::Closed`], which no waiting would change, and
    /// [`Refusal::UnknownLimit`], [`Refusal::BadKey`] and [`Refusal::Full`] if the allocator lends nothing of it.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line; nothing is spent and nothing is lost.
    pub async fn acquire(&self, permits: u64) -> Result<(), Refusal> {
        self.wait(permits, |first| self.pool.take_or_pass(permits, first).ok()).await
    }

    /// Spends one permit, waiting for it if need be: [`Limit::acquire`] by the name that some know it by.
    ///
    /// # Errors
    /// As [`Limit::acquire`].
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn until_ready(&self) -> Result<(), Refusal> {
        self.acquire(1).await
    }

    /// Spends `permits` if they can be had within `patience`; a permit that comes just then is in time.
    ///
    /// Fails at once if the wait cannot end in time, as far as this process knows. Where the limit caps what is in flight, calls
    /// of this process may end at any time. Needs a tokio timer.
    ///
    /// # Errors
    /// As [`Limit::acquire`], and [`Refusal::Empty`] with how long it would still be.
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn acquire_within(&self, permits: u64, patience: Duration) -> Result<(), Refusal> {
        self.wait_within(permits, patience, |first| self.pool.take_or_pass(permits, first).ok()).await
    }

    /// Spends `permits` if they can be had by `deadline`. One that is over already is a single try.
    ///
    /// ```no_run
    /// # async fn example(limit: lessor::Limit, request: (std::time::Instant,)) -> Result<(), lessor::Refusal> {
    /// let deadline = request.0 + std::time::Duration::from_millis(500);
    /// limit.acquire_by(1, deadline).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Limit::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn acquire_by(&self, permits: u64, deadline: Instant) -> Result<(), Refusal> {
        self.acquire_within(permits, until(deadline)).await
    }

    /// What `attempt` gives: at once if no caller waits, or else in line. `attempt` is told whether its caller is first there.
    pub(super) async fn wait<T>(
        &self,
        permits: u64,
        mut attempt: impl FnMut(bool) -> Option<T>,
    ) -> Result<T, Refusal> {
        match attempt(false) {
            Some(taken) => Ok(taken),
            None => wait_in_line(&self.pool, self.priority, permits, || attempt(true)).await,
        }
    }

    /// The same within `patience`.
    pub(super) async fn wait_within<T>(
        &self,
        permits: u64,
        patience: Duration,
        mut attempt: impl FnMut(bool) -> Option<T>,
    ) -> Result<T, Refusal> {
        if let Some(taken) = attempt(false) {
            return Ok(taken);
        }
        if self.pool.in_vain(permits, patience) {
            return Err(self.pool.refuse(permits));
        }
        let wait = wait_in_line(&self.pool, self.priority, permits, || attempt(true));
        within(patience, wait).await.unwrap_or_else(|| Err(self.pool.refuse(permits)))
    }
}

/// What `future` gives within `patience`; the future is looked at once more when it is over.
pub(crate) async fn within<T>(patience: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(patience, future).await.ok()
}

/// How long it is until `deadline`.
#[expect(clippy::disallowed_methods, reason = "a caller's own deadline, by a clock that only std reads")]
pub(crate) fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
