//! What a new pool has to wait for: leases and calls of an earlier life of the allocator, or of other rules of the
//! limit, that its books do not know. Each limit keeps one [`Past`]; it holds no pool.

use super::{Plan, Pool};
use crate::rule::{At, Gap, Since};
use lessor_protocol::{ClockBounds, Moment};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What may still go on unknown to the books.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Past {
    /// Nothing: no session can be spending what was lent.
    #[default]
    None,
    /// An earlier life of the allocator ended at this moment at the latest, and its books are lost.
    Lost(Moment),
    /// The limit had other rules, whose books the present rules cannot carry on.
    Other {
        /// When the other rules ended.
        until: Moment,
        /// Latest end of calls that began while a rule counted them.
        calls_end: Moment,
    },
}

impl Past {
    /// Returns the past of a limit whose rules end `now`, where `self` is the past before those rules. They let calls
    /// take up to `longest`, if they counted calls.
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

    /// Returns when everything was lent that this past tells of.
    pub fn until(self) -> Moment {
        match self {
            Past::None => Moment::ORIGIN,
            Past::Lost(until) | Past::Other { until, .. } => until,
        }
    }

    /// Returns when all calls have ended that began, and were counted, before the present rules.
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

    /// [`Past::pool`] for a limit whose `plan` took effect only at `since`, and that has lent nothing by other rules
    /// since this past.
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
    /// Restores a past that was written down. If the gap since then is unknown, it counts as written now.
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
