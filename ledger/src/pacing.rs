//! Easing off: below its low-water mark a windowed pool lends what is left at the rate that lasts, so that
//! traffic slows down rather than stopping dead. Pools call it; it never lends more than there is.

use crate::rule::Pace;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Below this part of what a limit allows, in percent, it eases off. A higher mark would slow down traffic
/// that a short burst alone brought there; a lower one leaves little to pace.
pub const LOW_WATER_PERCENT: u64 = 10;

/// Parts of a permit in which credit is counted.
const NANO: u128 = 1_000_000_000;

/// What may be lent at the planned rate: credit that grows with time and shrinks with grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacer {
    /// Above low water: no plan.
    Free,
    /// Below it.
    Easing {
        /// Billionths of a permit that may be lent now.
        credit: u128,
        /// When `credit` was counted.
        at: Moment,
    },
}

impl Pacer {
    /// Permits that may be lent now, out of `left`. Credit is kept for at most `term`, or it would become the
    /// very burst that easing off is to avoid; but always for one permit, or a slow pace would never lend.
    pub fn lendable(&mut self, now: Moment, left: u64, pace: Pace, term: Duration) -> u64 {
        let per_term = accrued(pace, term).max(NANO);
        let credit = match *self {
            Pacer::Free => per_term,
            Pacer::Easing { credit, at } => (credit + accrued(pace, now.since(at))).min(per_term),
        };
        *self = Pacer::Easing { credit, at: now };
        u64::try_from(credit / NANO).unwrap_or(u64::MAX).min(left)
    }

    /// `permits` were lent.
    pub fn lent(&mut self, permits: u64) {
        if let Pacer::Easing { credit, .. } = self {
            *credit = credit.saturating_sub(u128::from(permits) * NANO);
        }
    }

    /// How long until the next permit may be lent at `pace`; zero if one may be lent now.
    pub fn wait(&self, pace: Pace) -> Duration {
        let Pacer::Easing { credit, .. } = *self else {
            return Duration::ZERO;
        };
        let missing = NANO.saturating_sub(credit);
        if pace.permits == 0 {
            return Duration::from_nanos(pace.over);
        }
        let wait = (missing * u128::from(pace.over)).div_ceil(u128::from(pace.permits) * NANO);
        Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

/// Billionths of a permit that `pace` yields in `span`.
fn accrued(pace: Pace, span: Duration) -> u128 {
    u128::from(pace.permits) * NANO * u128::from(nanos(span)) / u128::from(pace.over)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_millis(100);

    fn millis(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn what_is_left_is_lent_at_the_rate_that_lasts() {
        // 100 permits for a second: ten in the first term, then one each 10 ms.
        let pace = Pace { permits: 100, over: 1_000_000_000 };
        let mut pacer = Pacer::Free;
        assert_eq!(pacer.lendable(millis(0), 100, pace, TERM), 10);
        pacer.lent(10);
        assert_eq!(pacer.lendable(millis(9), 90, pace, TERM), 0);
        assert_eq!(pacer.wait(pace), Duration::from_millis(1));
        assert_eq!(pacer.lendable(millis(10), 90, pace, TERM), 1);
    }

    #[test]
    fn unused_credit_does_not_pile_up_beyond_a_term() {
        let pace = Pace { permits: 100, over: 1_000_000_000 };
        let mut pacer = Pacer::Free;
        pacer.lendable(millis(0), 100, pace, TERM);
        assert_eq!(pacer.lendable(millis(5_000), 100, pace, TERM), 10);
    }

    #[test]
    fn a_pace_slower_than_one_a_term_still_lends_one_at_a_time() {
        let pace = Pace { permits: 1, over: 10_000_000_000 };
        let mut pacer = Pacer::Free;
        assert_eq!(pacer.lendable(millis(0), 1, pace, TERM), 1);
        pacer.lent(1);
        assert_eq!(pacer.lendable(millis(9_999), 1, pace, TERM), 0);
        assert_eq!(pacer.lendable(millis(10_000), 1, pace, TERM), 1);
    }
}
