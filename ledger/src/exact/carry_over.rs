//! What becomes of the books when the rules of a limit are changed while it runs. Rules are matched by kind and period.
//! A rule without a match starts fresh, and books that have lost their match are forgotten.

use super::{Exact, exact};
use crate::{CarryOver, Rule};
use lessor_protocol::Moment;
use std::cmp::Reverse;
use std::mem::discriminant;

/// Returns the books of `rules`, from those that were kept for the `old` rules.
pub(super) fn carried(
    old: &[(Rule, Box<dyn Exact>)],
    rules: &[Rule],
    carry_over: CarryOver,
    now: Moment,
) -> Vec<(Rule, Box<dyn Exact>)> {
    let go_on = |(old, books): &(Rule, Box<dyn Exact>), rule: &Rule| {
        is_same(old, rule).then(|| books.carried(rule, carry_over))
    };
    let carried = rules.iter().zip(crate::carry_over::carried(old, rules, go_on, |books| lends(&**books)));
    carried.map(|(rule, books)| (*rule, books.unwrap_or_else(|| exact(rule, now)))).collect()
}

/// Orders books by what can be taken: the permits there now, and then when there is another one.
fn lends(books: &dyn Exact) -> (u64, Reverse<Moment>) {
    let available = books.available();
    let next = books.ready_at(available.saturating_add(1));
    (available, Reverse(next.unwrap_or(Moment::NEVER)))
}

/// Whether two rules have the same kind and period. Fixed windows must follow the same epoch or calendar.
fn is_same(one: &Rule, other: &Rule) -> bool {
    if let (Rule::FixedWindow(one), Rule::FixedWindow(other)) = (one, other) {
        return one.windows() == other.windows();
    }
    // Calls in flight are counted at each instant.
    let is_as_long = one.period() == other.period() || one.longest().is_some();
    discriminant(one) == discriminant(other) && is_as_long
}
