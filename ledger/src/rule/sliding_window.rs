//! `sliding_window`: at most N in any window. What the contract says, checked; it counts nothing.

use super::{RuleError, check_per, check_permits};
use std::time::Duration;

/// At most `limit` permits in any window of length `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u64,
    per: Duration,
    margin: Duration,
}

impl SlidingWindow {
    /// What may pass between a spend and the vendor counting it, where the operator says nothing else: most
    /// calls arrive within a quarter of a second of being admitted. More costs that share of the window.
    pub const MARGIN: Duration = Duration::from_millis(250);

    /// Checks the numbers.
    ///
    /// # Errors
    /// If `limit` is above 2^53 − 1, `per` is zero or above 366 days, or `margin` is longer than `per`.
    pub fn try_new(limit: u64, per: Duration, margin: Duration) -> Result<Self, RuleError> {
        check_permits("limit", limit)?;
        check_per(per)?;
        if margin > per {
            let problem =
                format!("is {margin:?}, longer than the window itself ({per:?}): use a shorter margin");
            return Err(RuleError { field: "margin", problem });
        }
        Ok(SlidingWindow { limit, per, margin })
    }

    /// Permits per window. 0 refuses everything.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of the window, as the contract says it.
    pub fn per(&self) -> Duration {
        self.per
    }

    /// What may pass between a spend and the vendor counting it.
    pub fn margin(&self) -> Duration {
        self.margin
    }
}
