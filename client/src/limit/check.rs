//! A decision at once where this process can make it, and with the next answer of the allocator where it cannot: for servers,
//! which must not refuse a caller only because they hold nothing for its key.

use super::Limit;
use super::waits::within;
use crate::guard::Guard;
use crate::local_pool::{CLOCK, LocalPool};
use crate::refusal::Refusal;
use crate::wait::wait_in_line;
use lessor_holder::timing::EXCHANGE_TIMEOUT;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Longest wait for an answer: as long as an exchange may take. A longer one would keep a server's requests while its allocator
/// is gone; a shorter one would refuse callers within their limit where the network is slow.
const ANSWER_WITHIN: Duration = EXCHANGE_TIMEOUT;

/// Answers that a caller waits for at most while the pool says that it has enough left: what is left may be meant for others.
const ANSWERS_MAX: u64 = 4;

impl Limit {
    /// Spends `permits` now or, where this process does not know whether the pool has them, with the next answer of the
    /// allocator. It never waits for permits to come back: where the last answer said that there are none, it refuses at once.
    ///
    /// So unlike [`Limit::try_acquire`] it does not refuse the first call of a key. The wait is about a round trip, and a second
    /// at most. Needs a tokio timer.
    ///
    /// ```no_run
    /// # async fn example(limit: lessor::Limit, user: &str) -> Result<(), lessor::Refusal> {
    /// limit.check_key(user, 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Limit::try_acquire`], and [`Refusal::Unreachable`] if no answer came in time.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line; nothing is spent and nothing is lost.
    pub async fn check(&self, permits: u64) -> Result<(), Refusal> {
        self.checked(permits, |first| self.pool.take_or_pass(permits, first).ok()).await
    }

    /// [`Limit::check`] of one key: [`Limit::try_acquire_key`] for those who can wait for the first answer.
    ///
    /// # Errors
    /// As [`Limit::check`].
    ///
    /// # Cancel safety
    /// As [`Limit::check`].
    pub async fn check_key(&self, key: &str, permits: u64) -> Result<(), Refusal> {
        self.key(key).check(permits).await
    }

    /// Starts a call that takes `permits` as [`Limit::check`] does. The call lasts until the guard is dropped, see
    /// [`Limit::enter`].
    ///
    /// # Errors
    /// As [`Limit::check`].
    ///
    /// # Cancel safety
    /// As [`Limit::check`].
    pub async fn check_enter(&self, permits: u64) -> Result<Guard, Refusal> {
        self.checked(permits, |first| self.started(permits, first)).await
    }

    async fn checked<T>(
        &self,
        permits: u64,
        mut attempt: impl FnMut(bool) -> Option<T>,
    ) -> Result<T, Refusal> {
        if let Some(taken) = attempt(false) {
            return Ok(taken);
        }
        let (pool, before) = (&*self.pool, self.pool.answers());
        if pool.known_refusal(permits, CLOCK.now()).is_some() {
            return Err(pool.refuse(permits));
        }
        let mut wait = pin!(wait_in_line(pool, self.priority, permits, || attempt(true)));
        let answered = poll_fn(|cx| match wait.as_mut().poll(cx) {
            Poll::Pending if is_answered(pool, permits, before) => Poll::Ready(Err(pool.refuse(permits))),
            polled @ (Poll::Ready(_) | Poll::Pending) => polled,
        });
        match within(ANSWER_WITHIN, answered).await {
            Some(taken) => taken,
            None if pool.answers() == before => Err(pool.refuse_unanswered(permits)),
            None => Err(pool.refuse(permits)),
        }
    }
}

/// Whether it is known that `permits` cannot be had, by a caller that has waited since the pool had answered `before` times.
fn is_answered(pool: &LocalPool, permits: u64, before: u64) -> bool {
    pool.answers() - before >= ANSWERS_MAX || pool.known_refusal(permits, CLOCK.now()).is_some()
}
