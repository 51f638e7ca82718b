//! An even part of a limit for each node. All parts add up to the limit, to the permit.

use crate::remade::{remade, with_options};
use lessor_ledger::Rule;
use lessor_ledger::rule::{LeakyBucket, TokenBucket};

/// Returns the part of `rules` for node `index` of `nodes`.
pub(super) fn share(rules: &[Rule], index: usize, nodes: usize) -> Vec<Rule> {
    let (index, nodes) = (index as u64, nodes as u64);
    // The first nodes take the remainder.
    let part = |whole: u64| whole / nodes + u64::from(index < whole % nodes);
    let times = u32::try_from(nodes).unwrap_or(u32::MAX);
    // The refill stays whole and comes less often, unless that would be less than once a year.
    let seldom = |rule: &Rule| match rule {
        Rule::TokenBucket(rule) => {
            let (capacity, initial) = (part(rule.capacity()), part(rule.initial()));
            let per = rule.per().checked_mul(times)?;
            let bucket = TokenBucket::try_new(capacity, rule.refill(), per, initial).ok()?;
            Some(with_options(bucket, rule, part(rule.debt())))
        }
        Rule::LeakyBucket(rule) => {
            let per = rule.per().checked_mul(times)?;
            LeakyBucket::try_new(part(rule.burst()), rule.refill(), per)
                .map(|rule| Ok(Rule::LeakyBucket(rule)))
                .ok()
        }
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::Concurrency(_) => None,
    };
    let share = |rule: &Rule| seldom(rule).unwrap_or_else(|| remade(rule, part, |per| per));
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
