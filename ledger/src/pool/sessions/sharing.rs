//! The sessions of a pool with a steady flow. [`Sharers`] are kept from the second session on, like all orders and sums
//! over several sessions. A pool without a flow keeps none.

use super::Sessions;
use crate::pool::rates::Sharers;
use crate::rule::Speed;
use lessor_protocol::Moment;

impl Sessions {
    /// Makes the sessions share a flow of this `speed`, as it is `now`. The first time that there are several sessions
    /// this looks at each: there are two then.
    pub(in crate::pool) fn share_flow(&mut self, speed: Speed, now: Moment) {
        let Some(orders) = self.orders.as_deref_mut() else { return };
        if orders.sharers.is_none() {
            let mut sharers = Sharers::new(speed, now);
            for (place, session) in self.by_place.iter() {
                let reading = orders.reading_of(place, self.reading);
                sharers.count(place, session, reading.ages().active(session.rtt));
            }
            orders.sharers = Some(Box::new(sharers));
        }
        self.age_sharers(now);
    }

    /// Whether sharers are kept.
    #[cfg(test)]
    pub(in crate::pool) fn keep_sharers(&self) -> bool {
        self.orders.as_deref().is_some_and(|orders| orders.sharers.is_some())
    }

    /// Returns the sessions that share a flow, without one that asks; `None` unless there are several sessions.
    pub(in crate::pool) fn sharers(&self) -> Option<&Sharers> {
        let sharers = self.orders.as_deref().and_then(|orders| orders.sharers.as_deref());
        debug_assert!(sharers.is_some() || self.len() < 2, "the pool has said that they share a flow");
        sharers
    }

    /// Returns when the pool knows of the next hand-over of a part of a flow, and how many sessions have a part.
    pub(in crate::pool) fn hand_overs(&self) -> (Option<Moment>, usize) {
        if let Some(sharers) = self.sharers() {
            return sharers.hand_overs();
        }
        let sole = self.by_place.sole().and_then(|(_, session)| session.turn.hand_over(session.rtt));
        (sole, usize::from(sole.is_some()))
    }

    /// Lets sessions leave the flow that have not asked for long by `now`.
    pub(super) fn age_sharers(&mut self, now: Moment) {
        let Some(orders) = self.orders.as_deref_mut() else { return };
        while let Some(place) = orders.sharers.as_deref_mut().and_then(|sharers| sharers.next_review(now)) {
            let reading = orders.reading_of(place, self.reading);
            match self.by_place.get(place) {
                Some(session) => orders.count(place, session, &reading),
                None => orders.sharers.iter_mut().for_each(|sharers| sharers.forget(place)),
            }
        }
    }
}
