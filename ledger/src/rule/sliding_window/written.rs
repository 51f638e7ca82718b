//! Saves and restores a sliding window: settled permits by the instants at which they are let go.

use super::{SlidingLedger, Slot};
use crate::rule::{At, Gap, Saved, Since};
use lessor_protocol::Moment;
use lessor_protocol::PERMITS_MAX;

impl SlidingLedger {
    /// See [`crate::rule::RuleAccount::save`].
    pub(super) fn saved(&self) -> Saved {
        let settled = self.settled.iter().map(|slot| (self.end_of(slot.index).into(), slot.permits));
        let extra = self.extra.iter().map(|&(ends, permits)| (ends.into(), permits));
        Saved::Sliding { settled: settled.collect(), extra: extra.collect(), since: Some(self.since.into()) }
    }

    /// See [`crate::rule::RuleAccount::restore`].
    pub(super) fn restored(&mut self, saved: &Saved, since: Since, out: u64) -> bool {
        let Saved::Sliding { settled, extra, since: began } = saved else { return false };
        let Some(sum) = sum(settled) else { return false };
        if sum + out > PERMITS_MAX || self::sum(extra).is_none() {
            return false;
        }
        // Rounded up again. Ends by the same clock are at the edge of a sub-window already.
        let index = |at| since.moment(at).as_nanos().div_ceil(self.width);
        self.settled = settled.iter().map(|&(at, permits)| Slot { index: index(at), permits }).collect();
        self.extra = extra.iter().map(|&(at, permits)| (since.moment(at), permits)).collect();
        (self.settled_sum, self.outstanding) = (sum, out);
        self.since = match since.gap {
            // Ends moved by another measure than the instants of settlements.
            Gap::Unknown if self.is_log => since.now,
            Gap::Unknown | Gap::Counted => began.map_or(self.since, |began| since.moment(began)),
        };
        true
    }
}

/// Returns the sum of the permits in `list`. `None` if it is out of order or holds more than there can be.
fn sum(list: &[(At, u64)]) -> Option<u64> {
    let is_plausible = |&(at, permits): &(At, u64)| at < Moment::NEVER.into() && permits <= PERMITS_MAX;
    let is_ordered = list.is_sorted_by_key(|(at, _)| *at) && list.iter().all(is_plausible);
    let sum = list.iter().try_fold(0_u64, |sum, (_, permits)| sum.checked_add(*permits))?;
    (is_ordered && sum <= PERMITS_MAX).then_some(sum)
}
