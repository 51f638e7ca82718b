//! How a pool is divided among sessions: priorities, guaranteed minimums, a reserve, bounds on leases. Pools use this
//! before they size a grant. It only makes a grant smaller or moves it to another session, so no promise depends on it.

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
    /// Permits in each window that each group of nodes has for itself; together no more than the limit.
    pub guaranteed: Vec<u64>,
    /// How far the vendor's own count is believed.
    pub vendor: Trust,
    /// Sessions that may spend from the reserve while no allocator answers.
    pub safe: Option<Safe>,
}

/// Sessions that may go on with a part of the reserve while no allocator answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Safe {
    /// Number of such sessions, at least one.
    pub nodes: u64,
    /// Time after the last answer for which they may, at most [`lessor_protocol::SafeShare::LASTS_MAX`].
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

/// Part of a pool's places, a tenth, that an identity leaves to others.
const IDENTITY_LEAVES: usize = 10;

impl Owner {
    /// Returns how many of `max` places one identity may have.
    pub(crate) fn most_of(max: usize) -> usize {
        max - max / IDENTITY_LEAVES
    }

    /// Owner of sessions whose identity is unknown.
    pub const NONE: Owner = Owner(0);
}

/// How a session shares: by the limit's configuration, and its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Weight among sessions of its priority, at least 1.
    pub weight: u64,
    /// Priority: sessions with a higher one come first.
    pub priority: u64,
    /// Guaranteed group that the session belongs to, if any.
    pub group: Option<usize>,
    /// Identity of the session. Identities share by weighted max-min, and the sessions of each share its part.
    pub owner: Owner,
}

impl Share {
    /// Share of a session that the configuration does not mention.
    pub const EVEN: Share = Share { weight: 1, priority: 0, group: None, owner: Owner::NONE };
}

/// Returns what is left of `supply` for a session after those of higher priority, which claim `before`. What they lack
/// is kept for them, and claims of lower priority are not seen at all.
pub fn after(before: Before, supply: Supply) -> Supply {
    if before == Before::default() {
        return supply.less(0);
    }
    let lacking = u64::try_from(before.lacking).unwrap_or(u64::MAX);
    // What those sessions go on spending is not there for others, and neither is what they lack now.
    let soon = before.mean.saturating_mul(nanos(supply.poll).into()) / u128::from(nanos(supply.term).max(1));
    let soon = u64::try_from(soon.div_ceil(PERMIT)).unwrap_or(u64::MAX);
    Supply {
        soon: supply.soon.saturating_sub(soon),
        sustained: supply.sustained.saturating_sub(before.mean),
        ..supply.less(lacking)
    }
}

#[cfg(test)]
mod tests;
