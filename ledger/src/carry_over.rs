//! How a balance is carried over when its limit is changed while leases are out. Operators choose a mode, and ledgers
//! apply it. No mode takes back a lease: what is out stays charged until it ends.

use crate::Rule;

lessor_protocol::words! {
    /// The way in which the balance of a rule is carried over into a rule of the same kind and period. The wire and the
    /// command line have its word.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum CarryOver {
        /// Charges stay; the level of a bucket is cut to its capacity.
        #[default]
        AsIs = "as_is",
        /// What is left stays the same part of the limit.
        Proportional = "proportional",
        /// What is left changes by as much as the limit.
        Additive = "additive",
        /// The rule begins anew, with what is out charged to it.
        Reset = "reset",
    }
}

/// Returns the balance that each of `rules` takes over from the `old` rules; `None` for a rule that finds none.
///
/// An equal rule keeps its balance. Any other rule takes over a copy of the balance that lends least, of those that no
/// equal rule keeps: where several rules changed at once, no order says which of them became which.
///
/// `go_on` returns the balance of an old rule under another one if both are of the same kind and period. `lends` orders
/// balances by what they lend.
pub fn carried<B, L: Ord>(
    old: &[(Rule, B)],
    rules: &[Rule],
    mut go_on: impl FnMut(&(Rule, B), &Rule) -> Option<B>,
    mut lends: impl FnMut(&B) -> L,
) -> Vec<Option<B>> {
    let mut open: Vec<&(Rule, B)> = old.iter().collect();
    let mut least = |open: &[&(Rule, B)], rule: &Rule, is_equal: bool| {
        let fit = open.iter().enumerate().filter(|(_, (before, _))| !is_equal || before == rule);
        let fit = fit.filter_map(|(place, old)| Some((place, go_on(old, rule)?)));
        fit.min_by_key(|(_, balance)| lends(balance))
    };
    let equal = rules.iter().map(|rule| {
        let (place, balance) = least(&open, rule, true)?;
        open.remove(place);
        Some(balance)
    });
    let equal: Vec<Option<B>> = equal.collect();
    let all = rules.iter().zip(equal);
    all.map(|(rule, equal)| equal.or_else(|| Some(least(&open, rule, false)?.1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, SECOND};

    fn bucket(capacity: u64) -> Rule {
        fixtures::bucket(capacity, 1, SECOND)
    }

    fn window(limit: u64) -> Rule {
        fixtures::sliding(limit, SECOND)
    }

    /// Carries over plain numbers, between rules of the same kind.
    fn levels(old: &[(Rule, u64)], rules: &[Rule]) -> Vec<Option<u64>> {
        let go_on =
            |(before, level): &(Rule, u64), rule: &Rule| (before.kind() == rule.kind()).then_some(*level);
        carried(old, rules, go_on, |level| *level)
    }

    #[test]
    fn an_equal_rule_keeps_its_balance_and_others_take_the_least_that_is_left() {
        let old = [(bucket(100), 90), (window(5), 3), (bucket(10), 0), (bucket(20), 7)];
        assert_eq!(levels(&old, &[bucket(20), bucket(100)]), [Some(7), Some(90)]);
        assert_eq!(levels(&old, &[bucket(30), bucket(10)]), [Some(7), Some(0)], "10 keeps its own");
        assert_eq!(levels(&old, &[bucket(30), bucket(40)]), [Some(0); 2], "either may be the bucket of 10");
        assert_eq!(levels(&old, &[window(6), bucket(100)]), [Some(3), Some(90)]);
        assert_eq!(levels(&old[1..2], &[window(5), window(6), bucket(1)]), [Some(3), None, None]);
        assert_eq!(levels(&[(window(5), 3), (window(5), 1)], &[window(5)]), [Some(1)]);
    }

    #[test]
    fn each_is_named_by_its_own_word() {
        let named = ["as_is", "proportional", "additive", "reset"].map(CarryOver::named);
        assert_eq!(named, CarryOver::ALL.map(Some));
        assert_eq!(CarryOver::ALL.map(CarryOver::name), ["as_is", "proportional", "additive", "reset"]);
        assert_eq!(CarryOver::named(""), None);
    }
}
