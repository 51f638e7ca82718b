//! The saved state of a ledger, and how the moments in it are read again, perhaps by a clock that stood still
//! meanwhile. Each ledger saves and restores its own state; nothing here knows what the numbers mean.

use lessor_protocol::{ClockBounds, Moment};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The saved state of a ledger. Outstanding permits are not in it: the pool knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Saved {
    /// A sliding window or log.
    Sliding {
        /// Settled permits: when they are let go, and how many, soonest first.
        settled: Vec<(At, u64)>,
        /// Top-ups: when each ends, and its permits, soonest first.
        extra: Vec<(At, u64)>,
        /// Settlements up to this instant cannot be credited. Books of older versions do not say so.
        #[serde(default)]
        since: Option<At>,
    },
    /// A fixed window whose boundaries are known ahead.
    Fixed {
        /// The end of the window that was open.
        ends: At,
        /// Permits charged in it.
        charged: u64,
        /// Permits on top of its limit.
        extra: u64,
        /// Settlements up to this instant cannot be credited. Books of older versions do not say so.
        #[serde(default)]
        since: Option<At>,
    },
    /// A fixed window that its first use opens.
    FirstUse {
        /// The open window: its end, and the permits charged in it.
        open: Option<(At, u64)>,
        /// When that window began. Books of older versions do not say so.
        #[serde(default)]
        since: Option<At>,
        /// Permits on top of its limit.
        extra: u64,
        /// Whether nothing more is lent in the open window.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_shut: bool,
    },
    /// A token bucket.
    Bucket {
        /// Permits in the bucket, below zero in debt.
        level: i64,
        /// Permits by which it may exceed its capacity, since a top-up.
        surplus: u64,
        /// Progress towards the next permit.
        refill: SavedRefill,
        /// The time of that level. Books of older versions do not say so.
        #[serde(default)]
        at: Option<At>,
    },
    /// A cap on calls in flight.
    InFlight {
        /// Permits in flight, reported or presumed.
        in_flight: u64,
    },
    /// The permits of a steady flow, which need no state. See [`super::Flow`] for its rates.
    Flow {},
}

impl Saved {
    /// Returns the permits in flight, if the ledger counts them.
    pub(crate) fn in_flight(&self) -> Option<u64> {
        match self {
            Saved::InFlight { in_flight } => Some(*in_flight),
            Saved::Sliding { .. }
            | Saved::Fixed { .. }
            | Saved::FirstUse { .. }
            | Saved::Bucket { .. }
            | Saved::Flow {} => None,
        }
    }
}

/// Progress of a bucket towards its next permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedRefill {
    /// It refills evenly.
    Even {
        /// Part of a permit already minted, in the parts that its refill counts in.
        fraction: u64,
        /// Coldness, if the bucket warms up: thousandths of a permit, and parts of one.
        cold: Option<(u64, u64)>,
    },
    /// It refills at intervals.
    Interval {
        /// When the next permits come.
        next: At,
    },
}

/// A moment as it is written down: nanoseconds on the clock of the process that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct At(u64);

impl At {
    /// Returns the moment as it was written, for a clock that writer and reader share, such as the calendar.
    pub fn as_calendar(self) -> Moment {
        Moment::from_nanos(self.0)
    }
}

impl From<Moment> for At {
    fn from(moment: Moment) -> Self {
        At(moment.as_nanos())
    }
}

/// The time between writing and reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The same clock went on, so moments stay what they were.
    Counted,
    /// Its length is unknown: the machine was started again, or is another one. Whatever had some time left when it was
    /// written has the same time left now.
    Unknown,
}

/// How moments of a saved state are read.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    /// The time between writing and reading.
    pub gap: Gap,
    /// When the state was written.
    pub written: At,
    /// When the state is read.
    pub now: Moment,
    /// The assumption about clocks: after a gap another clock counts, which may run faster.
    pub clocks: ClockBounds,
}

impl Since {
    /// Converts `at` to the clock of the reader.
    pub fn moment(self, at: At) -> Moment {
        match (self.gap, at.0.checked_sub(self.written.0)) {
            (Gap::Counted, _) => Moment::from_nanos(at.0),
            (Gap::Unknown, Some(left)) => self.now + self.clocks.stretched(Duration::from_nanos(left)),
            (Gap::Unknown, None) => self.now.before(Duration::from_nanos(self.written.0 - at.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_had_to_last_lasts_as_long_after_a_gap_that_was_not_counted() {
        let clocks = ClockBounds::try_new(1_000).expect("valid");
        let now = Moment::from_nanos(50);
        let since = Since { gap: Gap::Unknown, written: At(1_000_000), now, clocks };
        assert_eq!(since.moment(At(1_000_000)), now);
        assert!(since.moment(At(2_000_000)) >= now + Duration::from_nanos(1_001_000), "and a little longer");
        assert_eq!(since.moment(At(999_990)), Moment::from_nanos(40));
        assert_eq!(since.moment(At(0)), Moment::ORIGIN, "before this clock began");
        assert_eq!(Since { gap: Gap::Counted, ..since }.moment(At(7)), Moment::from_nanos(7));
    }
}
