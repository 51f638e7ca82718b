//! A line that stands still though permits are in hand, and for how long that may go on. As the rest of a refill, it reads
//! no clock and draws no random number.

use super::{Refill, Seen};
use crate::permits::{Pacer, Permits};
use lessor_protocol::Moment;

/// A line that spends nothing for so many terms, though permits are in hand, steps back for a term. Its first caller wants more
/// than one lease brings, and another node may hold the rest and wait for what is held here. Sooner would break up a holding that
/// is still growing. How many terms is drawn anew each time: two lines that step back together gain nothing.
const PATIENCE_TERMS: std::ops::RangeInclusive<u64> = 3..=9;

impl<P: Pacer> Refill<P> {
    /// Whether callers wait, permits are in hand, and yet nothing was spent for so long that it should all go back
    /// once: two nodes that each hold half of what both need would otherwise hold and wait for ever.
    pub(super) fn is_stuck(&mut self, slot: &impl Permits, seen: Seen, now: Moment) -> bool {
        let (before, at) = self.moved;
        let spent = self.spent(slot) + self.reserved.tried() + self.calls.taken();
        let stuck = seen.waiting > 0 && slot.balance().free > 0 && spent == before;
        let for_long = stuck && now.since(at) >= self.term.max(self.rate.fills_in()) * self.patience;
        if !stuck || for_long {
            self.moved = (spent, now);
        }
        for_long
    }
}

/// A number of [`PATIENCE_TERMS`].
pub(super) fn patience(random: u64) -> u32 {
    let (least, most) = (PATIENCE_TERMS.start(), PATIENCE_TERMS.end());
    u32::try_from(least + random % (most - least + 1)).expect("a few")
}
