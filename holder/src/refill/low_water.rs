//! How much to have in hand, and how little of it is a reason to ask for more. As the rest of a refill, it reads no clock.

use super::Refill;
use crate::permits::Pacer;
use lessor_protocol::sizing::need;
use std::time::Duration;

/// Round trips that what is in hand must outlast before more is asked for. Two would be enough on a quiet
/// network; the third is for the answer that takes half as long again.
const LOW_WATER_RTTS: u32 = 3;

/// Time added to that, for timers and a busy runtime to be late by.
pub(super) const GUARD: Duration = Duration::from_millis(10);

impl<P: Pacer> Refill<P> {
    /// Free permits at which it is time to ask for more: what is likely to be spent until the answer is here, but
    /// not what it would hold anyway.
    pub(super) fn low_water(&self, rtt: Duration) -> u64 {
        need(self.demand.milli(), low_water_span(rtt)).min(self.target(rtt) / 2)
    }

    /// Permits that it would hold for those who only try; in use or in hand, where they are spent again.
    pub(super) fn target(&self, rtt: Duration) -> u64 {
        if self.calls.hold().is_some() {
            return self.target_in_use();
        }
        need(self.demand.milli(), self.horizon.max(low_water_span(rtt)))
    }

    /// Free permits below which a spender should wake the background task: half of what it plans to ask again at,
    /// or the last one. The plan is kept by a timer, at no cost to any caller; a nudge is for demand that runs ahead
    /// of it.
    pub fn nudge_below(&self, rtt: Duration) -> u64 {
        (self.low_water(rtt) / 2).max(1)
    }
}

/// How long what is in hand must last, or more is asked for.
pub(super) fn low_water_span(rtt: Duration) -> Duration {
    rtt * LOW_WATER_RTTS + GUARD
}
