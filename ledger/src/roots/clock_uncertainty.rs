//! Stricter rules for roots. They hold by the time of the store although the allocators that keep them are up to
//! [`TimeSource::uncertainty`] behind it: windows let a permit go that much later, and calls may take that much longer.
//! A bucket waits by itself, see [`BucketLedger::doubt`](crate::rule::BucketLedger::doubt), except for how warm it is.
//! A steady flow is kept as the bucket that promises as much.

use super::TimeSource;
use crate::rule::{Concurrency, LeakyBucket, SlidingWindow, TokenBucket, WarmUp};
use crate::{Rule, RuleError};
use lessor_protocol::lease::whole_millis;
use lessor_protocol::moment::span_of;
use lessor_protocol::{Answer, Grant};
use std::time::Duration;

/// Returns `rule` as a root keeps it in a store whose time comes from `source`.
///
/// # Errors
/// If no root can keep the rule. The problem begins with the key of the configuration.
pub fn stricter(rule: &Rule, source: TimeSource) -> Result<Rule, String> {
    let uncertainty = source.uncertainty();
    let of_store = "in a store that several allocators share";
    let wrong = |key: &str, problem: &dyn std::fmt::Display| format!("{key}: {problem} {of_store}");
    match rule {
        Rule::SlidingWindow(rule) => {
            let stricter = SlidingWindow::try_new(rule.limit(), rule.per(), rule.margin() + uncertainty);
            stricter.map(Rule::SlidingWindow).map_err(|error| wrong("limit", &error))
        }
        Rule::SlidingLog(rule) => {
            let stricter = SlidingWindow::try_new(rule.limit(), rule.per(), rule.margin() + uncertainty);
            stricter.map(Rule::SlidingLog).map_err(|error| wrong("limit", &error))
        }
        Rule::FixedWindow(_) => Ok(*rule),
        Rule::TokenBucket(rule) => match rule.warm_up() {
            Some(warm_up) => warming(rule, warm_up, uncertainty),
            None => Ok(Rule::TokenBucket(*rule)),
        },
        Rule::LeakyBucket(rule) => as_bucket(rule).map_err(|error| wrong("burst", &error)),
        Rule::Concurrency(rule) => {
            let longer = Concurrency::try_new(rule.limit(), rule.longest() + uncertainty);
            longer.map(Rule::Concurrency).map_err(|error| wrong("longest", &error))
        }
    }
}

/// Returns the bucket that promises of any interval what the flow promises. Rates can be lent only by an allocator that
/// hears of all sessions that hold them, and no allocator does here. Permits are lent instead.
fn as_bucket(rule: &LeakyBucket) -> Result<Rule, RuleError> {
    // A flow of nothing lets not even its burst through.
    let burst = if rule.refill() == 0 { 0 } else { rule.burst() };
    TokenBucket::try_new(burst, rule.refill(), rule.per(), burst).map(Rule::TokenBucket)
}

/// Returns a bucket with `warm_up` that keeps `rule`. Its refill depends on how long it was idle, which no allocator
/// knows to the millisecond.
fn warming(rule: &TokenBucket, warm_up: WarmUp, uncertainty: Duration) -> Result<Rule, String> {
    let (capacity, per) = later(rule, uncertainty)?;
    let made = TokenBucket::try_new(capacity, rule.refill(), per, rule.initial().min(capacity));
    let made = made.and_then(|made| made.with_warm_up(warm_up));
    made.map(Rule::TokenBucket).map_err(|error| format!("capacity: {error}"))
}

/// Returns the capacity and the period of a bucket that keeps `rule` by the time of the store. It holds less, by what
/// it refills in `uncertainty`, or each permit takes that much longer, whichever loses the smaller share.
fn later(rule: &TokenBucket, uncertainty: Duration) -> Result<(u64, Duration), String> {
    let (capacity, refill, per) = (u128::from(rule.capacity()), u128::from(rule.refill()), rule.per());
    // All permits of a period, each later by `uncertainty`.
    let behind = refill * uncertainty.as_nanos();
    if behind == 0 || capacity == 0 {
        return Ok((rule.capacity(), per));
    }
    let refills = behind.div_ceil(per.as_nanos());
    let longer = per.as_nanos() + behind;
    // Compares the shares that are lost: `refills` of `capacity`, or `behind` of `longer`.
    let is_less_held = refills * longer <= behind * capacity;
    if is_less_held && refills * 2 <= capacity {
        return Ok((rule.capacity() - u64::try_from(refills).unwrap_or(u64::MAX), per));
    }
    if !is_less_held && behind * 2 <= longer {
        return Ok((rule.capacity(), span_of(longer)));
    }
    Err(format!(
        "capacity is {capacity}, of which a bucket with warm_up that refills {refill} every {per:?} loses more than \
         half in a shared store: use at least {}",
        refills * 2
    ))
}

/// Shortens the term in `answer` by `uncertainty`: a root goes by an early time, so it takes the lease to end that much
/// later than its session.
pub(super) fn shorter(answer: Answer, uncertainty: Duration) -> Answer {
    match answer {
        Answer::Grant(grant) => {
            Answer::Grant(Grant { term: whole_millis(grant.term.saturating_sub(uncertainty)), ..grant })
        }
        refusal @ Answer::Refusal(_) => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCERTAINTY: Duration = TimeSource::Store.uncertainty();

    fn stricter_bucket(capacity: u64, refill: u64, per: Duration) -> Result<(u64, u64, Duration), String> {
        let warm_up = WarmUp::try_new(Duration::from_secs(10), 3).expect("a curve");
        let bucket = TokenBucket::try_new(capacity, refill, per, capacity).expect("a bucket");
        let bucket = bucket.with_warm_up(warm_up).expect("it can");
        let made = stricter(&Rule::TokenBucket(bucket), TimeSource::Store)?;
        let Rule::TokenBucket(made) = made else { panic!("a bucket became {made:?}") };
        Ok((made.capacity(), made.refill(), made.per()))
    }

    #[test]
    fn windows_let_a_permit_go_later_by_as_much() {
        let (second, margin) = (Duration::from_secs(1), Duration::from_millis(5));
        let made = |margin| {
            let window = SlidingWindow::try_new(10, second, margin).expect("a window");
            [Rule::SlidingWindow(window), Rule::SlidingLog(window)]
        };
        let stricter = made(margin).map(|rule| stricter(&rule, TimeSource::Store).expect("it can be kept"));
        assert_eq!(stricter, made(margin + UNCERTAINTY));
    }

    #[test]
    fn one_that_warms_up_loses_what_costs_it_least() {
        let second = Duration::from_secs(1);
        let cases = [
            // Ten are refilled in [`UNCERTAINTY`].
            ((100, 1_000, second), (90, 1_000, second)),
            ((1_000, 1_000, second), (990, 1_000, second)),
            ((20, 1_000, second), (10, 1_000, second)),
            // One permit is half of two, while 10 ms of a second are little.
            ((2, 1, second), (2, 1, second + UNCERTAINTY)),
            ((5, 10, second), (5, 10, second + UNCERTAINTY * 10)),
            ((1, 100, second), (1, 100, second * 2)),
            ((100, 0, second), (100, 0, second)),
            ((0, 10, second), (0, 10, second)),
        ];
        for ((capacity, refill, per), made) in cases {
            assert_eq!(
                stricter_bucket(capacity, refill, per),
                Ok(made),
                "{capacity}, {refill} every {per:?}"
            );
        }
    }

    #[test]
    fn one_that_would_lose_most_of_itself_is_refused() {
        let refused = stricter_bucket(19, 1_000, Duration::from_secs(1));
        let refused = refused.expect_err("ten of 19 is more than half");
        assert!(refused.starts_with("capacity is 19") && refused.ends_with("use at least 20"), "{refused}");
        assert!(stricter_bucket(1, 1_000_000, Duration::from_secs(1)).is_err());
    }

    #[test]
    fn none_lets_more_through_in_any_span_of_the_store_than_its_rule_says() {
        for capacity in [1_u64, 2, 5, 20, 100, 1_000] {
            for refill in [1_u64, 3, 10, 99, 101, 1_000] {
                let per = Duration::from_secs(1);
                let Ok((less, refill_made, longer)) = stricter_bucket(capacity, refill, per) else {
                    continue;
                };
                assert_eq!(refill_made, refill);
                for millis in [1_u64, 9, 10, 11, 50, 333, 1_000, 1_010, 2_020, 60_000] {
                    let (nanos, blur) = (u128::from(millis) * 1_000_000, UNCERTAINTY.as_nanos());
                    // Two allocators may take a span of the store for one that is longer by [`UNCERTAINTY`].
                    let through = u128::from(less) + u128::from(refill) * (nanos + blur) / longer.as_nanos();
                    let allowed = u128::from(capacity) + u128::from(refill) * nanos / per.as_nanos();
                    assert!(through <= allowed, "{through} of {allowed}: {capacity}, {refill}, {millis} ms");
                }
            }
        }
    }
}
