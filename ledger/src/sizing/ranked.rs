//! Entries in order, with prefix sums. Adding, removing and finding how far a sum reaches take time logarithmic in the
//! number of entries. It knows nothing of what entries mean.
//!
//! It is a treap: a search tree by rank, and a heap by a scattered number for each entry. Each node has the sum of its subtree.

use std::cmp::Ordering;
use std::fmt::{self, Debug};

/// A value that has a rank and adds up.
pub(crate) trait Entry: Copy + Debug {
    /// Sum of entries.
    type Sum: Copy + Debug + Default;

    /// Compares two entries by which comes first. No two entries that are kept are equal.
    fn rank(&self, other: &Self) -> Ordering;

    /// Returns what the entry adds to a sum.
    fn sum(&self) -> Self::Sum;

    /// Returns the sum of both.
    fn join(one: Self::Sum, other: Self::Sum) -> Self::Sum;

    /// Returns the sum `all` without its part `part`.
    fn less(all: Self::Sum, part: Self::Sum) -> Self::Sum;
}

/// Entries in their order.
#[derive(Clone)]
pub(crate) struct Ranked<E: Entry> {
    nodes: Vec<Node<E>>,
    root: Link,
    /// First unused node; each has the next one in `left`.
    free: Link,
    drawn: u64,
}

/// The place of a node; [`NONE`] for no node.
type Link = u32;

const NONE: Link = Link::MAX;

#[derive(Clone)]
struct Node<E: Entry> {
    entry: E,
    /// Sum of the entry and of all entries below.
    sum: E::Sum,
    /// Place in the heap: no node below has a larger weight.
    weight: u32,
    left: Link,
    right: Link,
}

impl<E: Entry> Default for Ranked<E> {
    fn default() -> Self {
        Ranked { nodes: vec![], root: NONE, free: NONE, drawn: 0 }
    }
}

/// Shows the entries in order, whatever the shape of the tree.
impl<E: Entry> Debug for Ranked<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        let (mut at, mut later) = (self.root, vec![]);
        loop {
            while let Some(node) = self.node(at) {
                later.push(node);
                at = node.left;
            }
            let Some(node) = later.pop() else { return list.finish() };
            list.entry(&node.entry);
            at = node.right;
        }
    }
}

impl<E: Entry> Ranked<E> {
    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.root == NONE
    }

    /// Returns the sum of all entries.
    pub(crate) fn sum(&self) -> E::Sum {
        self.sum_of(self.root)
    }

    /// Adds `entry`.
    pub(crate) fn insert(&mut self, entry: E) {
        let node = self.make(entry);
        self.root = self.put(self.root, node);
    }

    /// Removes `entry`, which is there.
    pub(crate) fn remove(&mut self, entry: &E) {
        self.root = self.take(self.root, entry);
    }

    /// Replaces `before`, which is there, by `entry`, which has the same rank.
    pub(crate) fn replace(&mut self, before: &E, entry: E) {
        let mut at = self.root;
        while let Some(node) = self.nodes.get_mut(at as usize) {
            node.sum = E::join(E::less(node.sum, before.sum()), entry.sum());
            at = match entry.rank(&node.entry) {
                Ordering::Less => node.left,
                Ordering::Greater => node.right,
                Ordering::Equal => {
                    node.entry = entry;
                    return;
                }
            }
        }
        debug_assert!(false, "{before:?} is not there");
    }

    /// Returns the sum of all entries but `aside`, which is one of them.
    pub(crate) fn sum_without(&self, aside: Option<&E>) -> E::Sum {
        aside.map_or(self.sum(), |aside| E::less(self.sum(), aside.sum()))
    }

    /// Returns the sum of the longest prefix for which `holds` is true, without `aside`, which is one of the entries.
    /// `holds` gets an entry and the sum of all before it but `aside`. Once false, it must be false for all later entries.
    pub(crate) fn beginning(&self, aside: Option<&E>, holds: impl Fn(&E, E::Sum) -> bool) -> E::Sum {
        let (mut at, mut before) = (self.root, E::Sum::default());
        let mut has_aside = false;
        while let Some(node) = self.node(at) {
            let up_to = E::join(before, self.sum_of(node.left));
            let order = aside.map(|aside| (aside, aside.rank(&node.entry)));
            let others = match order {
                Some((aside, Ordering::Less)) => E::less(up_to, aside.sum()),
                Some((_, Ordering::Equal | Ordering::Greater)) | None => up_to,
            };
            if holds(&node.entry, others) {
                has_aside = order.is_some_and(|(_, order)| order.is_le());
                before = E::join(up_to, node.entry.sum());
                at = node.right;
            } else {
                at = node.left;
            }
        }
        match aside.filter(|_| has_aside) {
            Some(aside) => E::less(before, aside.sum()),
            None => before,
        }
    }

    fn node(&self, at: Link) -> Option<&Node<E>> {
        self.nodes.get(at as usize)
    }

    fn sum_of(&self, at: Link) -> E::Sum {
        self.node(at).map_or_else(E::Sum::default, |node| node.sum)
    }

    /// Makes a node for `entry` that is in no tree.
    fn make(&mut self, entry: E) -> Link {
        self.drawn += 1;
        let node = Node { entry, sum: entry.sum(), weight: scattered(self.drawn), left: NONE, right: NONE };
        let at = self.free;
        match self.nodes.get_mut(at as usize) {
            Some(unused) => {
                self.free = unused.left;
                *unused = node;
                at
            }
            None => {
                // Most pools of keys have a single session.
                if self.nodes.is_empty() {
                    self.nodes.reserve_exact(1);
                }
                self.nodes.push(node);
                Link::try_from(self.nodes.len() - 1).expect("no pool has four billion sessions")
            }
        }
    }

    /// Recomputes the sum at `at` from what is below.
    fn sum_up(&mut self, at: Link) {
        let Node { entry, left, right, .. } = &self.nodes[at as usize];
        let below = E::join(self.sum_of(*left), self.sum_of(*right));
        self.nodes[at as usize].sum = E::join(entry.sum(), below);
    }

    /// Puts `node` into the tree at `at`. Returns the new root.
    fn put(&mut self, at: Link, node: Link) -> Link {
        let own = &self.nodes[node as usize];
        let (entry, weight) = (own.entry, own.weight);
        let Some(&Node { entry: here, weight: heavy, left, right, .. }) = self.node(at) else { return node };
        let comes_first = entry.rank(&here).is_lt();
        if weight > heavy {
            let (left, right) = self.split(at, &entry);
            (self.nodes[node as usize].left, self.nodes[node as usize].right) = (left, right);
            self.sum_up(node);
            return node;
        }
        match comes_first {
            true => self.nodes[at as usize].left = self.put(left, node),
            false => self.nodes[at as usize].right = self.put(right, node),
        }
        // The change of the sum is known, so nodes beside the way down are not read.
        let sum = &mut self.nodes[at as usize].sum;
        *sum = E::join(*sum, entry.sum());
        at
    }

    /// Takes `entry` out of the tree at `at`. Returns the new root.
    fn take(&mut self, at: Link, entry: &E) -> Link {
        let Some(&Node { entry: here, left, right, .. }) = self.node(at) else {
            debug_assert!(false, "{entry:?} is not there");
            return NONE;
        };
        match entry.rank(&here) {
            Ordering::Less => self.nodes[at as usize].left = self.take(left, entry),
            Ordering::Greater => self.nodes[at as usize].right = self.take(right, entry),
            Ordering::Equal => {
                self.nodes[at as usize].left = std::mem::replace(&mut self.free, at);
                return self.merge(left, right);
            }
        }
        let sum = &mut self.nodes[at as usize].sum;
        *sum = E::less(*sum, entry.sum());
        at
    }

    /// Splits the tree at `at` into what comes before `entry`, and the rest.
    fn split(&mut self, at: Link, entry: &E) -> (Link, Link) {
        let Some(&Node { entry: here, left, right, .. }) = self.node(at) else { return (NONE, NONE) };
        let halves = match here.rank(entry).is_lt() {
            true => {
                let (before, after) = self.split(right, entry);
                self.nodes[at as usize].right = before;
                (at, after)
            }
            false => {
                let (before, after) = self.split(left, entry);
                self.nodes[at as usize].left = after;
                (before, at)
            }
        };
        self.sum_up(at);
        halves
    }

    /// Merges the trees at `left` and `right`, where all of the first comes before all of the second.
    fn merge(&mut self, left: Link, right: Link) -> Link {
        let (Some(one), Some(other)) = (self.node(left), self.node(right)) else {
            return if left == NONE { right } else { left };
        };
        if one.weight > other.weight {
            let inner = one.right;
            self.nodes[left as usize].right = self.merge(inner, right);
            self.sum_up(left);
            left
        } else {
            let inner = other.left;
            self.nodes[right as usize].left = self.merge(left, inner);
            self.sum_up(right);
            right
        }
    }
}

/// Returns `number` with its bits scattered, so that a tree stays shallow whatever the order of entries.
fn scattered(number: u64) -> u32 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A number that counts for itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Number(u16);

    impl Entry for Number {
        type Sum = (u64, u64);

        fn rank(&self, other: &Self) -> Ordering {
            self.0.cmp(&other.0)
        }

        fn sum(&self) -> (u64, u64) {
            (1, self.0.into())
        }

        fn join(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
            (one.0 + other.0, one.1 + other.1)
        }

        fn less(all: (u64, u64), part: (u64, u64)) -> (u64, u64) {
            (all.0 - part.0, all.1 - part.1)
        }
    }

    fn depth(ranked: &Ranked<Number>, at: Link) -> usize {
        ranked.node(at).map_or(0, |node| 1 + depth(ranked, node.left).max(depth(ranked, node.right)))
    }

    proptest! {
        #[test]
        fn it_sums_what_a_sorted_set_does(steps in prop::collection::vec((any::<bool>(), 0..200_u16), 0..400), most in 0..9_000_u64, aside: prop::sample::Index) {
            let (mut ranked, mut set) = (Ranked::default(), BTreeSet::new());
            for (adds, number) in steps {
                match adds {
                    true if set.insert(number) => ranked.insert(Number(number)),
                    true => {}
                    false if set.remove(&number) => ranked.remove(&Number(number)),
                    false => {}
                }
                let all = set.iter().map(|number| Number(*number).sum()).fold((0, 0), Number::join);
                prop_assert_eq!((ranked.sum(), ranked.is_empty()), (all, set.is_empty()));
            }
            let shown: Vec<Number> = set.iter().copied().map(Number).collect();
            prop_assert_eq!(format!("{ranked:?}"), format!("{shown:?}"));
            let beginning = |set: &BTreeSet<u16>| {
                let up_to = |sum: (u64, u64), number: &u16| {
                    let next = Number::join(sum, Number(*number).sum());
                    (next.1 <= most).then_some(next)
                };
                let sums = set.iter().scan((0, 0), |sum, number| {
                    *sum = up_to(*sum, number)?;
                    Some(*sum)
                });
                sums.last().unwrap_or((0, 0))
            };
            let holds = |number: &Number, before: (u64, u64)| before.1 + u64::from(number.0) <= most;
            prop_assert_eq!(ranked.beginning(None, holds), beginning(&set));
            if !set.is_empty() {
                let aside = *aside.get(&set.iter().copied().collect::<Vec<_>>());
                set.remove(&aside);
                prop_assert_eq!(ranked.beginning(Some(&Number(aside)), holds), beginning(&set));
                let others = set.iter().map(|number| Number(*number).sum()).fold((0, 0), Number::join);
                prop_assert_eq!(ranked.sum_without(Some(&Number(aside))), others);
            }
        }
    }

    #[test]
    fn it_stays_shallow_and_uses_its_nodes_again() {
        let mut ranked = Ranked::default();
        for number in 0..10_000 {
            ranked.insert(Number(number));
        }
        assert!(depth(&ranked, ranked.root) < 60, "{}", depth(&ranked, ranked.root));
        for number in 0..10_000 {
            ranked.remove(&Number(number));
            ranked.insert(Number(10_000 + number));
        }
        assert_eq!((ranked.nodes.len(), ranked.sum().0), (10_000, 10_000));
    }
}
