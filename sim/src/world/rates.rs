//! The rates that rules sustain, and how long they remember a spent permit.

use lessor_ledger::Rule;
use lessor_ledger::rule::{RefillStyle, SlidingWindow, TokenBucket};
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Returns the permits a second that `rules` sustain, even while cold.
pub fn sustained(rules: &[Rule]) -> f64 {
    let rate = |count: u64, per: Duration| count as f64 / per.as_secs_f64();
    let rates = rules.iter().map(|rule| match rule {
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::Concurrency(_) => {
            rate(rule.ceiling(), rule.period())
        }
        Rule::TokenBucket(rule) if rule.capacity() == 0 => 0.0,
        Rule::TokenBucket(rule) if rule.refill_style() == RefillStyle::Interval => {
            rate(rule.refill().min(rule.capacity() + rule.debt()), rule.per())
        }
        Rule::TokenBucket(rule) => rate(rule.refill(), rule.per()) / cold_factor(rule),
        Rule::LeakyBucket(rule) if rule.burst() == 0 => 0.0,
        Rule::LeakyBucket(rule) => rate(rule.refill(), rule.per()),
    });
    rates.fold(f64::INFINITY, f64::min)
}

/// Returns the nanoseconds until a spent permit can be lent again, under all of `rules`.
pub(super) fn memory(rules: &[Rule]) -> u64 {
    let spans = rules.iter().map(|rule| match rule {
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::Concurrency(_) => {
            let margin = rule.sliding().map_or(Duration::ZERO, SlidingWindow::margin);
            nanos(rule.period() + margin) / 10 * 11
        }
        // No caller waits for permits that the bucket never gains again.
        Rule::TokenBucket(rule) if rule.refill() == 0 => nanos(rule.per()),
        Rule::TokenBucket(rule) => {
            let permits = (rule.capacity() + rule.debt()) as f64;
            let times = permits / rule.refill() as f64 * cold_factor(rule);
            // With refills at intervals, the last interval may only just have begun.
            let times = if rule.refill_style() == RefillStyle::Interval { times.ceil() + 1.0 } else { times };
            (nanos(rule.per()) as f64 * 1.1 * times) as u64
        }
        Rule::LeakyBucket(rule) => {
            (nanos(rule.per()) as f64 * 1.1 * rule.burst() as f64 / rule.refill().max(1) as f64) as u64
        }
    });
    spans.max().unwrap_or(0)
}

/// Returns by which factor `rule` may be slower than its rate until it is warm.
pub(super) fn cold_factor(rule: &TokenBucket) -> f64 {
    rule.warm_up().map_or(1.0, |warm_up| f64::from(warm_up.cold_factor()))
}
