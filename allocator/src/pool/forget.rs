//! When sessions, and whole pools, can make no difference any more. Sweeps ask, and whoever comes to a pool that is full; what
//! is forgotten had nothing out, and no rule counts what it burned.

use super::Pool;
use crate::rules::Flow;
use lessor_protocol::Moment;
use lessor_protocol::mutant::{self, Mutant};
use std::time::Duration;

/// A session is remembered at least this long. One that is forgotten must start again from zero, which costs its
/// node an exchange: not each time that a user pauses for a few seconds. Longer would keep more pools of keys.
const REMEMBERED_MIN: Duration = Duration::from_secs(10);

impl Pool {
    /// Forgets sessions that can make no difference any more, and tells whether the whole pool can be told from
    /// a new one: if not, it may be dropped.
    pub fn is_forgettable(&mut self, now: Moment) -> bool {
        self.advance(now);
        self.forget_idle(self.memory());
        if mutant::is(Mutant::ForgottenWhileCharged) {
            return self.now >= self.opens && self.ends.is_empty();
        }
        // A session gets its last grant again for its last ask, and waits for what an earlier life told: of a new pool not.
        let is_quiet = self.now >= self.opens.max(self.records.earlier()) && self.lessees.is_empty();
        is_quiet && self.seats.are_free() && self.is_fresh()
    }

    /// How long a session is worth remembering: until no rule counts its burned permits any more.
    pub fn memory(&self) -> Duration {
        self.ledgers.memory().max(self.active()).max(REMEMBERED_MIN)
    }

    /// Forgets sessions with nothing live that have said nothing for `memory`. A late copy of an old ask is then
    /// a stranger's: it starts at zero or is refused, and what it is lent is charged.
    pub(super) fn forget_idle(&mut self, memory: Duration) {
        let now = self.now;
        self.lessees.retain(|_, lessee| {
            lessee.is_live()
                || lessee.flights.lands().is_some()
                || lessee.end.max(lessee.answered) + memory > now
        });
    }

    /// Whether nothing that it knows tells it from a new one.
    pub(super) fn is_fresh(&self) -> bool {
        let are_fresh = self.ledgers.is_fresh() && self.flow.as_ref().is_none_or(Flow::is_fresh);
        are_fresh && self.vendor_is_content() && self.rests_above()
    }
}
