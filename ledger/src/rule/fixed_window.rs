//! `fixed_window`: at most N in each of the windows that follow each other. What the contract says, checked; it
//! counts nothing.

use super::{Calendar, RuleError, check_per, check_permits};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// At most `limit` permits in each window. Windows do not overlap, and two neighbours may give twice the limit across
/// their edge: that is what such a contract says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    windows: Windows,
}

/// Where windows begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// `[k·per, (k+1)·per)` since the Unix epoch.
    Epoch {
        /// Their length.
        per: Duration,
    },
    /// `[t, t+per)`, where t is the first permit taken after the last window ended. No window is open before, nor
    /// between the end of one and the next permit. Under leasing a permit is taken when it is lent.
    FirstUse {
        /// Their length.
        per: Duration,
    },
    /// As a calendar on the wall shows them.
    Calendar(Calendar),
}

impl Windows {
    /// The name of their anchor in configuration; calendars have none.
    pub const fn anchor(&self) -> Option<&'static str> {
        match self {
            Windows::Epoch { .. } => Some("epoch"),
            Windows::FirstUse { .. } => Some("first_use"),
            Windows::Calendar(_) => None,
        }
    }

    /// When the window that holds `at` ends, in nanoseconds since the Unix epoch; `None` if that depends on when it
    /// was opened.
    pub fn end_after(&self, at: Moment) -> Option<Moment> {
        match self {
            Windows::Epoch { per } => {
                let per = nanos(*per).max(1);
                Some(Moment::from_nanos((at.as_nanos() / per + 1).saturating_mul(per)))
            }
            Windows::FirstUse { .. } => None,
            Windows::Calendar(calendar) => Some(calendar.end_after(at)),
        }
    }
}

impl FixedWindow {
    /// Shorter windows would leave no room for a lease, which may not outlive its window.
    pub const PER_MIN: Duration = Duration::from_millis(50);

    /// Windows of length `per` that follow each other from the Unix epoch on.
    ///
    /// # Errors
    /// If `limit` is above 2^53 − 1, or `per` is below 50 ms or above 366 days.
    pub fn try_new(limit: u64, per: Duration) -> Result<Self, RuleError> {
        Self::of(limit, Windows::Epoch { per })
    }

    /// Windows as `windows` says.
    ///
    /// # Errors
    /// As [`FixedWindow::try_new`].
    pub fn of(limit: u64, windows: Windows) -> Result<Self, RuleError> {
        check_permits("limit", limit)?;
        match windows {
            Windows::Epoch { per } | Windows::FirstUse { per } => {
                check_per(per)?;
                if per < Self::PER_MIN {
                    let problem =
                        format!("is {per:?}, no lease fits in it: use at least {:?}", Self::PER_MIN);
                    return Err(RuleError { field: "per", problem });
                }
            }
            Windows::Calendar(_) => {}
        }
        Ok(FixedWindow { limit, windows })
    }

    /// Permits per window. 0 refuses everything.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Where windows begin and end.
    pub fn windows(&self) -> Windows {
        self.windows
    }

    /// Length of a window; of a calendar's, the longest that one can be.
    pub fn per(&self) -> Duration {
        match self.windows {
            Windows::Epoch { per } | Windows::FirstUse { per } => per,
            Windows::Calendar(calendar) => calendar.longest(),
        }
    }
}
