//! How scarce the permits of a pool are and when it will be empty, as its last ask found. For display: limits add
//! forecasts up, and no grant depends on them.

use super::Pool;
use super::family::Place;
use super::lend::Offer;
use crate::rule::Draw;
use crate::sizing::Scarcity;
use lessor_protocol::sizing::PERMIT;
use lessor_protocol::{Ask, Moment};
use std::time::Duration;

/// What the last ask of a pool found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// How scarce permits were.
    pub standing: Scarcity,
    /// When a permit will first be wanted that is not there; `None` if that is not expected.
    pub empties: Option<Moment>,
    /// End of the forecast: from then on the last session that asked counts as gone, as if none had asked.
    pub until: Moment,
}

impl Forecast {
    /// Returns the forecast if it still holds at `now`, and an empty one otherwise.
    #[must_use]
    pub fn at(self, now: Moment) -> Forecast {
        if now < self.until { self } else { Forecast::default() }
    }

    /// Returns the time until a permit is first wanted that is not there; zero if one is by now.
    pub fn time_to_empty(self, now: Moment) -> Option<Duration> {
        self.at(now).empties.map(|empties| empties.since(now))
    }
}

impl Pool {
    /// Returns what comes back in a term on average, for as long as all is wanted, in parts of a permit. In whole permits
    /// where that is foreseen by what came: from an allocator above, or at a root, for allocators that come and go.
    pub(super) fn sustained(&self) -> u128 {
        match self.plan.is_borrowed || self.plan.is_root {
            true => u128::from(self.ledgers.sustained(self.term)) * PERMIT,
            false => self.ledgers.average(self.term),
        }
    }

    /// Returns the current forecast. It is empty while the pool lends nothing at all, because what is left then says nothing.
    pub(super) fn forecast(&self) -> Forecast {
        let lends = self.now >= self.quarantine_until && self.vendor_pause().is_zero();
        if lends { self.forecast.at(self.now) } else { Forecast::default() }
    }

    /// Records what `ask` of `place` found, for which the pool made `offer`.
    pub(super) fn make_forecast(&mut self, place: Place, ask: &Ask, offer: &Offer) {
        let own = draw(ask.demand_milli, ask.waiting, self.sessions[place].outstanding);
        let draw = offer.others.and(own);
        // On a trickle every session lacks something, and a session that was offered nothing wants what is not there.
        let is_scarce = offer.standing == Scarcity::Scarce && (ask.want > 0 || !draw.is_none());
        let lasts = match is_scarce || offer.is_nothing {
            true => Some(Duration::ZERO),
            false if draw.is_none() => None,
            false => self.ledgers.lasts(draw.and_at_once(self.reserve().saturating_add(self.withheld()))),
        };
        self.forecast = Forecast {
            standing: offer.standing,
            empties: lasts.map(|lasts| self.now + lasts),
            until: self.now + self.active(),
        };
    }

    /// Drops the forecast until the next ask, because the pool has changed.
    pub(super) fn foresee_nothing(&mut self) {
        self.forecast = Forecast::default();
    }

    /// Drops the forecast if no session wants anything any more.
    pub(super) fn foresee_silence(&mut self) {
        if self.sessions.draws().is_none() {
            self.foresee_nothing();
        }
    }
}

/// Returns what a session takes that tries to spend `demand_milli` permits per 1,000 s, and has `out` permits for
/// callers that wait for `waiting`.
pub(super) fn draw(demand_milli: u64, waiting: u64, out: u64) -> Draw {
    Draw { at_once: waiting.saturating_sub(out), demand_milli }
}
