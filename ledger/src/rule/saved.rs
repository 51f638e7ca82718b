//! What a ledger is written down as, and how the moments in it are read again, perhaps by a clock that stood still meanwhile.
//! Each ledger saves and restores its own; nothing here knows what the numbers mean.

use lessor_protocol::{ClockBounds, Moment};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a ledger is written down as, but for what is out: its pool knows that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Saved {
    /// Of a sliding window or log.
    Sliding {
        /// When permits that were settled are let go, and how many; soonest first.
        settled: Vec<(At, u64)>,
        /// When what it was topped up with ends, and how much; soonest first.
        extra: Vec<(At, u64)>,
        /// Since when it counts. Books that were written before this was, do not say so.
        #[serde(default)]
        since: Option<At>,
    },
    /// Of a fixed window whose boundaries are known ahead.
    Fixed {
        /// The end of the window that was open.
        ends: At,
        /// Charged in it.
        charged: u64,
        /// On top of its limit.
        extra: u64,
        /// Since when it counts. Books that were written before this was, do not say so.
        #[serde(default)]
        since: Option<At>,
    },
    /// Of a window that its first use opens.
    FirstUse {
        /// When the one that was open ends, and what is charged in it.
        open: Option<(At, u64)>,
        /// When it began. Books that were written before this was, do not say so.
        #[serde(default)]
        since: Option<At>,
        /// On top of its limit.
        extra: u64,
        /// Whether nothing more is lent in it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_shut: bool,
    },
    /// Of a bucket.
    Bucket {
        /// What it held, less what it owed.
        level: i64,
        /// What it held beyond its capacity.
        surplus: u64,
        /// How far it was with the next permit.
        refill: SavedRefill,
        /// When it was so far. Books that were written before this was, do not say so.
        #[serde(default)]
        at: Option<At>,
    },
    /// Of a cap on what is in flight.
    InFlight {
        /// How many are: said, or presumed.
        in_flight: u64,
    },
    /// Of the calls of a steady flow, see [`super::Flow`] for what keeps it.
    Flow {},
}

impl Saved {
    /// What was in flight by it, if it counts that.
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

/// How far a bucket was with its next permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedRefill {
    /// It refills evenly.
    Even {
        /// Of a permit that was begun, in the parts that its refill counts in.
        fraction: u64,
        /// How cold it was, if it warms up: thousandths of a permit, and parts of one.
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
    /// The same where the clock that shows it is the calendar.
    pub fn as_calendar(self) -> Moment {
        Moment::from_nanos(self.0)
    }
}

impl From<Moment> for At {
    fn from(moment: Moment) -> Self {
        At(moment.as_nanos())
    }
}

/// The time between what was written and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The same clock went on: moments are what they were.
    Counted,
    /// How long it was is unknown: the machine was started again, or is another one. What had to last still has to last as long
    /// from now on.
    Unknown,
}

/// How moments that were `written` are read `now`.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    /// What lies between.
    pub gap: Gap,
    /// When it was written.
    pub written: At,
    /// When it is read.
    pub now: Moment,
    /// The assumption about clocks: after a gap it is another one, and may run faster.
    pub clocks: ClockBounds,
}

impl Since {
    /// What `at` is on the clock of now.
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
