//! The supply that sessions of a pool share: the permits that can be lent now and within a term, and the pace at which
//! the pool lends while it is low, or while more is wanted than comes back.

use super::Pool;
use super::claims::poll;
use super::family::Place;
use crate::pacing::Excess;
use crate::rule::{Draw, Pace, THOUSAND_SECONDS};
use crate::sizing::Supply;
use std::time::Duration;

/// Longest pause in which excess demand still counts as going on: demand is an average over at most a second.
const EXCESS_PAUSE: Duration = Duration::from_secs(2);

impl Pool {
    /// Returns what can be shared now, and the pace if the pool eases off or lends evenly.
    pub(super) fn supply(&mut self, id: Place) -> (Supply, Option<Pace>) {
        let (left, term, saved_for) = (self.left(), self.term, self.saves_for(id));
        let kept_back = self.reserve().saturating_add(self.withheld());
        let even = self.even_pace(kept_back);
        // While the pool eases in after a pause, no more will be there than is now.
        let most = self.ease_in_max();
        let within = |span| self.ledgers.within(span).saturating_sub(kept_back).min(most).max(left);
        let rules = &self.plan.rules;
        if self.excess_demand.excess != Excess::NONE && self.ledgers.evens_out_low(rules, kept_back) {
            self.excess_demand.excess.found_low();
        }
        let is_even = even.is_some();
        let eases_off = self.plan.ease_off && !is_even;
        let pace = if eases_off { self.ledgers.low_pace(rules, kept_back) } else { even };
        let sustained = self.ledgers.sustained(term);
        let (stock, poll) = (left, poll(term));
        let supply = match pace {
            Some(pace) => {
                let left = self.pacer.lendable(self.now, left, pace, saved_for);
                let within_term = left.saturating_add(pace.within(term));
                // Permits that an even pace keeps for later are there for a session that wants little.
                let stock = if is_even { stock } else { left };
                // A pool that eases off is a trickle, however full.
                Supply { left, stock, soon: left, within_term, sustained, term, poll }
            }
            None => {
                let (soon, within_term) = (within(poll) - left, within(term));
                self.pacer.reset();
                Supply { left, stock, soon, within_term, sustained, term, poll }
            }
        };
        (supply, pace)
    }

    /// Returns the permits that must be left beyond what the session wants: the reserve, and those kept for others.
    pub(super) fn kept_back(&self, id: Place) -> u64 {
        let kept = self.kept_at_most(self.sessions[id].share.group);
        kept.min(self.ceiling().saturating_sub(1)) + self.reserve()
    }

    /// Returns for how long more must be wanted than comes back before the pool lends evenly, and how long a plan for
    /// that holds.
    pub(super) fn evens_out(&self) -> Option<(Duration, Duration)> {
        self.ledgers.evens_out().filter(|_| self.plan.ease_off)
    }

    /// Returns the even pace, if more has been wanted than the limit has for a whole window.
    fn even_pace(&mut self, kept_back: u64) -> Option<Pace> {
        let (window, plan) = self.evens_out()?;
        let (ledgers, now) = (&self.ledgers, self.now);
        let is_steady = self.excess_demand.excess.is_steady(now, window);
        let pace = || ledgers.even_pace(kept_back).unwrap_or(Pace { permits: 0, over: 1 });
        is_steady.then(|| self.excess_demand.excess.pace(now, plan, pace))
    }

    /// Notes whether more is wanted than comes back, where all sessions take `draw`.
    pub(super) fn note_excess(&mut self, draw: Draw) {
        if self.evens_out().is_some() {
            let is_excess = draw.demand_milli > self.ledgers.sustained(THOUSAND_SECONDS);
            if is_excess || self.excess_demand.excess != Excess::NONE {
                self.excess_demand.excess.see(self.now, is_excess, EXCESS_PAUSE.max(2 * self.term));
            }
        }
    }
}
