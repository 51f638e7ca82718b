//! A pool at rest: no session uses it, it cannot be forgotten yet, and it takes as few bytes as possible. Limits keep
//! the pools of idle keys at rest, and wake one for each look at it. It wakes exactly as it was.

use super::forecast::Forecast;
use super::patience::ExcessDemand;
use super::rare::Rare;
use super::sessions::audit::is_due;
use super::{Plan, Pool};
use crate::pacing::Pacer;
use crate::packed::Carrier;
use lessor_protocol::Moment;
use std::sync::Arc;

/// A pool at rest, in bytes.
#[derive(Clone, Debug)]
pub struct Resting {
    plan: Arc<Plan>,
    rests_until: Moment,
    bytes: Box<[u8]>,
}

impl Resting {
    /// Returns the moment until which the pool, awake, would look as it did, and could not be forgotten either.
    pub fn rests_until(&self) -> Moment {
        self.rests_until
    }

    /// Returns the plan of the pool.
    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the number of bytes that it takes beyond the size of [`Resting`].
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Wakes the pool.
    pub fn wake(&self) -> Pool {
        let mut pool = Pool::new(self.plan.clone(), Moment::ORIGIN);
        let is_whole = pool.carry(&mut Carrier::of(&self.bytes));
        debug_assert!(is_whole, "it was written by the same list");
        pool
    }
}

impl Pool {
    /// Size of a session in memory, in bytes.
    #[cfg(test)]
    pub(crate) const SESSION_BYTES: usize = size_of::<super::session::Session>();

    /// Returns the pool at rest, as it stands; `None` if it is in use or never rests. A pool that borrows or has a
    /// steady flow never does.
    pub fn rest(&mut self) -> Option<Resting> {
        if !self.is_at_rest() {
            return None;
        }
        // Both the forecast and the last walk are long out of date.
        (self.forecast, self.walked) = (Forecast::default(), None);
        if !self.excess_demand.is_usual() {
            self.excess_demand = Rare::of(self.excess_demand.at_rest(self.now));
        }
        let mut carrier = Carrier::to_bytes();
        let is_whole = self.carry(&mut carrier);
        let (plan, rests_until) = (self.plan.clone(), self.rests_until());
        let resting = Resting { plan, rests_until, bytes: carrier.into_bytes() };
        if is_whole && is_due(self.now, 0) {
            assert_eq!(format!("{self:?}"), format!("{:?}", resting.wake()));
        }
        is_whole.then_some(resting)
    }

    /// Whether no session uses it, and nothing of it changes from one instant to the next.
    fn is_at_rest(&self) -> bool {
        self.books.outstanding == 0
            && self.flow.is_none()
            && self.borrower.is_none()
            && self.now >= self.quarantine_until
            && self.vendor_is_content()
            && self.forecast() == Forecast::default()
            && self.sessions.are_at_rest()
    }

    /// Returns the moment until which the pool looks as it does now and cannot be forgotten, if nothing is done with
    /// it.
    fn rests_until(&self) -> Moment {
        let earlier = Some(self.checkpoints.earlier()).filter(|earlier| *earlier > self.now);
        if self.sessions.is_empty() && self.safe_shares.are_free() && earlier.is_none() && self.is_fresh() {
            // The pool could be forgotten at once, as far as it knows.
            return self.now;
        }
        let rests = [
            self.ledgers.rests_until(),
            self.safe_shares.rest_until(),
            self.sessions.rest_until(self.memory(), self.brief_memory()),
        ];
        rests.into_iter().chain(earlier).min().unwrap_or(Moment::NEVER)
    }

    /// Carries all that the plan does not say. Returns whether it can be carried.
    fn carry(&mut self, carrier: &mut Carrier<'_>) -> bool {
        for at in [&mut self.now, &mut self.quarantine_until, &mut self.old_rules_until] {
            carrier.moment(at);
        }
        let Self { books, .. } = self;
        let counts = [
            &mut self.number,
            &mut books.granted,
            &mut books.spent,
            &mut books.returned,
            &mut books.burned,
            &mut self.shadow_refused,
        ];
        for count in counts {
            carrier.number(count);
        }
        carrier.rare(&mut self.pacer, Pacer::carry);
        carrier.rare(&mut self.excess_demand, ExcessDemand::carry);
        if let Some(groups) = self.groups.unusual() {
            groups.guarantees.carry(carrier);
        }
        self.takings.carry(carrier);
        self.feedback.carry(carrier);
        self.safe_shares.carry(carrier);
        self.checkpoints.carry(carrier);
        self.sessions.carry(carrier);
        self.ledgers.carry(carrier)
    }
}
