//! What part of a pool is for whom: priorities, guaranteed minimums, a reserve, bounds on leases. Pools ask it before
//! they size a grant. It only ever makes a grant smaller or moves it to another session: no promise depends on it.

mod guarantees;
mod trust;

use crate::sizing::{Before, Supply};
use lessor_protocol::moment::nanos;
use lessor_protocol::sizing::PERMIT;
use lessor_protocol::{TERM_MAX, TERM_MIN};
use std::time::Duration;

pub use guarantees::{Guarantees, Level};
pub use trust::{Believe, Trust};

/// The largest lease, in permits: a node keeps its balance in 32 bits of one atomic word. At two seconds a
/// lease that is two billion calls a second on one node.
pub const LEASE_MAX: u64 = u32::MAX as u64;

/// How a pool is shared, beside weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Permits that are never lent.
    pub reserve: u64,
    /// The most that one lease may hold, from 1 to [`LEASE_MAX`].
    pub lease_max: u64,
    /// The shortest and the longest term, within [`lessor_protocol::TERM_MIN`] and [`lessor_protocol::TERM_MAX`].
    pub term_min: Duration,
    /// See `term_min`.
    pub term_max: Duration,
    /// Permits in each window that a group of nodes has for itself; together no more than the limit.
    pub guaranteed: Vec<u64>,
    /// How far the vendor's own count is believed.
    pub vendor: Trust,
    /// Who may spend of the reserve while no allocator answers.
    pub safe: Option<Safe>,
}

/// Sessions that may go on with a part of the reserve while no allocator answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Safe {
    /// So many at most, at least one.
    pub nodes: u64,
    /// For so long after the last answer, [`lessor_protocol::SafeShare::LASTS_MAX`] at most.
    pub lasts: Duration,
}

impl Default for Sharing {
    fn default() -> Self {
        Sharing {
            reserve: 0,
            lease_max: LEASE_MAX,
            term_min: TERM_MIN,
            term_max: TERM_MAX,
            guaranteed: vec![],
            vendor: Trust::default(),
            safe: None,
        }
    }
}

/// The identity that a session belongs to, told from all others by a number. The default stands for all callers where an allocator
/// asks for no identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// An identity leaves others one in so many places.
const IDENTITY_LEAVES: usize = 10;

impl Owner {
    /// How many of `max` places one identity may have.
    pub(crate) fn most_of(max: usize) -> usize {
        max - max / IDENTITY_LEAVES
    }

    /// The owner of sessions of which no identity is known.
    pub const NONE: Owner = Owner(0);
}

/// What a session counts for, from the limit's configuration and its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its weight among its like, at least 1.
    pub weight: u64,
    /// A session with a higher priority comes first.
    pub priority: u64,
    /// Which of the guaranteed groups it belongs to.
    pub group: Option<usize>,
    /// Identities share by weighted max-min, and the sessions of each share its part.
    pub owner: Owner,
}

impl Share {
    /// The share of a session of which the configuration says nothing.
    pub const EVEN: Share = Share { weight: 1, priority: 0, group: None, owner: Owner::NONE };
}

/// What of `supply` is left to share for a session that others come `before`. What those lack is kept for them, and claims of
/// lower priorities are not seen at all.
pub fn after(before: Before, supply: Supply) -> Supply {
    let lacking = u64::try_from(before.lacking).unwrap_or(u64::MAX);
    // What they go on spending is no more there for others than what they lack now.
    let spent = |span: Duration| {
        let permits = before.mean.saturating_mul(nanos(span).into()) / u128::from(nanos(supply.term).max(1));
        u64::try_from(permits.div_ceil(PERMIT)).unwrap_or(u64::MAX)
    };
    Supply {
        soon: supply.soon.saturating_sub(spent(supply.poll)),
        sustained: supply.sustained.saturating_sub(spent(supply.term)),
        ..supply.less(lacking)
    }
}

#[cfg(test)]
mod tests;
