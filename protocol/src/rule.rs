//! One promise of a contract. Configuration makes rules, pools keep them, `GET /v1/limits` shows them.
//! A rule holds numbers that were checked; it counts nothing and knows no time.

use crate::PERMITS_MAX;
use std::time::Duration;

/// One promise. Several rules on a limit must all hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At most N in any window of length W, aligned or not.
    SlidingWindow(SlidingWindow),
    /// At most N in each window `[k·W, (k+1)·W)` since the Unix epoch; two neighbours may meet at their edge.
    FixedWindow(FixedWindow),
    /// At most C + r·T in any interval of length T.
    TokenBucket(TokenBucket),
}

impl Rule {
    /// The most that one call can ever take; a larger call is refused for good.
    pub fn ceiling(&self) -> u64 {
        match self {
            Rule::SlidingWindow(rule) => rule.limit,
            Rule::FixedWindow(rule) => rule.limit,
            Rule::TokenBucket(rule) => rule.capacity,
        }
    }

    /// Its name in configuration, on the wire and in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Rule::SlidingWindow(_) => "sliding_window",
            Rule::FixedWindow(_) => "fixed_window",
            Rule::TokenBucket(_) => "token_bucket",
        }
    }
}

/// Why a rule was refused: which field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct RuleError {
    /// The field of the rule.
    pub field: &'static str,
    /// What is wrong, with the value and what would be right.
    pub problem: String,
}

/// Longest window or refill period. Everything a contract says in days fits; nanoseconds of it never overflow.
pub const PER_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

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

fn check_permits(field: &'static str, value: u64) -> Result<(), RuleError> {
    if value > PERMITS_MAX {
        let problem = format!("is {value}, more than {PERMITS_MAX} (2^53 - 1), the most that can be counted");
        return Err(RuleError { field, problem });
    }
    Ok(())
}

fn check_per(per: Duration) -> Result<(), RuleError> {
    let problem = if per.is_zero() {
        "is zero: a window needs a length, for example \"30s\"".to_owned()
    } else if per > PER_MAX {
        format!("is {per:?}, longer than {PER_MAX:?} (366 days)")
    } else {
        return Ok(());
    };
    Err(RuleError { field: "per", problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_legal_where_it_refuses_everything() {
        let second = Duration::from_secs(1);
        assert!(SlidingWindow::try_new(0, second, Duration::ZERO).is_ok());
        assert!(TokenBucket::try_new(0, 0, second, 0).is_ok());
    }

    #[test]
    fn a_refused_rule_names_field_and_value() {
        let second = Duration::from_secs(1);
        let text = |error: RuleError| error.to_string();
        let error = SlidingWindow::try_new(1 << 53, second, Duration::ZERO).map_err(text);
        assert!(error.expect_err("too many").starts_with("limit is 9007199254740992, more than"));
        let error = SlidingWindow::try_new(1, second, Duration::from_secs(2)).map_err(text);
        assert!(error.expect_err("margin").starts_with("margin is 2s, longer than the window itself (1s)"));
        let error = TokenBucket::try_new(1, 1, Duration::ZERO, 1).map_err(text);
        assert!(error.expect_err("no period").starts_with("per is zero"));
        let error = TokenBucket::try_new(1, 1, second, 2).map_err(text);
        assert!(error.expect_err("overfull").starts_with("initial is 2, more than the bucket holds"));
        let error = FixedWindow::try_new(1, Duration::from_millis(49)).map_err(text);
        assert!(error.expect_err("too short").starts_with("per is 49ms, no lease fits"));
    }
}
