//! `warm_up`: a bucket that was idle refills slowly at first. What the contract says, checked; it counts nothing.

use super::{PER_MAX, RuleError};
use std::time::Duration;

/// A cold bucket refills `cold_factor` times more slowly than a warm one, and one that is used without a pause is warm
/// after `over`: the upper half of the curve of stored permits that Guava's `SmoothWarmingUp` has.
///
/// Let `i = per / refill` be the time in which a warm bucket gains a permit. **Coldness** is a number of permits between
/// 0 (warm) and `H = 2·over / (i + cold_factor·i)`, and `H` at the start. While it is `h`, a permit comes every
/// `i·(1 + (cold_factor − 1)·h/H)`, also the one that is being gained when it changes. Each permit that is spent lowers
/// it by one, as far as 0; while the bucket is full it rises, from 0 to `H` in `over`. Whatever else of a bucket stays
/// as it is: a full one gives all that it holds at once, cold or not.
///
/// Under leasing a permit is spent when that is reported, not when it is lent nor when its lease ends without a word;
/// and a bucket is full when nothing is lent. So the refill never runs ahead of the curve of what was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUp {
    over: Duration,
    cold_factor: u32,
}

impl WarmUp {
    /// How much slower a cold bucket is, where the operator says nothing else: what Guava has.
    pub const COLD_FACTOR: u32 = 3;

    /// A bucket that is slower than that when cold is one that does not start.
    pub const COLD_FACTOR_MAX: u32 = 1_000;

    /// Checks the numbers.
    ///
    /// # Errors
    /// If `over` is zero or above 366 days, or `cold_factor` is not 2 to 1000.
    pub fn try_new(over: Duration, cold_factor: u64) -> Result<Self, RuleError> {
        let wrong = |field, problem| Err(RuleError { field, problem });
        if over.is_zero() {
            return wrong(
                "warm_up.over",
                "is zero: leave warm_up out, or say for example \"10s\"".to_owned(),
            );
        }
        if over > PER_MAX {
            return wrong("warm_up.over", format!("is {over:?}, longer than {PER_MAX:?} (366 days)"));
        }
        match u32::try_from(cold_factor) {
            Ok(cold_factor @ 2..=Self::COLD_FACTOR_MAX) => Ok(WarmUp { over, cold_factor }),
            _ => {
                let problem = format!("is {cold_factor}: use 2 to {}", Self::COLD_FACTOR_MAX);
                wrong("warm_up.cold_factor", problem)
            }
        }
    }

    /// How long it takes.
    pub fn over(&self) -> Duration {
        self.over
    }

    /// How many times more slowly a cold bucket refills.
    pub fn cold_factor(&self) -> u32 {
        self.cold_factor
    }

    /// `H` in thousandths of a permit, rounded up, for a bucket that gains `refill` permits every `per`.
    pub fn coldest_milli(&self, refill: u64, per: Duration) -> u128 {
        let permits = 2_000 * self.over.as_nanos() * u128::from(refill);
        permits.div_ceil(per.as_nanos().max(1) * u128::from(1 + self.cold_factor))
    }
}
