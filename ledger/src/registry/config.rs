//! The checked configuration of one limit: its name, its rules, and how its permits are shared.
//! [`limit_text`](crate::limit_text) reads and writes it.

use super::ByNode;
use crate::Rule;
use crate::named::Named;
use crate::roots::TimeSource;
use crate::share::{Owner, Share, Sharing};
use lessor_protocol::{Fallback, Key, NodeName};
use std::collections::BTreeMap;
use std::fmt;

/// Keys that a keyed limit remembers at once by default. A key in use takes 1 to 1.5 kB, so a million of them would
/// take more than 1 GB that the operator did not ask for. A thousand would refuse the users of a small shop.
pub const KEYS_MAX: usize = 100_000;

/// Sessions that one pool remembers by default.
pub const LESSEES_MAX: usize = 10_000;

/// The configuration of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitConfig {
    /// The unique name or pattern.
    pub name: Named,
    /// The limit above, which is charged for all that this one lends.
    pub parent: Option<String>,
    /// The allocator that has the limit, if this one leases it from there and lends it on.
    pub upstream: Option<Upstream>,
    /// Whether there is one pool for each key, and for how many keys at once.
    pub keyed: Keyed,
    /// Rules, which all hold: at least one, unless another allocator has the limit.
    pub rules: Vec<Rule>,
    /// Rules of single keys, which hold instead.
    pub overrides: BTreeMap<Key, Vec<Rule>>,
    /// Whether nodes refuse nothing, and count what they would have refused.
    pub shadow: bool,
    /// The behaviour of nodes while they cannot reach the allocator.
    pub fallback: Fallback,
    /// Whether the limit lends more slowly below its low-water mark.
    pub ease_off: bool,
    /// Sessions that each pool remembers.
    pub lessees_max: usize,
    /// Weights by node, for when permits are scarce; 1 by default.
    pub weights: ByNode,
    /// Priorities by node, the highest first; 0 by default.
    pub priorities: ByNode,
    /// Guaranteed permits by node.
    pub guaranteed: ByNode,
    /// The reserve, and the bounds of leases.
    pub sharing: Sharing,
}

/// Whether a limit has one pool or one for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// There is one pool.
    No,
    /// There is a pool for each key, up to a bound.
    Yes {
        /// Most keys at once.
        keys_max: usize,
    },
}

impl LimitConfig {
    /// Returns the address of the allocator that the limit is leased from, if it is.
    pub fn leased_from(&self) -> Option<&str> {
        match self.upstream.as_ref()? {
            Upstream::Address(address) => Some(address),
            Upstream::Store(_) => None,
        }
    }

    /// Returns the share of sessions of `node` that belong to `owner`.
    pub fn share(&self, node: &NodeName, owner: Owner) -> Share {
        Share {
            weight: self.weights.of(node).unwrap_or(Share::EVEN.weight),
            priority: self.priorities.of(node).unwrap_or(Share::EVEN.priority),
            group: self.guaranteed.group(node),
            owner,
        }
    }
}

/// The place that a limit is leased from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upstream {
    /// The store that several allocators share, and the source of its time. The limit has rules here, which its roots
    /// there go by.
    Store(TimeSource),
    /// Another allocator: `http://host:port`, and a path if it is behind a proxy.
    Address(String),
}

impl Upstream {
    /// Whether it is a store that several allocators share.
    pub fn is_store(&self) -> bool {
        matches!(self, Upstream::Store(_))
    }

    /// Returns the address without a slash at its end, or `store`.
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
