//! How many permits to have in hand, and at how few to ask for more. Like the rest of a refill, it reads no clock.

use super::Refill;
use crate::permits::Pacer;
use lessor_protocol::sizing::{low_water_span, need};
use std::time::Duration;

impl<P: Pacer> Refill<P> {
    /// Returns the number of free permits at which it is time to ask for more. These are the permits that callers will
    /// likely spend until the answer comes, but at most half of the target.
    pub(super) fn low_water(&self, rtt: Duration) -> u64 {
        need(self.demand.milli(), low_water_span(rtt)).min(self.target(rtt) / 2)
    }

    /// Returns the permits to hold for callers that only try; where permits are spent again, those in use or in hand.
    pub(super) fn target(&self, rtt: Duration) -> u64 {
        if self.calls.hold().is_some() {
            return self.target_in_use();
        }
        need(self.demand.milli(), self.horizon.max(low_water_span(rtt)))
    }

    /// Returns the number of free permits below which a spender wakes the background task: half of the low water, but
    /// at least one. A timer keeps the plan, at no cost to any caller. A nudge is for demand that runs ahead of the
    /// plan.
    pub fn nudge_below(&self, rtt: Duration) -> u64 {
        (self.low_water(rtt) / 2).max(1)
    }
}
