//! A lease that the allocator does not know any more, because it was started again: what is left of it may be spent until it
//! ends, and nobody can be told. Then its pool counts from zero. As the rest of a refill, it reads no clock.

use super::{Phase, Refill, Seen};
use crate::slot::Slot;
use lessor_protocol::{Moment, sizing};
use std::time::Duration;

impl Refill {
    /// The allocator does not know what this session holds. That was lent all the same, and whoever lends now counts it as
    /// out until it ends: it is used up first, and then it counts from zero, see [`Refill::forget`]. At once where permits
    /// do not become fewer by being used: of those it has to hear.
    pub fn disown(&mut self, slot: &Slot, now: Moment) {
        let is_used_up = slot.balance().free == 0 || now >= slot.deadline();
        if is_used_up || self.flights.hold().is_some() || self.rate.is_held() {
            return self.forget(slot);
        }
        self.disowned = Some(slot.refused());
    }

    /// The allocator does not know what this session holds: drop it, and count from zero from now on. Nor does it know until
    /// when that was lent: the lease is over.
    pub fn forget(&mut self, slot: &Slot) {
        self.disowned = None;
        self.rate.forget();
        self.removed += slot.end();
        self.reserved.spend_all();
        self.flights.forget();
        self.forgotten = self.spent(slot);
        self.flights.note(self.forgotten);
        self.shadow.forgotten = self.shadow.told;
        self.is_known = false;
        if self.asked.is_some_and(|(_, ask)| ask.want > 0) {
            // It was asked for in vain.
            self.attempted = 0;
        }
        self.phase = Phase::Active;
        self.not_before = Moment::ORIGIN;
    }

    /// When what is left is likely to be used up, or is of no use to those who call. `None` if it is known what is held.
    pub(super) fn is_used_up(&self, slot: &Slot, seen: Seen, now: Moment) -> Option<Moment> {
        let refused = self.disowned?;
        let free = slot.balance().free;
        if free == 0 || seen.waiting > free || slot.refused() > refused {
            return Some(now.max(self.not_before));
        }
        let lasts = u128::from(free) * sizing::PERMIT * 1_000_000_000;
        let lasts = lasts / u128::from(self.demand.milli().max(1));
        let lasts = Duration::from_nanos(u64::try_from(lasts).unwrap_or(u64::MAX));
        Some((now + lasts).min(slot.deadline()).max(self.not_before))
    }
}
