//! What a node hears of a vendor's own count, as it says it to the pool: what the vendor has left, what it announces, and
//! whether it refuses. Nodes read it off answers, pools lend less for it; nothing here ever lends more.

use std::time::Duration;

/// Policies of a vendor that are told at once. Those in use have one or two: a minute and a day.
pub const ANNOUNCED_MAX: usize = 4;

/// What a session has heard of its vendor about one pool: how things stood when it was written, with a number. Said
/// again, or too late, it changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Rises with each answer that said something. One that is not above the last changes nothing.
    pub number: u64,
    /// Calls that the vendor refused since the session began. Never falls.
    pub refused_total: u64,
    /// If it refused lately: what is left of the time for which it asked to be left alone. Zero if it did not say.
    pub wait: Option<Duration>,
    /// What the vendor had left a moment ago.
    pub left: Option<Left>,
    /// What it says that the contract is.
    pub announced: [Option<Announced>; ANNOUNCED_MAX],
}

/// What a vendor has left, by its own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Permits.
    pub permits: u64,
    /// For how long it will be no more than that, if it says so.
    pub lasts: Option<Duration>,
}

/// What a vendor says that the contract is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// So many permits.
    pub limit: u64,
    /// In so long, if it says so.
    pub per: Option<Duration>,
}
