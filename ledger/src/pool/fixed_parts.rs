//! Parts of a limit's rules that cannot change while permits are out. A change of one of them resets the limit.

use crate::Rule;
use crate::rule::LeakyBucket;
use std::time::Duration;

/// Parts of rules that cannot change while permits are out: a limit can only carry on with equal parts.
#[derive(Debug, PartialEq)]
pub struct FixedParts {
    /// Steady flows, whose rates are lent.
    flows: Vec<LeakyBucket>,
    /// The longest call of each cap on calls in flight.
    longest: Vec<Duration>,
}

impl FixedParts {
    /// Returns these parts of `rules`.
    pub fn of(rules: &[Rule]) -> Self {
        let flows = rules.iter().filter_map(Rule::flow).copied().collect();
        FixedParts { flows, longest: rules.iter().filter_map(Rule::longest).collect() }
    }
}
