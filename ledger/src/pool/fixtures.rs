//! Parts of a limit's rules that cannot change while permits are out. A change of one of them resets the limit.

use crate::Rule;
use crate::rule::LeakyBucket;
use std::time::Duration;

/// Parts of rules that cannot change while permits are out: a limit whose fixtures change starts over.
#[derive(Debug, PartialEq)]
pub struct Fixtures {
    flows: Vec<LeakyBucket>,
    longest: Vec<Duration>,
}

impl Fixtures {
    /// Returns the fixtures of `rules`.
    pub fn of(rules: &[Rule]) -> Self {
        let mut fixtures = Fixtures { flows: vec![], longest: vec![] };
        for rule in rules {
            match rule {
                Rule::LeakyBucket(rule) => fixtures.flows.push(*rule),
                Rule::Concurrency(rule) => fixtures.longest.push(rule.longest()),
                Rule::SlidingWindow(_)
                | Rule::SlidingLog(_)
                | Rule::FixedWindow(_)
                | Rule::TokenBucket(_) => {}
            }
        }
        fixtures
    }

    /// Whether a limit with these fixtures can carry on with `others`.
    pub fn go_on_as(&self, others: &Fixtures) -> bool {
        self.flows == others.flows && self.longest == others.longest
    }
}
