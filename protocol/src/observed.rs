//! What a node has heard of a vendor's own count and reports to the pool: permits left, announced policies, and
//! refusals. Nodes read it off the vendor's answers. Pools lend less for it, never more.

use std::time::Duration;

/// Most policies of a vendor that one report carries. Vendors in use have one or two: a minute and a day.
pub const ANNOUNCED_MAX: usize = 4;

/// What a session has heard from its vendor about one pool. It is a state with a number, so that a report which is
/// repeated or late changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Rises with each answer of the vendor that said something. A report with a number not above the last one changes
    /// nothing.
    pub number: u64,
    /// Calls that the vendor refused since the session began. Never falls.
    pub refused_total: u64,
    /// Set if the vendor refused lately: the rest of the time for which it asked for a pause. Zero if it named none.
    pub wait: Option<Duration>,
    /// What the vendor had left when the report was written.
    pub left: Option<Left>,
    /// The contract as the vendor states it.
    pub announced: [Option<Announced>; ANNOUNCED_MAX],
}

/// Permits that a vendor has left by its own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Permits left.
    pub permits: u64,
    /// How long the vendor will have no more than that, if it says so.
    pub lasts: Option<Duration>,
}

/// One policy of the contract as the vendor states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Permits of the policy.
    pub limit: u64,
    /// Window of the policy, if the vendor names it.
    pub per: Option<Duration>,
}
