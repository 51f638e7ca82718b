//! An even part of a limit for each node. All parts add up to the limit, to the permit.

use lessor_ledger::Rule;
use lessor_ledger::rule::{Concurrency, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket};

/// Returns the part of `rules` for node `index` of `nodes`.
pub(super) fn share(rules: &[Rule], index: usize, nodes: usize) -> Vec<Rule> {
    let (index, nodes) = (index as u64, nodes as u64);
    // The first nodes take the remainder.
    let part = |whole: u64| whole / nodes + u64::from(index < whole % nodes);
    let share = |rule: &Rule| match rule {
        Rule::SlidingWindow(rule) => {
            SlidingWindow::try_new(part(rule.limit()), rule.per(), rule.margin()).map(Rule::SlidingWindow)
        }
        Rule::SlidingLog(rule) => {
            SlidingWindow::try_new(part(rule.limit()), rule.per(), rule.margin()).map(Rule::SlidingLog)
        }
        Rule::Concurrency(rule) => {
            Concurrency::try_new(part(rule.limit()), rule.longest()).map(Rule::Concurrency)
        }
        Rule::FixedWindow(rule) => FixedWindow::of(part(rule.limit()), rule.windows()).map(Rule::FixedWindow),
        Rule::TokenBucket(rule) => {
            let (capacity, initial) = (part(rule.capacity()), part(rule.initial()));
            // The refill stays whole and comes less often, unless that would be less than once a year.
            let per = rule.per().checked_mul(u32::try_from(nodes).unwrap_or(u32::MAX));
            let seldom = per.and_then(|per| TokenBucket::try_new(capacity, rule.refill(), per, initial).ok());
            let evenly = || TokenBucket::try_new(capacity, part(rule.refill()), rule.per(), initial);
            let bucket = seldom.map_or_else(evenly, Ok);
            let bucket = bucket.and_then(|bucket| bucket.with_refill_style(rule.refill_style()));
            let bucket = bucket.and_then(|bucket| bucket.with_debt(part(rule.debt())));
            let warm = |bucket: TokenBucket| {
                rule.warm_up().map_or(Ok(bucket), |warm_up| bucket.with_warm_up(warm_up))
            };
            bucket.and_then(warm).map(Rule::TokenBucket)
        }
        Rule::LeakyBucket(rule) => {
            let per = rule.per().checked_mul(u32::try_from(nodes).unwrap_or(u32::MAX));
            let seldom =
                per.and_then(|per| LeakyBucket::try_new(part(rule.burst()), rule.refill(), per).ok());
            let evenly = || LeakyBucket::try_new(part(rule.burst()), part(rule.refill()), rule.per());
            seldom.map_or_else(evenly, Ok).map(Rule::LeakyBucket)
        }
    };
    rules.iter().map(|rule| share(rule).expect("a part of a rule is a rule")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::parse_rules;

    #[test]
    fn shares_add_up_to_the_limit() {
        let text = "sliding_window 100/1s + fixed_window 7/1h + token_bucket 5/1s capacity 31";
        let rules = parse_rules(text).expect("rules");
        let shares: Vec<Vec<Rule>> = (0..8).map(|index| share(&rules, index, 8)).collect();
        let sum = |rule: usize| shares.iter().map(|share| share[rule].ceiling()).sum::<u64>();
        assert_eq!([sum(0), sum(1), sum(2)], [100, 7, 31]);
        let rates = shares.iter().map(|share| crate::world::sustained(&share[2..]));
        assert!((rates.sum::<f64>() - 5.0).abs() < 1e-9);
    }
}
