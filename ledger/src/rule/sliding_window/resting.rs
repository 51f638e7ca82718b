//! A sliding window with nothing outstanding: how it is packed, and until when it stays as it is.

use super::{SlidingLedger, Slot};
use crate::packed::Carrier;
use lessor_protocol::Moment;

impl SlidingLedger {
    /// See [`crate::rule::Ledger::carry`].
    pub(in crate::rule) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.now);
        carrier.moment(&mut self.since);
        let mut last = self.now.as_nanos() / self.width;
        let blank = Slot { index: 0, permits: 0 };
        carrier.list(
            &mut self.settled,
            || blank,
            |carrier, slot| {
                let mut further = slot.index.wrapping_sub(last);
                carrier.number(&mut further);
                slot.index = last.wrapping_add(further);
                last = slot.index;
                carrier.number(&mut slot.permits);
            },
        );
        self.settled_sum = self.settled.iter().map(|slot| slot.permits).sum();
        carrier.list(&mut self.extra, Default::default, |carrier, (ends, permits)| {
            carrier.moment(ends);
            carrier.number(permits);
        });
    }

    /// See [`crate::rule::Ledger::rests_until`].
    pub(in crate::rule) fn rests_until(&self) -> Moment {
        let settled = self.settled.front().map(|slot| self.end_of(slot.index));
        let extra = self.extra.front().map(|(ends, _)| *ends);
        settled.into_iter().chain(extra).min().unwrap_or(Moment::NEVER)
    }
}
