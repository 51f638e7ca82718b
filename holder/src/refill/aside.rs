//! Permits that a caller has set aside when their lease ends. The caller may be paused before it spends them or puts
//! them back, and they must not enter a later lease. Like the rest of a refill, it reads no clock.

use super::Refill;
use crate::permits::{Pacer, Permits};
use lessor_protocol::Moment;

impl<P: Pacer> Refill<P> {
    /// Puts `permits` into the slot until `deadline` at least, and takes out as many of `lost` as it can. Returns how many
    /// it took.
    ///
    /// Permits are all alike: for a lost permit that is set aside, a new one is taken out. If there are too few new ones, no
    /// permit is left free. Then the old deadline stays until the next exchange takes the rest out, so that permits put
    /// back meanwhile cannot be spent.
    pub(super) fn install(&self, slot: &impl Permits, permits: u64, lost: u64, deadline: Moment) -> u64 {
        if lost == 0 {
            return slot.install(permits, 0, deadline);
        }
        let mut dropped = slot.install(permits, lost, Moment::ORIGIN);
        let mut is_whole = true;
        if dropped < lost {
            let aside = slot.balance().held;
            // Permits put back since then are free and taken out here. Permits put back later are in `aside`.
            dropped += slot.install(0, lost - dropped, Moment::ORIGIN);
            is_whole = dropped == lost || aside == 0;
        }
        if is_whole {
            slot.install(0, 0, deadline);
        }
        dropped
    }
}
