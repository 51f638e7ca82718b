//! `leaky_bucket`: a steady flow, evenly spaced. What the contract says, checked; it counts nothing.

use super::{RuleError, check_per, check_permits};
use lessor_protocol::PERMITS_MAX;
use std::time::Duration;

/// At most `burst + refill·T/per` permits in any interval T, over the whole fleet: with a burst of 1 no two calls are
/// closer to each other than `per / refill`. A central limiter would be GCRA with that interval and that burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    burst: u64,
    refill: u64,
    per: Duration,
}

impl LeakyBucket {
    /// What the burst is where the operator says nothing else: one call at a time is what even spacing means.
    pub const BURST: u64 = 1;

    /// Longest interval between two calls: in nanoseconds it must fit a number that every JSON reader keeps exact.
    pub const INTERVAL_MAX: Duration = Duration::from_nanos(PERMITS_MAX);

    /// Checks the numbers.
    ///
    /// # Errors
    /// If `burst` or `refill` is above 2^53 − 1, `per` is zero or above 366 days, or one call would be let through
    /// less often than every 2^53 − 1 ns (104 days).
    pub fn try_new(burst: u64, refill: u64, per: Duration) -> Result<Self, RuleError> {
        check_permits("burst", burst)?;
        check_permits("refill", refill)?;
        check_per(per)?;
        let rule = LeakyBucket { burst, refill, per };
        if rule.interval().is_some_and(|interval| interval > Self::INTERVAL_MAX) {
            let problem = format!("is {per:?} for {refill}: that is less than one in 104 days");
            return Err(RuleError { field: "per", problem });
        }
        Ok(rule)
    }

    /// The most that may be let through at once. 0 refuses everything.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Permits let through every [`LeakyBucket::per`]. 0 refuses everything: a flow of nothing.
    pub fn refill(&self) -> u64 {
        self.refill
    }

    /// The period of [`LeakyBucket::refill`].
    pub fn per(&self) -> Duration {
        self.per
    }

    /// The time for one permit, rounded up to a nanosecond; `None` if nothing flows.
    pub fn interval(&self) -> Option<Duration> {
        // Not zero, and at most 366 days: it fits.
        let nanos = (self.refill > 0).then(|| self.per.as_nanos().div_ceil(u128::from(self.refill)))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}
