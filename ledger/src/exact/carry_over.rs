//! What becomes of the books when the rules of a limit are changed while it runs. Rules are matched by kind and
//! period: what has no match starts fresh, and what has lost its match is forgotten.

use super::{Exact, exact};
use crate::{CarryOver, Rule};
use lessor_protocol::Moment;
use std::mem::discriminant;
use std::time::Duration;

/// The books of `rules`, from those that were kept for `old`.
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

/// Whether two rules are of one kind and period. Windows that follow another calendar are other windows.
fn is_same(one: &Rule, other: &Rule) -> bool {
    if let (Rule::FixedWindow(one), Rule::FixedWindow(other)) = (one, other) {
        return one.windows() == other.windows();
    }
    discriminant(one) == discriminant(other) && period(one) == period(other)
}

/// Over what it counts; what is in flight is counted at each instant.
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
