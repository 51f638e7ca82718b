//! A line that stands still although permits are in hand, and how long that may last. Like the rest of a refill, it
//! reads no clock and draws no random number.

use super::{Refill, Seen};
use crate::permits::{Pacer, Permits};
use lessor_protocol::Moment;

/// Terms after which a line that spends nothing although permits are in hand steps back for a term. Its first caller wants
/// more than one lease brings, and another node may hold the rest and wait for these permits. A smaller value would break up
/// a holding that is still growing. The number is drawn anew each time: two lines that step back together gain nothing.
const PATIENCE_TERMS: std::ops::RangeInclusive<u64> = 3..=9;

impl<P: Pacer> Refill<P> {
    /// Whether callers wait and permits are in hand, but nothing was spent for so long that all permits should go back
    /// once. Otherwise two nodes that each hold half of what both need would hold and wait for ever.
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

/// Draws a number of [`PATIENCE_TERMS`].
pub(super) fn patience(random: u64) -> u32 {
    let (least, most) = (PATIENCE_TERMS.start(), PATIENCE_TERMS.end());
    u32::try_from(least + random % (most - least + 1)).expect("a few")
}
