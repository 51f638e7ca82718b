//! Waiting for permits of one limit: the `acquire` calls, and the waits that `enter` and `reserve` share with them.

use super::Limit;
use crate::refusal::Refusal;
use crate::wait::wait_in_line;
use std::time::{Duration, Instant};

impl Limit {
    /// Spends `permits`, waiting for them if need be, first come, first served among callers of one
    /// [`crate::Priority`].
    ///
    /// The permits are charged to the instant at which the wait ends, so make the call at once, as after
    /// [`Limit::try_acquire`]. To wait for several limits, use [`all`](crate::all()): after two acquires in a row, the first
    /// permit is as old as the second wait was long. A call that first has to wait for something else uses
    /// [`Limit::reserve`] and [`crate::Reservation::is_good`].
    ///
    /// A call that finds its permits at once does not yield, nor does one that passes in shadow mode or in the fallback
    /// `open`. A loop in a task that awaits nothing else calls `tokio::task::yield_now`, or keeps other tasks waiting.
    ///
    /// A future that was polled once has a place in line. Keep polling it, or drop it: while it is first in line and
    /// not polled, no caller behind it is served. `select!` drops the futures that lose; a future kept outside of it,
    /// by `&mut`, stays in line.
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
    /// [`Refusal::TooLarge`] and [`Refusal::Closed`], which no waiting would change. [`Refusal::UnknownLimit`],
    /// [`Refusal::BadKey`] and [`Refusal::Full`] if the allocator lends nothing of the limit or key. If 100,000 callers
    /// are in line, the refusal of the moment: [`Refusal::Empty`], [`Refusal::Paused`], [`Refusal::Unreachable`] or
    /// [`Refusal::Quarantine`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line. Nothing is spent and nothing is lost.
    pub async fn acquire(&self, permits: u64) -> Result<(), Refusal> {
        self.wait(permits, |first| self.pool.take_or_pass(permits, first).ok()).await
    }

    /// Spends one permit, waiting for it if need be: [`Limit::acquire`] of one, under the name that governor uses.
    ///
    /// # Errors
    /// As [`Limit::acquire`].
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn until_ready(&self) -> Result<(), Refusal> {
        self.acquire(1).await
    }

    /// Spends `permits` if they become available within `patience`. A permit that arrives just at the end is in time.
    ///
    /// Fails at once if, as far as this process knows, the wait cannot end in time. Where the limit caps calls in
    /// flight, calls of this process may end at any time, so the call waits. Needs a tokio timer.
    ///
    /// # Errors
    /// As [`Limit::acquire`], and the refusal of the moment, such as [`Refusal::Empty`] with the remaining wait.
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn acquire_within(&self, permits: u64, patience: Duration) -> Result<(), Refusal> {
        self.wait_within(permits, patience, |first| self.pool.take_or_pass(permits, first).ok()).await
    }

    /// Spends `permits` if they become available by `deadline`. With a deadline in the past it tries once.
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

    /// Returns what `attempt` takes: at once if no caller waits, otherwise in line. The argument of `attempt` says
    /// whether its caller is first in line.
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

    /// As [`Limit::wait`], for at most `patience`.
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

/// Returns the output of `future` if it is ready within `patience`. The future is polled once more when the time is
/// over.
pub(crate) async fn within<T>(patience: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(patience, future).await.ok()
}

/// Time until `deadline`, zero if it has passed.
#[expect(clippy::disallowed_methods, reason = "a caller's own deadline, by a clock that only std reads")]
pub(crate) fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
