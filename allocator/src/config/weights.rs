//! Who counts for more when permits are scarce: weights by node name, or by how the name begins. The allocator
//! looks them up once an ask; a node's own claims never enter.

use lessor_protocol::NodeName;

/// The largest weight. One node that counts for a million has everything already.
const WEIGHT_MAX: u64 = 1_000_000;

/// What a node counts for, by its name; 1 where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Whole names.
    names: Vec<(String, u64)>,
    /// How names begin; longest first, so that the first that fits is the closest.
    prefixes: Vec<(String, u64)>,
}

impl Weights {
    /// From patterns that were checked: a name, or how names begin followed by `*`.
    pub(super) fn new(pairs: &[(&str, u64)]) -> Self {
        let mut weights = Weights::default();
        for &(pattern, weight) in pairs {
            match pattern.strip_suffix('*') {
                Some(prefix) => weights.prefixes.push((prefix.to_owned(), weight)),
                None => weights.names.push((pattern.to_owned(), weight)),
            }
        }
        weights.prefixes.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        weights
    }

    /// What `node` counts for.
    pub fn of(&self, node: &NodeName) -> u64 {
        let name = node.as_str();
        let exact = self.names.iter().find(|(known, _)| known == name);
        let fits = || self.prefixes.iter().find(|(prefix, _)| name.starts_with(prefix));
        exact.or_else(fits).map_or(1, |&(_, weight)| weight)
    }

    /// The patterns and their weights, as they were written.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (String, u64)> {
        let names = self.names.iter().cloned();
        let prefixes = self.prefixes.iter();
        names.chain(prefixes.map(|(prefix, weight)| (format!("{prefix}*"), *weight)))
    }
}

/// Checks one pattern and its weight; says what is wrong with it.
pub(super) fn check(pattern: &str, weight: u64) -> Result<(), String> {
    let stem = pattern.strip_suffix('*').unwrap_or(pattern);
    if !(stem.is_empty() && pattern == "*") {
        NodeName::try_new(stem)
            .map_err(|error| format!("{error}: use a node name, or how names begin and a *"))?;
    }
    if weight == 0 || weight > WEIGHT_MAX {
        return Err(format!("is {weight}: use a weight from 1 to {WEIGHT_MAX}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_pattern_decides() {
        let weights = Weights::new(&[("*", 2), ("check*", 3), ("checkout-*", 4), ("checkout-7", 5)]);
        for (name, weight) in [("search-1", 2), ("checker", 3), ("checkout-1", 4), ("checkout-7", 5)] {
            assert_eq!(weights.of(&NodeName::try_new(name).expect("valid")), weight, "{name}");
        }
        let name = NodeName::try_new("search-1").expect("valid");
        assert_eq!(Weights::default().of(&name), 1);
    }
}
