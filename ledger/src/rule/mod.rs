//! The rules of a limit, each one promise of a contract: its checked numbers ([`Rule`]) and its books ([`Ledger`]).
//! Configuration makes rules, pools keep their books, `GET /v1/limits` shows them. Each file has one rule: what the
//! contract says, and how long permits are charged against it.

mod account;
mod calendar;
mod concurrency;
mod draw;
mod first_use;
mod fixed_window;
mod leaky_bucket;
mod ledger;
mod saved;
mod sliding_window;
pub(crate) mod token_bucket;
mod warm_up;
mod zone;

pub(crate) use account::scaled_up;
pub use account::{Account, Calls, Ends, Pace, RuleAccount};
pub use calendar::{Calendar, Unit};
pub use concurrency::{Concurrency, ConcurrencyLedger};
pub use draw::Draw;
pub(crate) use draw::THOUSAND_SECONDS;
pub use first_use::FirstUseLedger;
pub use fixed_window::{FixedLedger, FixedWindow, Windows};
pub use leaky_bucket::{Flow, FlowLedger, LeakyBucket, Part, SHARES, Speed};
pub use ledger::Ledger;
pub use saved::{At, Gap, Saved, SavedRefill, Since};
pub use sliding_window::{SlidingLedger, SlidingWindow};
pub use token_bucket::{BucketLedger, RefillStyle, TokenBucket};
pub use warm_up::WarmUp;
pub use zone::Zone;

use lessor_protocol::lease::whole_millis;
use lessor_protocol::moment::span_of;
use lessor_protocol::{PERMITS_MAX, TERM_MAX, TERM_MIN};
use std::time::Duration;

/// One promise. Several rules on a limit must all hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At most N in any window of length W, aligned or not.
    SlidingWindow(SlidingWindow),
    /// The same, but each spend counts until the window and its margin are over, to the nanosecond. The books remember
    /// every spend, which takes up to `limit` entries of memory.
    SlidingLog(SlidingWindow),
    /// At most N in each of the windows that follow each other; two neighbours may give 2N across their boundary.
    FixedWindow(FixedWindow),
    /// At most C + debt + r·T in any interval of length T.
    TokenBucket(TokenBucket),
    /// At most b + r·T in any interval of length T, evenly spaced.
    LeakyBucket(LeakyBucket),
    /// At most N in flight at any instant.
    Concurrency(Concurrency),
}

impl Rule {
    /// Returns the most permits that one call can ever take. A larger call is refused for good.
    pub fn ceiling(&self) -> u64 {
        match self {
            Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => rule.limit(),
            Rule::FixedWindow(rule) => rule.limit(),
            // A call may go into debt only while the bucket holds a permit, and this bucket never holds one.
            Rule::TokenBucket(rule) if rule.capacity() == 0 => 0,
            Rule::TokenBucket(rule) => rule.capacity() + rule.debt(),
            Rule::LeakyBucket(rule) if rule.refill() == 0 => 0,
            Rule::LeakyBucket(rule) => rule.burst(),
            Rule::Concurrency(rule) => rule.limit(),
        }
    }

    /// Returns the window if it slides, with or without a log.
    pub fn sliding(&self) -> Option<&SlidingWindow> {
        match self {
            Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => Some(rule),
            Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::LeakyBucket(_) | Rule::Concurrency(_) => None,
        }
    }

    /// Returns the window if it is fixed.
    pub fn fixed(&self) -> Option<&FixedWindow> {
        if let Rule::FixedWindow(rule) = self { Some(rule) } else { None }
    }

    /// Returns the bucket of tokens if this rule is one.
    pub fn bucket(&self) -> Option<&TokenBucket> {
        if let Rule::TokenBucket(rule) = self { Some(rule) } else { None }
    }

    /// Returns the steady flow if this rule is one. A limit has at most one.
    pub fn flow(&self) -> Option<&LeakyBucket> {
        if let Rule::LeakyBucket(rule) = self { Some(rule) } else { None }
    }

    /// Returns the longest that a call may take, if this rule caps calls in flight.
    pub fn longest(&self) -> Option<Duration> {
        if let Rule::Concurrency(rule) = self { Some(rule.longest()) } else { None }
    }

    /// Returns the length of the window, the refill period, or the longest that a call may take.
    pub fn period(&self) -> Duration {
        match self {
            Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => rule.per(),
            Rule::FixedWindow(rule) => rule.per(),
            Rule::TokenBucket(rule) => rule.per(),
            Rule::LeakyBucket(rule) => rule.per(),
            Rule::Concurrency(rule) => rule.longest(),
        }
    }

    /// Returns the time over which the rule counts: its window, or how long its bucket takes to fill. `None` if it has
    /// none.
    pub fn window(&self) -> Option<Duration> {
        let fills = |capacity: u64, refill: u64, per: Duration| {
            let nanos = (u128::from(capacity) * per.as_nanos()).checked_div(refill.into())?;
            Some(span_of(nanos))
        };
        match self {
            Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => Some(rule.per()),
            Rule::FixedWindow(rule) => Some(rule.per()),
            Rule::TokenBucket(rule) => fills(rule.capacity(), rule.refill(), rule.per()),
            Rule::LeakyBucket(rule) => fills(rule.burst(), rule.refill(), rule.per()),
            Rule::Concurrency(_) => None,
        }
    }

    /// Returns the rule's name in configuration, on the wire and in metrics.
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

/// Longest window or refill period: a leap year, so every contract in days, months or a year fits. Its nanoseconds
/// never overflow.
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

/// Terms per window, per refill of an empty bucket, or per longest call. More mean more exchanges; fewer mean that a
/// crash burns, and an idle surplus blocks, a larger share of the limit.
const TERM_PARTS: u32 = 30;

/// Term of a part of a steady flow, in intervals between permits, but at least [`FLOW_MIN`]. A shorter term spends more
/// of a turn on handing over instead of letting calls through. A longer one loses more in a crash and keeps a newcomer
/// waiting.
const FLOW_INTERVALS: u32 = 4;

/// Shortest term of a part of a steady flow, see [`FLOW_INTERVALS`].
const FLOW_MIN: Duration = Duration::from_millis(500);

/// Returns the term of leases from a pool with `rules`: what suits the shortest of them, or the steady flow if there is
/// one.
pub fn term(rules: &[Rule]) -> Duration {
    let spans = rules.iter().filter_map(|rule| rule.window().or(rule.longest()));
    let flow = rules.iter().find_map(Rule::flow);
    let interval = flow.map(|rule| rule.interval().unwrap_or(Duration::MAX));
    let flow = interval.map(|interval| interval.saturating_mul(FLOW_INTERVALS).max(FLOW_MIN));
    // A flow decides the term alone: a node's bucket is lost when its lease ends without a report, so a short window
    // beside the flow must not shorten its term.
    let term = flow.unwrap_or_else(|| spans.min().unwrap_or(Duration::MAX) / TERM_PARTS);
    whole_millis(term.clamp(TERM_MIN, TERM_MAX))
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
        assert!(
            error.expect_err("too slow").ends_with("less than one permit in 104 days: use a shorter one")
        );
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

    #[test]
    fn the_shortest_rule_decides_the_term() {
        let second = Duration::from_secs(1);
        let minute = Rule::FixedWindow(FixedWindow::try_new(100, 60 * second).expect("valid"));
        let half =
            Rule::SlidingWindow(SlidingWindow::try_new(9_000, 30 * second, Duration::ZERO).expect("valid"));
        let fast = Rule::TokenBucket(TokenBucket::try_new(1, 1, 2 * second, 1).expect("valid"));
        let never = Rule::TokenBucket(TokenBucket::try_new(1, 0, second, 1).expect("valid"));
        assert_eq!(term(&[minute]), 2 * second);
        assert_eq!(term(&[minute, half]), second);
        assert_eq!(term(&[minute, half, fast]), Duration::from_millis(66));
        assert_eq!(term(&[never]), TERM_MAX);
    }
}
