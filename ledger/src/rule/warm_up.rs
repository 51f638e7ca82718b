//! `warm_up`: a bucket that was idle refills slowly at first. These are the checked numbers of the contract; the
//! bucket's refill counts.

use super::{PER_MAX, RuleError};
use std::time::Duration;

/// A cold bucket refills `cold_factor` times more slowly than a warm one, and a bucket used without a pause is warm
/// after `over`. This is the upper half of the curve of stored permits in Guava's `SmoothWarmingUp`.
///
/// Let `i = per / refill` be the time in which a warm bucket gains a permit. **Coldness** is a number of permits
/// between 0 (warm) and `H = 2·over / (i + cold_factor·i)`, and starts at `H`. At coldness `h` a permit comes every
/// `i·(1 + (cold_factor − 1)·h/H)`; a change also applies to the permit that is being gained. Each permit spent lowers
/// coldness by one, down to 0. While the bucket is full, coldness rises, from 0 to `H` in `over`. All else is as in any
/// bucket: a full one gives all that it holds at once, cold or not.
///
/// Under leasing a permit counts as spent when its spend is reported, not when it is lent or burned. A bucket counts as
/// full when nothing is lent. So the refill never runs ahead of the curve of actual spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUp {
    over: Duration,
    cold_factor: u32,
}

impl WarmUp {
    /// Default factor by which a cold bucket is slower, as in Guava.
    pub const COLD_FACTOR: u32 = 3;

    /// Largest factor: a bucket that is even slower when cold does not start at all.
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

    /// Time in which a bucket that is used without a pause warms up.
    pub fn over(&self) -> Duration {
        self.over
    }

    /// Factor by which a cold bucket refills more slowly.
    pub fn cold_factor(&self) -> u32 {
        self.cold_factor
    }

    /// Returns `H` in thousandths of a permit, rounded up, for a bucket that gains `refill` permits every `per`.
    pub fn coldest_milli(&self, refill: u64, per: Duration) -> u128 {
        let permits = 2_000 * self.over.as_nanos() * u128::from(refill);
        permits.div_ceil(per.as_nanos().max(1) * u128::from(1 + self.cold_factor))
    }
}
