//! What a pool is made of, who asks it, what it looks like, and why it refuses to believe an ask.

use super::{Books, Forecast, SessionId};
use crate::Rule;
use crate::rule::term;
use crate::share::{Share, Sharing};
use lessor_protocol::{ClockBounds, PERMITS_MAX};
use std::time::Duration;

/// What a pool is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What must hold, all of it.
    pub rules: Vec<Rule>,
    /// Whether it lends on what another allocator lends it, see [`super::Pool::ask_above`].
    pub is_borrowed: bool,
    /// Whether it is the root of a limit that several allocators lease from a store, whose time is not exact: it is not sure on which
    /// side of a boundary of windows it is then, and no lease reaches beyond one.
    pub is_root: bool,
    /// The assumption about clocks.
    pub clocks: ClockBounds,
    /// Whether it eases off below its low-water mark.
    pub ease_off: bool,
    /// Most sessions it remembers.
    pub lessees_max: usize,
    /// What is kept back, and what bounds leases.
    pub sharing: Sharing,
}

impl Plan {
    /// How long a lease lasts where nothing clips it.
    pub fn term(&self) -> Duration {
        term(&self.rules).clamp(self.sharing.term_min, self.sharing.term_max)
    }

    /// The most that its rules ever lend at once; all there is if another allocator says how much that is.
    pub(super) fn ceiling(&self) -> u64 {
        let ceiling = self.rules.iter().map(Rule::ceiling).min();
        ceiling.unwrap_or(if self.is_borrowed { PERMITS_MAX } else { 0 })
    }

    /// The longest that a call may take, where some rule counts what is in flight: each of those says so for all calls.
    pub fn longest(&self) -> Option<Duration> {
        self.rules.iter().filter_map(Rule::longest).min()
    }
}

/// Why an ask was not answered. The books are untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// A newer ask was answered already.
    #[error("seq {seq} is older than {last}, which was answered already")]
    Stale {
        /// The one given.
        seq: u64,
        /// The newest one.
        last: u64,
    },
    /// The session has said goodbye.
    #[error("this session has said goodbye: begin another one")]
    Left,
    /// More than was ever granted, or less spent than before.
    #[error(
        "spent_total {spent_total} with held {held} cannot be: {spent} was reported before and {out} is unaccounted for"
    )]
    Totals {
        /// The total given.
        spent_total: u64,
        /// The holding given.
        held: u64,
        /// The highest total before.
        spent: u64,
        /// Granted and neither reported spent nor returned.
        out: u64,
    },
    /// The session is not known here and does not start at zero.
    #[error(
        "this session is not known here, but says it has spent {spent_total} and holds {held}: start again from 0"
    )]
    LeaseUnknown {
        /// The total given.
        spent_total: u64,
        /// The holding given.
        held: u64,
    },
    /// As many sessions as it may remember.
    #[error("the pool has {max} sessions, as many as it may remember; old ones go on")]
    Full {
        /// How many that is.
        max: usize,
    },
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The session.
    pub id: SessionId,
    /// What it counts for, from the limit's configuration.
    pub share: Share,
    /// How long an exchange takes from where it is, as it says.
    pub rtt: Duration,
}

/// A look at a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Permits that can be lent now.
    pub available: u64,
    /// Permits that are charged beyond a limit that was lowered.
    pub over: u64,
    /// Permits that are not lent because of what the vendor says.
    pub withheld: u64,
    /// How long nothing is lent because the vendor asked for it.
    pub vendor_pause: Duration,
    /// The totals.
    pub books: Books,
    /// Permits whose calls are in flight, said or presumed; only of limits that cap that.
    pub in_flight: u64,
    /// Permits that nodes let pass in shadow mode, where they would have refused.
    pub shadow_refused: u64,
    /// Sessions that it remembers.
    pub sessions: u64,
    /// How long it stays in quarantine.
    pub quarantine: Duration,
    /// How long it lends nothing because nodes may go on with safe shares that its rules cannot count.
    pub shut: Duration,
    /// How it stands and when it will be empty, as far as it was asked lately.
    pub forecast: Forecast,
    /// In how long it will be empty by that; `None` if that is not to be expected.
    pub time_to_empty: Option<Duration>,
}

impl PoolView {
    /// For how long it lends nothing, for whichever reason.
    pub fn lends_nothing(&self) -> Duration {
        self.quarantine.max(self.shut)
    }
}
