//! One promise of a contract. Configuration makes rules, pools keep them, `GET /v1/limits` shows them.
//! A rule holds numbers that were checked; it counts nothing and knows no time.

mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod sliding_window;
mod token_bucket;

pub use concurrency::Concurrency;
pub use fixed_window::FixedWindow;
pub use leaky_bucket::LeakyBucket;
pub use sliding_window::SlidingWindow;
pub use token_bucket::TokenBucket;

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
    /// At most b + r·T in any interval of length T, evenly spaced.
    LeakyBucket(LeakyBucket),
    /// At most N in flight at any instant.
    Concurrency(Concurrency),
}

impl Rule {
    /// The most that one call can ever take; a larger call is refused for good.
    pub fn ceiling(&self) -> u64 {
        match self {
            Rule::SlidingWindow(rule) => rule.limit(),
            Rule::FixedWindow(rule) => rule.limit(),
            Rule::TokenBucket(rule) => rule.capacity(),
            Rule::LeakyBucket(rule) if rule.refill() == 0 => 0,
            Rule::LeakyBucket(rule) => rule.burst(),
            Rule::Concurrency(rule) => rule.limit(),
        }
    }

    /// The steady flow, if it is one. A limit has one at most.
    pub fn flow(&self) -> Option<&LeakyBucket> {
        if let Rule::LeakyBucket(rule) = self { Some(rule) } else { None }
    }

    /// Its name in configuration, on the wire and in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Rule::SlidingWindow(_) => "sliding_window",
            Rule::FixedWindow(_) => "fixed_window",
            Rule::TokenBucket(_) => "token_bucket",
            Rule::LeakyBucket(_) => "leaky_bucket",
            Rule::Concurrency(_) => "concurrency",
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

fn check_permits(field: &'static str, value: u64) -> Result<(), RuleError> {
    if value > PERMITS_MAX {
        let problem = format!("is {value}, more than {PERMITS_MAX} (2^53 - 1), the most that can be counted");
        return Err(RuleError { field, problem });
    }
    Ok(())
}

fn check_per(per: Duration) -> Result<(), RuleError> {
    check_span("per", per, "a window needs a length, for example \"30s\"")
}

fn check_span(field: &'static str, span: Duration, needs: &str) -> Result<(), RuleError> {
    let problem = if span.is_zero() {
        format!("is zero: {needs}")
    } else if span > PER_MAX {
        format!("is {span:?}, longer than {PER_MAX:?} (366 days)")
    } else {
        return Ok(());
    };
    Err(RuleError { field, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_legal_where_it_refuses_everything() {
        let second = Duration::from_secs(1);
        assert!(SlidingWindow::try_new(0, second, Duration::ZERO).is_ok());
        assert!(TokenBucket::try_new(0, 0, second, 0).is_ok());
        let still = LeakyBucket::try_new(5, 0, second).expect("legal");
        assert_eq!((still.interval(), Rule::LeakyBucket(still).ceiling()), (None, 0));
    }

    #[test]
    fn an_interval_is_never_shorter_than_the_contract_says() {
        let second = Duration::from_secs(1);
        let third = LeakyBucket::try_new(1, 3, second).expect("legal");
        assert_eq!(third.interval(), Some(Duration::from_nanos(333_333_334)));
        let tenth = LeakyBucket::try_new(1, 10, second).expect("legal");
        assert_eq!(tenth.interval(), Some(Duration::from_millis(100)));
        assert!(Concurrency::try_new(0, second).is_ok());
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
        let error = LeakyBucket::try_new(1, 1, 200 * 86_400 * second).map_err(text);
        assert!(error.expect_err("too slow").ends_with("is less than one in 104 days"));
        let error = FixedWindow::try_new(1, Duration::from_millis(49)).map_err(text);
        assert!(error.expect_err("too short").starts_with("per is 49ms, no lease fits"));
        let error = Concurrency::try_new(1, Duration::ZERO).map_err(text);
        assert!(error.expect_err("no time").starts_with("longest is zero: a call takes some time"));
    }
}
