//! What becomes of the books when the rules of a limit are changed while it runs. Rules are matched by kind and period.
//! A rule without a match starts fresh, and books that have lost their match are forgotten.

use super::{Exact, exact};
use crate::{CarryOver, Rule};
use lessor_protocol::Moment;
use std::mem::discriminant;
use std::time::Duration;

/// Returns the books of `rules`, from those that were kept for the `old` rules.
pub(super) fn carried(
    old: &[(Rule, Box<dyn Exact>)],
    rules: &[Rule],
    carry_over: CarryOver,
    now: Moment,
) -> Vec<(Rule, Box<dyn Exact>)> {
    let mut open: Vec<&(Rule, Box<dyn Exact>)> = old.iter().collect();
    let next = rules.iter().map(|rule| {
        let books = match open.iter().position(|(old, _)| is_same(old, rule)) {
            Some(place) => open.remove(place).1.carried(rule, carry_over),
            None => exact(rule, now),
        };
        (*rule, books)
    });
    next.collect()
}

/// Whether two rules have the same kind and period. Fixed windows must follow the same epoch or calendar.
fn is_same(one: &Rule, other: &Rule) -> bool {
    if let (Rule::FixedWindow(one), Rule::FixedWindow(other)) = (one, other) {
        return one.windows() == other.windows();
    }
    discriminant(one) == discriminant(other) && period(one) == period(other)
}

/// Returns the time over which `rule` counts. Calls in flight are counted at each instant.
fn period(rule: &Rule) -> Duration {
    match rule {
        Rule::SlidingWindow(rule) => rule.per(),
        Rule::SlidingLog(rule) => rule.per(),
        Rule::FixedWindow(rule) => rule.per(),
        Rule::TokenBucket(rule) => rule.per(),
        Rule::LeakyBucket(rule) => rule.per(),
        Rule::Concurrency(_) => Duration::ZERO,
    }
}
