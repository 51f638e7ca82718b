//! Numbers by node name, or by how the name begins. Weights, priorities and guarantees are written so. The allocator
//! looks them up once an ask; what a node claims of itself never enters.

use lessor_protocol::NodeName;
use std::cmp::Ordering;

/// Numbers by the names of nodes, or by how names begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByNode {
    /// Whole names first, then beginnings with the longest first. So the first entry that fits is the closest.
    entries: Vec<Entry>,
    /// The number of whole names.
    whole: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    stem: String,
    is_whole: bool,
    number: u64,
}

impl ByNode {
    /// Makes the numbers from patterns. A pattern is a name, or how names begin followed by `*`.
    pub fn new(pairs: &[(&str, u64)]) -> Self {
        let entry = |&(pattern, number): &(&str, u64)| match pattern.strip_suffix('*') {
            Some(stem) => Entry { stem: stem.to_owned(), is_whole: false, number },
            None => Entry { stem: pattern.to_owned(), is_whole: true, number },
        };
        let mut entries: Vec<Entry> = pairs.iter().map(entry).collect();
        entries.sort_by(|a, b| b.is_whole.cmp(&a.is_whole).then_with(|| longest_first(&a.stem, &b.stem)));
        let whole = entries.iter().filter(|entry| entry.is_whole).count();
        ByNode { entries, whole }
    }

    /// Returns the index of the entry that `node` belongs to. Whole names are looked up, patterns are gone through.
    pub fn group(&self, node: &NodeName) -> Option<usize> {
        let (whole, patterns) = self.entries.split_at(self.whole);
        let own = whole.binary_search_by(|entry| longest_first(&entry.stem, node.as_str())).ok();
        own.or_else(|| {
            let fits = patterns.iter().position(|entry| node.as_str().starts_with(&entry.stem));
            fits.map(|index| self.whole + index)
        })
    }

    /// Returns the number of `node`, if it has one.
    pub fn of(&self, node: &NodeName) -> Option<u64> {
        self.group(node).map(|group| self.entries[group].number)
    }

    /// Returns all numbers, in the order of groups.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| entry.number)
    }

    /// Returns the patterns as they were written, with their numbers.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (String, u64)> {
        let pattern = |entry: &Entry| {
            let star = if entry.is_whole { "" } else { "*" };
            (format!("{}{star}", entry.stem), entry.number)
        };
        self.entries.iter().map(pattern)
    }
}

fn longest_first(a: &str, b: &str) -> Ordering {
    b.len().cmp(&a.len()).then_with(|| a.cmp(b))
}

/// Checks one pattern; says what is wrong with it.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), String> {
    let stem = pattern.strip_suffix('*').unwrap_or(pattern);
    if !(stem.is_empty() && pattern == "*") {
        NodeName::try_new(stem).map_err(|error| format!("{error}: use a node name, or a prefix and a *"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_pattern_decides() {
        let pairs = [("*", 2), ("check*", 3), ("checkout-*", 4), ("checkout-7", 5)];
        let by_node = ByNode::new(&pairs);
        for (name, number) in [("search-1", 2), ("checker", 3), ("checkout-1", 4), ("checkout-7", 5)] {
            assert_eq!(by_node.of(&NodeName::try_new(name).expect("valid")), Some(number), "{name}");
        }
        let name = NodeName::try_new("search-1").expect("valid");
        assert_eq!(ByNode::default().of(&name), None);
        assert_eq!(by_node.group(&name), Some(3));
        assert_eq!(by_node.numbers().collect::<Vec<_>>(), [5, 4, 3, 2]);
    }

    #[test]
    fn each_whole_name_is_found_among_thousands() {
        let names: Vec<String> = (0..3_000).map(|n| format!("node-{n}")).collect();
        let mut pairs: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(0..).collect();
        pairs.push(("node-1*", 9_999));
        let by_node = ByNode::new(&pairs);
        let of = |name: &str| by_node.of(&NodeName::try_new(name).expect("valid"));
        for (name, number) in names.iter().zip(0..) {
            assert_eq!(of(name), Some(number), "{name}");
        }
        assert_eq!((of("node-19999"), of("node-29999")), (Some(9_999), None));
    }
}
