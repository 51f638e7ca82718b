//! A bucket with nothing outstanding: how it is packed, and until when it stays as it is.

use super::BucketLedger;
use crate::packed::Carrier;
use lessor_protocol::Moment;

impl BucketLedger {
    /// See [`crate::rule::Ledger::carry`].
    pub(in crate::rule) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.now);
        carrier.moment(&mut self.latest);
        carrier.signed(&mut self.level);
        carrier.number(&mut self.surplus);
        self.refill.carry(carrier);
    }

    /// See [`crate::rule::Ledger::rests_until`]. A full bucket that grows colder changes at each instant.
    pub(in crate::rule) fn rests_until(&self) -> Moment {
        match self.room() {
            0 if self.refill.is_fresh() => Moment::NEVER,
            0 => self.now,
            _ => self.refill.minted_at(self.now, 1).unwrap_or(Moment::NEVER),
        }
    }
}
