//! What is configured of one limit, checked: its name, its rules, and how they are shared. All of the registry goes by it;
//! [`limit_text`](crate::limit_text) reads and writes it.

use super::ByNode;
use crate::Rule;
use crate::named::Named;
use crate::roots::TimeSource;
use crate::share::{Owner, Share, Sharing};
use lessor_protocol::{Fallback, Key, NodeName};
use std::collections::BTreeMap;
use std::fmt;

/// Keys that a keyed limit remembers at once, where the operator says nothing else. A key takes about 3 kB: a million of them would
/// be 3 GB that the operator did not ask for. A thousand would refuse the users of a small shop.
pub const KEYS_MAX: usize = 100_000;

/// Sessions that one pool remembers by default.
pub const LESSEES_MAX: usize = 10_000;

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitConfig {
    /// Its name or pattern, unique.
    pub name: Named,
    /// The limit above it, which is charged for all that this one lends.
    pub parent: Option<String>,
    /// The allocator that has the limit, if this one leases it from there and lends it on.
    pub upstream: Option<Upstream>,
    /// Whether there is one pool for each key, and for how many keys at once.
    pub keyed: Keyed,
    /// What must hold, all of it: at least one rule, unless another allocator has the limit.
    pub rules: Vec<Rule>,
    /// What must hold for single keys instead.
    pub overrides: BTreeMap<Key, Vec<Rule>>,
    /// Whether nothing is refused, and what would have been is counted.
    pub shadow: bool,
    /// What nodes do while they cannot reach the allocator.
    pub fallback: Fallback,
    /// Whether it lends more slowly below its low-water mark.
    pub ease_off: bool,
    /// Sessions that each pool remembers.
    pub lessees_max: usize,
    /// Weights by node, for when permits are scarce; 1 by default.
    pub weights: ByNode,
    /// Priorities by node, the highest first; 0 by default.
    pub priorities: ByNode,
    /// Minima by node.
    pub guaranteed: ByNode,
    /// The reserve, and the bounds of leases.
    pub sharing: Sharing,
}

/// Whether a limit has one pool or one for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// One pool.
    No,
    /// One for each key, and at most so many at once.
    Yes {
        /// The bound.
        keys_max: usize,
    },
}

impl LimitConfig {
    /// The allocator that it is leased from, if it is.
    pub fn leased_from(&self) -> Option<&str> {
        match self.upstream.as_ref()? {
            Upstream::Address(address) => Some(address),
            Upstream::Store(_) => None,
        }
    }

    /// What sessions of `node` count for that belong to `owner`.
    pub fn share(&self, node: &NodeName, owner: Owner) -> Share {
        Share {
            weight: self.weights.of(node).unwrap_or(Share::EVEN.weight),
            priority: self.priorities.of(node).unwrap_or(Share::EVEN.priority),
            group: self.guaranteed.group(node),
            owner,
        }
    }
}

/// Where a limit is leased from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upstream {
    /// The store that several allocators share, whose time that source tells. The limit has its rules here: those of its roots
    /// there.
    Store(TimeSource),
    /// Another allocator: `http://host:port`, and a path where it is behind something.
    Address(String),
}

impl Upstream {
    /// Whether it is a store that several allocators share.
    pub fn is_store(&self) -> bool {
        matches!(self, Upstream::Store(_))
    }

    /// As it was written, without a slash at its end; of a store, what it is.
    pub fn as_str(&self) -> &str {
        match self {
            Upstream::Store(_) => "store",
            Upstream::Address(address) => address,
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
