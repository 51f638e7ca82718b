//! One promise of a contract. Configuration makes rules, pools keep them, `GET /v1/limits` shows them.
//! A rule holds numbers that were checked; it counts nothing and knows no time.

mod calendar;
mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod sliding_log;
mod sliding_window;
mod token_bucket;
mod warm_up;
mod zone;

pub use calendar::{Calendar, Unit};
pub use concurrency::Concurrency;
pub use fixed_window::{FixedWindow, Windows};
pub use leaky_bucket::LeakyBucket;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use token_bucket::{RefillStyle, TokenBucket};
pub use warm_up::WarmUp;
pub use zone::Zone;

use lessor_protocol::PERMITS_MAX;
use std::time::Duration;

/// One promise. Several rules on a limit must all hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At most N in any window of length W, aligned or not.
    SlidingWindow(SlidingWindow),
    /// The same, counted to the spend.
    SlidingLog(SlidingLog),
    /// At most N in each of the windows that follow each other; two neighbours may meet at their edge.
    FixedWindow(FixedWindow),
    /// At most C + debt + r·T in any interval of length T.
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
            Rule::SlidingLog(rule) => rule.limit(),
            Rule::FixedWindow(rule) => rule.limit(),
            // A bucket without room never holds the permit that it takes to go into the red.
            Rule::TokenBucket(rule) if rule.capacity() == 0 => 0,
            Rule::TokenBucket(rule) => rule.capacity() + rule.debt(),
            Rule::LeakyBucket(rule) if rule.refill() == 0 => 0,
            Rule::LeakyBucket(rule) => rule.burst(),
            Rule::Concurrency(rule) => rule.limit(),
        }
    }

    /// The steady flow, if it is one. A limit has one at most.
    pub fn flow(&self) -> Option<&LeakyBucket> {
        if let Rule::LeakyBucket(rule) = self { Some(rule) } else { None }
    }

    /// The longest that a call may take, if it caps what is in flight.
    pub fn longest(&self) -> Option<Duration> {
        if let Rule::Concurrency(rule) = self { Some(rule.longest()) } else { None }
    }

    /// The time over which it counts: its window or, of a bucket, how long it takes to fill. `None` if it has none.
    pub fn window(&self) -> Option<Duration> {
        let fills = |capacity: u64, refill: u64, per: Duration| {
            let nanos =
                per.as_nanos().saturating_mul(u128::from(capacity)).checked_div(u128::from(refill))?;
            Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
        };
        match self {
            Rule::SlidingWindow(rule) => Some(rule.per()),
            Rule::SlidingLog(rule) => Some(rule.per()),
            Rule::FixedWindow(rule) => Some(rule.per()),
            Rule::TokenBucket(rule) => fills(rule.capacity(), rule.refill(), rule.per()),
            Rule::LeakyBucket(rule) => fills(rule.burst(), rule.refill(), rule.per()),
            Rule::Concurrency(_) => None,
        }
    }

    /// Its name in configuration, on the wire and in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Rule::SlidingWindow(_) => "sliding_window",
            Rule::SlidingLog(_) => "sliding_log",
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

    #[test]
    fn options_of_a_bucket_that_exclude_each_other_are_refused() {
        let second = Duration::from_secs(1);
        let bucket = TokenBucket::try_new(10, 5, second, 10).expect("valid");
        let warm_up = WarmUp::try_new(10 * second, 3).expect("valid");
        let warm = bucket.with_warm_up(warm_up).expect("valid");
        let text = |rule: Result<TokenBucket, RuleError>| rule.expect_err("refused").to_string();
        assert!(text(warm.with_debt(1)).starts_with("debt is 1, but a bucket with warm_up has none"));
        assert!(
            text(warm.with_refill_style(RefillStyle::Interval))
                .starts_with("refill_style is \"interval\", but")
        );
        let red = bucket.with_debt(PERMITS_MAX - 9);
        assert!(text(red).starts_with("debt is 9007199254740982, too much with capacity = 10"));
        let fast = TokenBucket::try_new(10, PERMITS_MAX, second, 10).expect("valid");
        assert!(text(fast.with_warm_up(warm_up)).starts_with("warm_up.over is 10s, in which more than"));
        assert_eq!(Rule::TokenBucket(bucket.with_debt(7).expect("valid")).ceiling(), 17);
        let none = TokenBucket::try_new(0, 5, second, 0).expect("valid").with_debt(7).expect("valid");
        assert_eq!(Rule::TokenBucket(none).ceiling(), 0);
    }

    #[test]
    fn a_warm_up_that_makes_no_sense_is_refused() {
        let second = Duration::from_secs(1);
        let text = |over, factor| WarmUp::try_new(over, factor).expect_err("refused").to_string();
        assert!(text(Duration::ZERO, 3).starts_with("warm_up.over is zero"));
        assert!(text(PER_MAX + second, 3).starts_with("warm_up.over is 31622401s, longer than"));
        assert_eq!(text(second, 1), "warm_up.cold_factor is 1: use 2 to 1000");
        // 100 a second: 10 s of the ramp are 500 permits at half the rate on average.
        let warm_up = WarmUp::try_new(10 * second, 3).expect("valid");
        assert_eq!(warm_up.coldest_milli(100, second), 500_000);
    }
}
