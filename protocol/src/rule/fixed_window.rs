//! `fixed_window`: at most N in each of the windows that follow each other. What the contract says, checked; it
//! counts nothing.

use super::{RuleError, check_per, check_permits};
use std::time::Duration;

/// At most `limit` permits in each window of length `per`, counted from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    per: Duration,
}

impl FixedWindow {
    /// Shorter windows would leave no room for a lease, which may not outlive its window.
    pub const PER_MIN: Duration = Duration::from_millis(50);

    /// Checks the numbers.
    ///
    /// # Errors
    /// If `limit` is above 2^53 − 1, or `per` is below 50 ms or above 366 days.
    pub fn try_new(limit: u64, per: Duration) -> Result<Self, RuleError> {
        check_permits("limit", limit)?;
        check_per(per)?;
        if per < Self::PER_MIN {
            let problem = format!("is {per:?}, no lease fits in it: use at least {:?}", Self::PER_MIN);
            return Err(RuleError { field: "per", problem });
        }
        Ok(FixedWindow { limit, per })
    }

    /// Permits per window. 0 refuses everything.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of the window.
    pub fn per(&self) -> Duration {
        self.per
    }
}
