//! Permits that a caller has set aside when their lease ends: it may be stopped before it spends them or puts them back, and
//! they must not come back into a lease that is not theirs. As the rest of a refill, it reads no clock.

use super::Refill;
use crate::permits::{Pacer, Permits};
use lessor_protocol::Moment;

impl<P: Pacer> Refill<P> {
    /// Puts `permits` into the slot until `deadline` at least, and takes out those of `lost` that can be had. Returns how
    /// many those were.
    ///
    /// Permits are all alike: for one that is lost and set aside, one of the new ones goes. Where there are too few of
    /// those, nothing is left that is free; then the slot stays as it is until the next exchange takes the rest out,
    /// lest what is put back meanwhile is spent.
    pub(super) fn install(&self, slot: &impl Permits, permits: u64, lost: u64, deadline: Moment) -> u64 {
        if lost == 0 {
            return slot.install(permits, 0, deadline);
        }
        let mut dropped = slot.install(permits, lost, Moment::ORIGIN);
        let mut is_whole = true;
        if dropped < lost {
            let aside = slot.balance().held;
            // What was put back since then is free, and what is put back from now on was seen.
            dropped += slot.install(0, lost - dropped, Moment::ORIGIN);
            is_whole = dropped == lost || aside == 0;
        }
        if is_whole {
            slot.install(0, 0, deadline);
        }
        dropped
    }
}
