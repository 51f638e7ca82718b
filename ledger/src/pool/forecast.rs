//! How a pool stands and when it will be empty, as its last ask found it. For people: limits add it up, nothing that is lent
//! depends on it.

use super::Pool;
use super::family::Place;
use super::lend::Offer;
use crate::rule::Draw;
use crate::sizing::Scarcity;
use lessor_protocol::{Ask, Moment};
use std::time::Duration;

/// What the last ask of a pool found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// How it stood.
    pub standing: Scarcity,
    /// When the first permit is wanted that is not there; `None` if that is not to be expected.
    pub empties: Option<Moment>,
    /// From then on the session that asked last is taken to be gone, and all of it is as if no session had asked.
    pub until: Moment,
}

impl Forecast {
    /// What is still true of it at `now`.
    #[must_use]
    pub fn at(self, now: Moment) -> Forecast {
        if now < self.until { self } else { Forecast::default() }
    }

    /// In how long the first permit is wanted that is not there: at once if one is by now.
    pub fn time_to_empty(self, now: Moment) -> Option<Duration> {
        self.at(now).empties.map(|empties| empties.since(now))
    }
}

impl Pool {
    /// What is to be said of it until a session asks again. Where nothing is lent at all, how much there is says nothing.
    pub(super) fn forecast(&self) -> Forecast {
        let lends = self.now >= self.quarantine_until && self.vendor_pause().is_zero();
        if lends { self.forecast.at(self.now) } else { Forecast::default() }
    }

    /// Remembers what `ask` of `id` found, which was lent what came of `offer`.
    pub(super) fn make_forecast(&mut self, id: Place, ask: &Ask, offer: &Offer) {
        let own = draw(ask.demand_milli, ask.waiting, self.sessions[id].outstanding);
        let draw = offer.others.and(own);
        // On a trickle everybody lacks something; and who was offered nothing wants what is not there.
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

    /// It has changed: what was foreseen is not to be expected any more, until a session asks.
    pub(super) fn foresee_nothing(&mut self) {
        self.forecast = Forecast::default();
    }

    /// The same if no session wants anything any more.
    pub(super) fn foresee_silence(&mut self) {
        if self.sessions.draws().is_none() {
            self.foresee_nothing();
        }
    }
}

/// What a session takes that tries to spend `demand_milli`. Its callers wait for `waiting` permits, and it has `out` permits for
/// them.
pub(super) fn draw(demand_milli: u64, waiting: u64, out: u64) -> Draw {
    Draw { at_once: waiting.saturating_sub(out), demand_milli }
}
