//! `sliding_log`: at most N in any window, with each spend counted apart. These are the checked numbers of the
//! contract; a [`super::SlidingLedger`] keeps the books.

use super::{RuleError, SlidingWindow};
use std::time::Duration;

/// At most `limit` permits in any window of length `per`. Unlike a [`SlidingWindow`] it does not round: each spend
/// counts until the window and its margin are over, to the nanosecond. It remembers every spend, which takes up to
/// `limit` entries of memory.
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

    pub(super) fn window(&self) -> &SlidingWindow {
        &self.window
    }

    /// Permits per window. 0 refuses everything.
    pub fn limit(&self) -> u64 {
        self.window.limit()
    }

    /// Length of the window, as the contract says it.
    pub fn per(&self) -> Duration {
        self.window.per()
    }

    /// Longest time that may pass between a spend and the vendor's count.
    pub fn margin(&self) -> Duration {
        self.window.margin()
    }
}
