//! The even pace of a sliding window when nodes want more than it has. Permits spent in a burst come back in a burst.
//! They are lent at the average rate, and those kept meanwhile are lent while fewer come back.

use super::SlidingLedger;
use crate::rule::{Account, Pace};
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Part of the window that a plan looks ahead. Permits outstanding now come back in the rest of the window, at unknown
/// instants.
const AHEAD: (u64, u64) = (7, 8);
/// Permits that come back within this part of the window (1/32) come too soon to plan for.
const NEXT: u64 = 32;
/// Permits left beyond those needed go out within this part of the window (1/64).
const SURPLUS: u64 = 64;
/// The fastest pace, in percent of the average.
const FASTEST_PERCENT: u64 = 110;
/// A plan is valid for this part of the window (1/512).
const PLAN: u32 = 512;
/// Largest limit of a log that is evened out: a plan looks at each of its spends.
const LOG_MAX: u64 = 16_384;
/// Shortest window that is evened out: sessions ask a shorter one too seldom for these parts of it.
const WINDOW_MIN: Duration = Duration::from_secs(5);
/// Smallest limit that is evened out. Fewer permits are lent one by one, and most of them wait for a call, so each one
/// kept for later is missed.
const LIMIT_MIN: u64 = 64;

impl SlidingLedger {
    /// Returns how long demand must exceed what comes back until the window is lent evenly, and how long a plan is
    /// valid. `None` if the window is too short, its log too long, or its limit too small.
    pub fn evens_out(&self) -> Option<(Duration, Duration)> {
        let window = Duration::from_nanos(self.window);
        let is_too_long = self.is_log && self.limit > LOG_MAX;
        let is_fit = window >= WINDOW_MIN && self.limit >= LIMIT_MIN && !is_too_long;
        is_fit.then_some((window, window / PLAN))
    }

    /// Returns the even pace with `kept` permits kept back. It is the average of what is left and comes back within a
    /// window, or the slower pace at which permits last until more come back. If permits are left beyond that, it is a
    /// little faster than the average.
    pub fn even_pace(&self, kept: u64) -> Pace {
        let left = self.available().saturating_sub(kept);
        // Outstanding permits come back later than the plan looks.
        let average = Pace { permits: left + self.settled_sum, over: self.window };
        let (next, end) = (self.window / NEXT, self.window / AHEAD.1 * AHEAD.0);
        let (mut lent, mut lasts, mut needed) = (left, average, 0);
        for slot in &self.settled {
            let until = nanos(self.end_of(slot.index).since(self.now)).max(1);
            if until > end {
                break;
            }
            if until >= next {
                lasts = lasts.slower(Pace { permits: lent, over: until });
                let wanted = average.within(Duration::from_nanos(until));
                needed = needed.max((wanted + left).saturating_sub(lent));
            }
            lent += slot.permits;
        }
        if lasts != average {
            return lasts;
        }
        let surplus = left.saturating_sub(needed).saturating_mul(SURPLUS);
        let fastest = u128::from(average.permits) * u128::from(FASTEST_PERCENT) / 100;
        let fastest = u64::try_from(fastest).unwrap_or(u64::MAX);
        Pace { permits: average.permits.saturating_add(surplus).min(fastest), ..average }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::SlidingWindow;
    use lessor_protocol::{ClockBounds, Moment};

    const SECOND: u64 = 1_000_000_000;

    /// A window of 512 permits in 512 s, with sub-windows of a second, at the second `now`.
    fn ledger(now: u64) -> SlidingLedger {
        let rule = SlidingWindow::try_new(512, Duration::from_secs(512), Duration::ZERO).expect("valid");
        SlidingLedger::new(
            &rule,
            ClockBounds::try_new(0).expect("no drift"),
            Moment::from_nanos(now * SECOND),
        )
    }

    /// A ledger after `spends`: the second of each, and its permits.
    fn spent(spends: &[(u64, u64)]) -> SlidingLedger {
        let mut ledger = ledger(0);
        for &(second, permits) in spends {
            let at = Moment::from_nanos(second * SECOND);
            ledger.advance(at);
            ledger.charge(permits);
            ledger.settle(permits, at);
        }
        ledger
    }

    /// Permits in a thousand seconds.
    fn milli(pace: Pace) -> u64 {
        pace.within(Duration::from_secs(1_000))
    }

    #[test]
    fn what_comes_back_in_a_burst_is_lent_at_the_average_rate() {
        let mut ledger = spent(&[(0, 200), (1, 200), (256, 112)]);
        ledger.advance(Moment::from_nanos(512 * SECOND));
        assert_eq!(ledger.available(), 200);
        let (average, fastest) = (1_000, 1_100);
        // 200 more come back next, and 112 in 256 s. Until then 256 are wanted: those 200 and 56 of what is left. 144
        // are a surplus.
        assert!((fastest - 1..=fastest).contains(&milli(ledger.even_pace(0))));
        assert_eq!(
            milli(ledger.even_pace(200)),
            609,
            "all that is there is kept back: 312 come back in a window"
        );
        ledger.advance(Moment::from_nanos(513 * SECOND));
        let pace = milli(ledger.even_pace(0));
        assert!((average..=fastest).contains(&pace), "{pace}");
    }

    #[test]
    fn what_is_left_lasts_until_more_comes_back() {
        // 12 are left for 400 s: all others come back then.
        let mut ledger = spent(&[(400, 500)]);
        ledger.advance(Moment::from_nanos(512 * SECOND));
        assert_eq!(milli(ledger.even_pace(0)), 30);
        // Half of them came back sooner.
        let mut ledger = spent(&[(100, 250), (400, 250)]);
        ledger.advance(Moment::from_nanos(512 * SECOND));
        assert_eq!(milli(ledger.even_pace(0)), 120, "12 until the first half is back");
    }

    #[test]
    fn what_comes_back_evenly_goes_out_as_it_comes() {
        let every: Vec<(u64, u64)> = (0..512).map(|second| (second, 1)).collect();
        let mut ledger = spent(&every);
        ledger.advance(Moment::from_nanos(512 * SECOND));
        let pace = milli(ledger.even_pace(0));
        assert!((1_000..=1_100).contains(&pace), "{pace}");
    }

    #[test]
    fn a_long_log_is_not_evened_out() {
        let evens_out = |limit| {
            let rule = SlidingWindow::try_new(limit, Duration::from_secs(30), Duration::ZERO).expect("valid");
            let clocks = ClockBounds::try_new(0).expect("no drift");
            SlidingLedger::log(&rule, clocks, Moment::ORIGIN).evens_out().is_some()
        };
        assert!(evens_out(LOG_MAX) && !evens_out(LOG_MAX + 1));
    }

    #[test]
    fn neither_a_short_window_nor_a_small_limit_is_evened_out() {
        let evens_out = |limit, seconds| {
            let rule =
                SlidingWindow::try_new(limit, Duration::from_secs(seconds), Duration::ZERO).expect("valid");
            let clocks = ClockBounds::try_new(0).expect("no drift");
            SlidingLedger::new(&rule, clocks, Moment::ORIGIN).evens_out()
        };
        assert_eq!(evens_out(LIMIT_MIN, 4), None);
        assert_eq!(evens_out(LIMIT_MIN - 1, 512), None);
        assert_eq!(evens_out(LIMIT_MIN, 512), Some((Duration::from_secs(512), Duration::from_secs(1))));
    }
}
