//! `concurrency`: at most N in flight at once. What the contract says, checked; it counts nothing.

use super::{RuleError, check_permits, check_span};
use std::time::Duration;

/// At most `limit` permits in flight at any instant, each for at most `longest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    longest: Duration,
}

impl Concurrency {
    /// Checks the numbers.
    ///
    /// # Errors
    /// If `limit` is above 2^53 − 1, or `longest` is zero or above 366 days.
    pub fn try_new(limit: u64, longest: Duration) -> Result<Self, RuleError> {
        check_permits("limit", limit)?;
        check_span("longest", longest, "a call takes some time, for example \"2m\"")?;
        Ok(Concurrency { limit, longest })
    }

    /// Permits in flight at once. 0 refuses everything.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The longest that a call may take. A caller gives its call up by then: a permit whose holder is silent is free so
    /// long after the end of its lease.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}
