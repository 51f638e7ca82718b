//! The plan of a pool, the session that asks it, a view of it, and the reasons for rejecting an ask.

use super::{Books, Forecast, SessionId};
use crate::Rule;
use crate::rule::term;
use crate::share::{Share, Sharing};
use lessor_protocol::{ClockBounds, PERMITS_MAX};
use std::time::Duration;

/// What a pool is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rules of the limit, all of which must hold.
    pub rules: Vec<Rule>,
    /// Whether the pool lends on what another allocator lends it, see [`super::Pool::ask_above`].
    pub is_borrowed: bool,
    /// Whether the pool is the root of a limit that several allocators lease from a store. The time of a store is
    /// inexact: near a window boundary, the side is not known for sure, so no lease reaches beyond a boundary.
    pub is_root: bool,
    /// The assumption about clocks.
    pub clocks: ClockBounds,
    /// Whether the pool eases off below its low-water mark.
    pub ease_off: bool,
    /// Most sessions that the pool remembers.
    pub lessees_max: usize,
    /// Reserve, guarantees, trust in the vendor and bounds of leases.
    pub sharing: Sharing,
}

impl Plan {
    /// Makes the plan of a limit with `rules` and the defaults. No allocator lends to it, and no store has its root.
    pub fn of(rules: Vec<Rule>) -> Plan {
        Plan {
            rules,
            is_borrowed: false,
            is_root: false,
            clocks: ClockBounds::default(),
            ease_off: false,
            lessees_max: 10_000,
            sharing: Sharing::default(),
        }
    }

    /// Returns the length of a lease that nothing clips.
    pub fn term(&self) -> Duration {
        term(&self.rules).clamp(self.sharing.term_min, self.sharing.term_max)
    }

    /// Returns the window of the rule with the lowest ceiling, if that rule has one.
    pub fn window(&self) -> Option<Duration> {
        let least = self.rules.iter().min_by_key(|rule| rule.ceiling());
        least.and_then(Rule::window)
    }

    /// Returns the most permits that the rules ever lend at once. Without rules it is [`PERMITS_MAX`] if another
    /// allocator says how much there is, and 0 otherwise.
    pub(super) fn ceiling(&self) -> u64 {
        let ceiling = self.rules.iter().map(Rule::ceiling).min();
        ceiling.unwrap_or(if self.is_borrowed { PERMITS_MAX } else { 0 })
    }

    /// Returns the most permits that the rules beside a steady flow ever lend at once, or [`PERMITS_MAX`].
    pub(super) fn ceiling_beside_flow(&self) -> u64 {
        let others = self.rules.iter().filter(|rule| rule.flow().is_none());
        others.map(Rule::ceiling).min().unwrap_or(PERMITS_MAX)
    }

    /// Returns the longest time that a call may take, if a rule counts calls in flight. Each such rule bounds all calls.
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
        /// Sequence number of the ask.
        seq: u64,
        /// Newest number that was answered.
        last: u64,
    },
    /// The session has said goodbye.
    #[error("this session has ended with a goodbye: begin a new session")]
    Left,
    /// The ask reports more than was ever granted, or less spent than before.
    #[error(
        "spent_total {spent_total} with held {held} is impossible: {spent} was reported spent before and {out} is \
         outstanding"
    )]
    Totals {
        /// Total that the ask reports as spent.
        spent_total: u64,
        /// Permits that the ask reports as held.
        held: u64,
        /// Highest total reported before.
        spent: u64,
        /// Permits granted and neither reported spent nor returned.
        out: u64,
    },
    /// The session is not known here and does not start at zero.
    #[error(
        "this session is unknown here, but reports {spent_total} spent and {held} held: start again from 0"
    )]
    LeaseUnknown {
        /// Total that the ask reports as spent.
        spent_total: u64,
        /// Permits that the ask reports as held.
        held: u64,
    },
    /// The pool has as many sessions as it may remember.
    #[error("the pool has {max} sessions, the maximum; only known sessions go on")]
    Full {
        /// Number of sessions.
        max: usize,
    },
}

/// The session that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Id of the session.
    pub id: SessionId,
    /// Share of the session, from the limit's configuration.
    pub share: Share,
    /// Round-trip time of its exchanges, as the node reports it.
    pub rtt: Duration,
}

/// A view of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Permits that can be lent now.
    pub available: u64,
    /// Permits that are charged beyond a limit that was lowered.
    pub over: u64,
    /// Permits that are not lent because of what the vendor says.
    pub withheld: u64,
    /// Time for which nothing is lent because the vendor asked for it.
    pub vendor_pause: Duration,
    /// Totals of the pool.
    pub books: Books,
    /// Permits whose calls are in flight, reported or presumed; only of limits that cap calls in flight.
    pub in_flight: u64,
    /// Permits that nodes let pass in shadow mode, where they would have refused.
    pub shadow_refused: u64,
    /// Sessions that the pool remembers.
    pub sessions: u64,
    /// Time for which the pool stays in quarantine.
    pub quarantine: Duration,
    /// Time for which the pool lends nothing, because nodes may go on with safe shares that its rules cannot count.
    pub shut: Duration,
    /// Scarcity and expected emptiness, as the last ask found them.
    pub forecast: Forecast,
    /// Time until the pool is empty by the forecast; `None` if that is not expected.
    pub time_to_empty: Option<Duration>,
}

impl PoolView {
    /// Returns how long the pool lends nothing, in quarantine or because of safe shares. Pauses for the vendor do not count.
    pub fn lends_nothing(&self) -> Duration {
        self.quarantine.max(self.shut)
    }
}
