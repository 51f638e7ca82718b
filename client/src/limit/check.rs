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

/// Answers that a caller waits for at most if they bring nothing or tell to wait, while the pool says that it has enough left: what is
/// left may be meant for others. Those that do neither lend a part of what is left, and callers before this one may need it.
const ANSWERS_MAX: u32 = 4;

impl Limit {
    /// Spends `permits` now or, where this process does not know whether the pool has them, with the next answer of the
    /// allocator. It never waits for permits to come back: where the last answer said that there are none, it refuses at once.
    ///
    /// So unlike [`Limit::try_acquire`] it does not refuse the first call of a key. The wait is about a round trip. An allocator
    /// that leases the limit itself, from a shared store or an upstream, may have to ask there first: then it is a round trip
    /// more. A large call, which takes most of what the pool has, waits for some answers, each of which brings a part. It is a
    /// second at most. In shadow mode the wait is the same, and only then what would be refused is counted and let pass. Needs a
    /// tokio timer.
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
        let attempt = |first, passes| match passes {
            true => self.pool.take_or_pass(permits, first).ok(),
            false => self.pool.take(permits, first).ok(),
        };
        self.checked(permits, attempt).await
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
        let attempt = |first, passes| match passes {
            true => self.started(permits, first),
            false => Some(self.guard(permits, self.pool.enter(permits, first).ok()?)),
        };
        self.checked(permits, attempt).await
    }

    /// What `attempt` gives. It is told whether its caller is first in line, and whether to let pass what would be refused.
    ///
    /// In shadow mode nothing passes before it is known that it would be refused: that is what is counted.
    async fn checked<T>(
        &self,
        permits: u64,
        mut attempt: impl FnMut(bool, bool) -> Option<T>,
    ) -> Result<T, Refusal> {
        let pool = &*self.pool;
        let decided = self.decided(permits, |first| attempt(first, !pool.is_tried_out())).await;
        let why = match decided {
            Ok(taken) => return Ok(taken),
            Err(why) => why,
        };
        if pool.is_tried_out()
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
            // The line would count a refusal of what passes.
            if pool.is_tried_out() && pool.for_good(permits).is_some() {
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

/// Why a check gets nothing.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// The line has refused it, and counted that.
    Told(Refusal),
    /// It is known that there is nothing for it, or nothing came in time.
    Known,
    /// No answer came in time.
    Unanswered,
}

/// What a caller that waits has seen come.
struct Gathered {
    /// The most permits that were there at once.
    most: u64,
    /// How often the pool had told to wait when there were more than before.
    told_to_wait: u32,
}

/// Whether it is known that `permits` cannot be had, by a caller that has `gathered` so much.
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

    /// The bug: a call for nearly all that there is was refused after four answers, each of which had brought a part of it.
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
        assert!(!answers(20, 1, (Some(90), true)), "each brings one");
        assert!(!answers(20, 0, (None, true)), "it does not know what there is");
        assert!(!answers(20, 0, (Some(90), false)), "callers before this one take what comes");
        assert!(!answers(ANSWERS_MAX - 1, 0, (Some(90), true)));
        assert!(!answers(1, 1, (Some(90), true)));
        assert!(!answers(ANSWERS_MAX - 1, 0, (Some(90), true)));
        assert!(answers(1, 0, (Some(90), true)), "what is left is for others");
    }
}
