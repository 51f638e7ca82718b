//! Numbers by node name, or by how the name begins. Weights, priorities and guarantees are written so. The allocator
//! looks them up once an ask; what a node claims of itself never enters.

use lessor_protocol::NodeName;

/// Numbers by the names of nodes, or by how names begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByNode {
    /// Whole names first, then beginnings with the longest first. So the first entry that fits is the closest.
    entries: Vec<Entry>,
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
        entries.sort_by(|a, b| {
            let longest_first = b.stem.len().cmp(&a.stem.len()).then_with(|| a.stem.cmp(&b.stem));
            b.is_whole.cmp(&a.is_whole).then(longest_first)
        });
        ByNode { entries }
    }

    /// Returns the index of the entry that `node` belongs to.
    pub fn group(&self, node: &NodeName) -> Option<usize> {
        let fits = |entry: &Entry| {
            if entry.is_whole { node.as_str() == entry.stem } else { node.as_str().starts_with(&entry.stem) }
        };
        self.entries.iter().position(fits)
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
}
