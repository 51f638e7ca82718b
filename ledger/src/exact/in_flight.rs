//! At most N in flight: a permit is held until it comes back, or until the longest call is over, that long after it was
//! taken. Permits that come back are taken for the oldest, whose calls would have been over first.

use super::Exact;
use super::sliding::Sliding;
use crate::rule::Concurrency;
use crate::{CarryOver, Rule};
use lessor_protocol::Moment;

/// The books of a cap on calls in flight.
#[derive(Clone, Debug)]
pub(super) struct InFlight(Sliding);

impl InFlight {
    /// Creates books with nothing in flight at `now`.
    pub(super) fn new(rule: &Concurrency, now: Moment) -> Self {
        InFlight(Sliding::of(rule.limit(), rule.longest(), now))
    }
}

impl Exact for InFlight {
    fn advance(&mut self, now: Moment) {
        self.0.advance(now);
    }

    fn available(&self) -> u64 {
        self.0.available()
    }

    fn ready_at(&self, permits: u64) -> Option<Moment> {
        self.0.ready_at(permits)
    }

    fn take(&mut self, permits: u64) {
        self.0.take(permits);
    }

    fn refund(&mut self, permits: u64) {
        self.0.refund(permits);
    }

    /// Calls in flight stay counted, so a top-up adds nothing.
    fn top_up(&mut self, _permits: u64) {}

    /// Calls in flight stay counted when the rule is changed.
    fn carried(&self, rule: &Rule, _carry_over: CarryOver) -> Box<dyn Exact> {
        let Rule::Concurrency(rule) = rule else {
            unreachable!("rules are matched by kind");
        };
        Box::new(InFlight(self.0.under(rule.limit(), rule.longest())))
    }

    fn is_fresh(&self) -> bool {
        self.0.is_fresh()
    }

    fn copy(&self) -> Box<dyn Exact> {
        Box::new(self.clone())
    }
}
