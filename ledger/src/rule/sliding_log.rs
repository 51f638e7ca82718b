//! `sliding_log`: at most N in any window, counted to the spend. What the contract says, checked; it counts nothing.

use super::{RuleError, SlidingWindow};
use std::time::Duration;

/// At most `limit` permits in any window of length `per`, as [`SlidingWindow`] promises it, without its rounding: each
/// spend counts until exactly `per` after it and not a nanosecond longer. It remembers every one of them, which takes
/// up to `limit` entries of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    window: SlidingWindow,
}

impl SlidingLog {
    /// Checks the numbers.
    ///
    /// # Errors
    /// As [`SlidingWindow::try_new`].
    pub fn try_new(limit: u64, per: Duration, margin: Duration) -> Result<Self, RuleError> {
        SlidingWindow::try_new(limit, per, margin).map(|window| SlidingLog { window })
    }

    /// Permits per window. 0 refuses everything.
    pub fn limit(&self) -> u64 {
        self.window.limit()
    }

    /// Length of the window, as the contract says it.
    pub fn per(&self) -> Duration {
        self.window.per()
    }

    /// What may pass between a spend and the vendor counting it.
    pub fn margin(&self) -> Duration {
        self.window.margin()
    }
}
