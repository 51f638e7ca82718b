//! Checks: they decide at once where this process can, and otherwise with the next answer of the allocator. They are
//! for servers, which must not refuse a caller only because they hold no permits for its key.

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

/// Longest wait for an answer: the timeout of an exchange. More would hold a server's requests while its allocator is
/// gone; less would refuse callers within their limit where the network is slow.
const ANSWER_WITHIN: Duration = EXCHANGE_TIMEOUT;

/// Most answers that a caller waits for although they bring nothing or tell the node to wait, while the pool reports
/// enough permits left: those may be meant for other nodes. Other answers are not counted: each lends a part of what is
/// left, which callers ahead may need.
const ANSWERS_MAX: u32 = 4;

impl Limit {
    /// Spends `permits` now or, where this process does not know whether the pool has them, with the next answer of the
    /// allocator. It never waits for permits to come back: if the last answer said that there are none, it refuses at
    /// once.
    ///
    /// Unlike [`Limit::try_acquire`] it does not refuse the first call of a key. The wait is about a round trip. An
    /// allocator that leases the limit itself, from a shared store or an upstream, may have to ask there first, which
    /// adds a round trip. A large call, which takes most of what the pool has, may wait for several answers that each
    /// bring a part. The wait is at most a second. In shadow mode the wait is the same; a call that would be refused
    /// after it is counted and passes. Needs a tokio timer.
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
    /// Dropping the future leaves the line. Nothing is spent and nothing is lost.
    pub async fn check(&self, permits: u64) -> Result<(), Refusal> {
        let attempt = |first, passes| match passes {
            true => self.pool.take_or_pass(permits, first).ok(),
            false => self.pool.take(permits, first).ok(),
        };
        self.checked(permits, attempt).await
    }

    /// [`Limit::check`] of one key: [`Limit::try_acquire_key`] for callers that can wait for the first answer.
    ///
    /// # Errors
    /// As [`Limit::check`].
    ///
    /// # Cancel safety
    /// As [`Limit::check`].
    pub async fn check_key(&self, key: &str, permits: u64) -> Result<(), Refusal> {
        self.key(key).check(permits).await
    }

    /// Starts a call that takes `permits` as [`Limit::check`] does. The call lasts until the guard is dropped, as with
    /// [`Limit::enter`].
    ///
    /// # Errors
    /// As [`Limit::check`].
    ///
    /// # Cancel safety
    /// As [`Limit::check`].
    pub async fn check_enter(&self, permits: u64) -> Result<Guard, Refusal> {
        let attempt = |first, passes| match passes {
            true => self.started(permits, first),
            false => Some(self.guard(permits, self.pool.enter(permits, first).ok()?)),
        };
        self.checked(permits, attempt).await
    }

    /// Returns what `attempt` takes. Its arguments say whether its caller is first in line, and whether a call that
    /// would be refused passes instead.
    ///
    /// In shadow mode no call passes before it is known that it would be refused, because such calls are counted.
    async fn checked<T>(
        &self,
        permits: u64,
        mut attempt: impl FnMut(bool, bool) -> Option<T>,
    ) -> Result<T, Refusal> {
        let pool = &*self.pool;
        let decided = self.decided(permits, |first| attempt(first, !pool.in_shadow_mode())).await;
        let why = match decided {
            Ok(taken) => return Ok(taken),
            Err(why) => why,
        };
        if pool.in_shadow_mode()
            && let Some(passed) = attempt(false, true)
        {
            return Ok(passed);
        }
        Err(match why {
            Why::Told(refusal) => refusal,
            Why::Known => pool.refuse(permits),
            Why::Unanswered => pool.refuse_unanswered(permits),
        })
    }

    async fn decided<T>(&self, permits: u64, mut attempt: impl FnMut(bool) -> Option<T>) -> Result<T, Why> {
        if let Some(taken) = attempt(false) {
            return Ok(taken);
        }
        let pool = &*self.pool;
        let before = pool.answers();
        let mut gathered = Gathered { most: 0, told_to_wait: pool.told_to_wait() };
        if pool.known_refusal(permits, CLOCK.now()).is_some() {
            return Err(Why::Known);
        }
        let mut wait = pin!(wait_in_line(pool, self.priority, permits, || attempt(true)));
        let answered = poll_fn(|cx| {
            // In shadow mode the call passes later: the line must not count it as refused.
            if pool.in_shadow_mode() && pool.for_good(permits).is_some() {
                return Poll::Ready(Err(Why::Known));
            }
            match wait.as_mut().poll(cx) {
                Poll::Pending if is_answered(pool, permits, &mut gathered) => Poll::Ready(Err(Why::Known)),
                Poll::Pending => Poll::Pending,
                Poll::Ready(taken) => Poll::Ready(taken.map_err(Why::Told)),
            }
        });
        match within(ANSWER_WITHIN, answered).await {
            Some(decided) => decided,
            None if pool.answers() == before => Err(Why::Unanswered),
            None => Err(Why::Known),
        }
    }
}

/// Why a check got no permits.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// The line has refused the call and has counted the refusal.
    Told(Refusal),
    /// This process knows that there are no permits for the call, or the answers that came in time brought none.
    Known,
    /// No answer came in time.
    Unanswered,
}

/// The permits that a waiting caller has seen arrive.
struct Gathered {
    /// Most permits that were available at once.
    most: u64,
    /// The pool's count of answers that told to wait, when `most` last rose.
    told_to_wait: u32,
}

/// Whether it is known that `permits` cannot be had, judged by what the waiting caller has `gathered`.
fn is_answered(pool: &LocalPool, permits: u64, gathered: &mut Gathered) -> bool {
    let (there, told_to_wait) = (pool.available(), pool.told_to_wait());
    if there > gathered.most {
        *gathered = Gathered { most: there, told_to_wait };
    }
    told_to_wait.wrapping_sub(gathered.told_to_wait) >= ANSWERS_MAX
        || pool.known_refusal(permits, CLOCK.now()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{self, LEASED};

    /// The bug: a call for nearly all permits was refused after four answers, although each had brought a part of them.
    #[test]
    fn a_call_is_waited_for_as_long_as_answers_bring_more() {
        let shared = by_hand::shared();
        let limit = by_hand::limit(&shared, "vendor-get");
        let pool = limit.pool();
        let mut gathered = Gathered { most: 0, told_to_wait: pool.told_to_wait() };
        let mut answers = |number: u32, brings: u64, (left, waits): (Option<u64>, bool)| {
            (0..number).any(|_| {
                pool.answered(left, None, waits);
                pool.slot().install(brings, 0, CLOCK.now() + LEASED);
                is_answered(pool, 100, &mut gathered)
            })
        };
        assert!(!answers(20, 1, (Some(90), true)), "each answer brings a permit");
        assert!(!answers(20, 0, (None, true)), "the allocator told no count");
        assert!(!answers(20, 0, (Some(90), false)), "earlier callers take the permits");
        assert!(!answers(ANSWERS_MAX - 1, 0, (Some(90), true)));
        assert!(!answers(1, 1, (Some(90), true)));
        assert!(!answers(ANSWERS_MAX - 1, 0, (Some(90), true)));
        assert!(answers(1, 0, (Some(90), true)), "the rest is for other processes");
    }
}
