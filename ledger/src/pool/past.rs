//! What a new pool has to wait for: leases and calls that its books do not know, of an earlier life of the allocator or
//! of other rules of the limit. Limits keep one [`Past`]; it holds no pool.

use super::{Plan, Pool};
use crate::rule::{At, Gap, Since};
use lessor_protocol::{ClockBounds, Moment};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What may still go on, unknown to the books.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Past {
    /// Nothing: no session can be spending what was lent.
    #[default]
    None,
    /// An earlier life of the allocator ended at this moment at the latest, and its books are lost.
    Lost(Moment),
    /// The limit went by other rules, whose books the rules of now cannot carry on.
    Other {
        /// When the limit ceased to go by them.
        until: Moment,
        /// Until then calls may go on that began while a rule counted them.
        calls_end: Moment,
    },
}

impl Past {
    /// Returns the past of a limit that went by rules until `now`, and before those had the past `self`. The rules let
    /// calls take up to `longest`, where they counted them.
    pub fn after(self, longest: Option<Duration>, clocks: ClockBounds, now: Moment) -> Past {
        // Permits that are out now may be spent on a call until their lease ends.
        let own = longest.map_or(now, |longest| now + clocks.quarantine() + clocks.stretched(longest));
        Past::Other { until: now, calls_end: own.max(self.calls_end()) }
    }

    /// Returns a past that waits for both.
    pub fn and(self, other: Past) -> Past {
        match (self, other) {
            (Past::None, past) | (past, Past::None) => past,
            (Past::Lost(one), Past::Lost(other)) => Past::Lost(one.max(other)),
            (Past::Other { until, calls_end }, Past::Lost(lost))
            | (Past::Lost(lost), Past::Other { until, calls_end }) => {
                Past::Other { until: until.max(lost), calls_end }
            }
            (Past::Other { until, calls_end }, Past::Other { until: other, calls_end: others_end }) => {
                Past::Other { until: until.max(other), calls_end: calls_end.max(others_end) }
            }
        }
    }

    /// Returns when all calls have ended that began, and were counted, before there were these rules.
    pub fn calls_end(self) -> Moment {
        match self {
            Past::None | Past::Lost(_) => Moment::ORIGIN,
            Past::Other { calls_end, .. } => calls_end,
        }
    }

    /// Creates a pool at `now` that waits for this past.
    pub fn pool(self, plan: &Arc<Plan>, now: Moment) -> Pool {
        self.pool_by(plan, Moment::ORIGIN, now)
    }

    /// Creates the pool of [`Past::pool`] for a limit that goes by `plan` only `since` a moment, and has lent nothing
    /// by other rules since this past.
    pub fn pool_by(self, plan: &Arc<Plan>, since: Moment, now: Moment) -> Pool {
        let plan = plan.clone();
        match self {
            Past::None => Pool::new(plan, now),
            // The allocator above counts what was lost until it is over.
            Past::Lost(_) if plan.is_borrowed => Pool::new(plan, now),
            Past::Lost(lost) => Pool::after_loss_by(plan, lost, since, now),
            Past::Other { until, calls_end } => Pool::after_others(plan, until, calls_end, since, now),
        }
    }
}

/// A [`Past`] as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedPast {
    /// See [`Past::None`].
    None,
    /// See [`Past::Lost`].
    Lost(At),
    /// See [`Past::Other`].
    Other {
        /// See there.
        until: At,
        /// See there.
        calls_end: At,
    },
}

impl Past {
    /// Returns the past as it is written down.
    pub fn save(self) -> SavedPast {
        match self {
            Past::None => SavedPast::None,
            Past::Lost(lost) => SavedPast::Lost(lost.into()),
            Past::Other { until, calls_end } => {
                SavedPast::Other { until: until.into(), calls_end: calls_end.into() }
            }
        }
    }
}

impl SavedPast {
    /// Reads a past that was written down. Where the gap since then is unknown, it counts as written now.
    pub fn read(self, gap: Gap, clocks: ClockBounds, now: Moment) -> Past {
        let (SavedPast::Lost(at) | SavedPast::Other { until: at, .. }) = self else { return Past::None };
        let since = Since { gap, written: at, now, clocks };
        match self {
            SavedPast::Other { until, calls_end } => {
                Past::Other { until: since.moment(until), calls_end: since.moment(calls_end) }
            }
            SavedPast::Lost(_) | SavedPast::None => Past::Lost(since.moment(at)),
        }
    }
}
