//! `token_bucket`: a burst and a rate. What the contract says, checked; it counts nothing.

use super::{RuleError, check_per, check_permits};
use std::time::Duration;

/// A bucket of `capacity` permits that gains `refill` permits every `per`, continuously.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    refill: u64,
    per: Duration,
    initial: u64,
}

impl TokenBucket {
    /// Checks the numbers.
    ///
    /// # Errors
    /// If `capacity`, `refill` or `initial` is above 2^53 − 1, `initial` is above `capacity`, or `per` is zero
    /// or above 366 days.
    pub fn try_new(capacity: u64, refill: u64, per: Duration, initial: u64) -> Result<Self, RuleError> {
        check_permits("capacity", capacity)?;
        check_permits("refill", refill)?;
        check_per(per)?;
        if initial > capacity {
            let problem = format!("is {initial}, more than the bucket holds: use at most {capacity}");
            return Err(RuleError { field: "initial", problem });
        }
        Ok(TokenBucket { capacity, refill, per, initial })
    }

    /// The most the bucket holds. 0 refuses everything.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Permits gained every [`TokenBucket::per`]. 0 never refills.
    pub fn refill(&self) -> u64 {
        self.refill
    }

    /// The period of [`TokenBucket::refill`].
    pub fn per(&self) -> Duration {
        self.per
    }

    /// What is in the bucket at the start.
    pub fn initial(&self) -> u64 {
        self.initial
    }
}
