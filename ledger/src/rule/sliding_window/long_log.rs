//! A log of very many settlements. Kept apart, they would take more memory than a limit should have, and more bytes than
//! a cell of a shared store may have. So a log keeps this many apart, and lets later ones go together: at the edge of a
//! part of the window, later than each of them alone.

use super::SlidingLedger;

/// Entries of a log up to which each settlement is kept apart. A longer log has one entry for each of as many parts of the
/// window, and so at most twice as many.
const APART_MAX: usize = 8_192;

impl SlidingLedger {
    /// Returns the entry for a settlement of the slot `index`, which is after all entries.
    pub(super) fn new_entry(&self, index: u64) -> u64 {
        if self.is_log && self.settled.len() >= APART_MAX { self.edge_after(index) } else { index }
    }

    /// Returns the entry that has a settlement of the slot `index`. One that would have been let go by now, if it was
    /// kept apart, is not looked for: it may be gone.
    pub(super) fn entry_of(&self, index: u64) -> u64 {
        let is_apart = self.settled.binary_search_by_key(&index, |slot| slot.index).is_ok();
        let is_gone = self.end_of(index) <= self.now;
        if !self.is_log || is_apart || is_gone { index } else { self.edge_after(index) }
    }

    /// Returns the edge of a part of the window at or after the slot `index` of a log, whose slots are nanoseconds.
    fn edge_after(&self, index: u64) -> u64 {
        let part = (self.window / APART_MAX as u64).max(1);
        index.checked_next_multiple_of(part).unwrap_or(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::VALUE_MAX;
    use crate::rule::{Account, Gap, RuleAccount, Since, SlidingWindow};
    use lessor_protocol::{ClockBounds, Moment};
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(1_000_000_007) + Duration::from_secs(seconds)
    }

    fn settle(log: &mut SlidingLedger, seconds: u64) {
        log.advance(at(seconds));
        log.charge(1);
        log.settle(1, at(seconds));
    }

    fn clocks() -> ClockBounds {
        ClockBounds::try_new(0).expect("no drift")
    }

    fn log(seconds: u64) -> SlidingLedger {
        let rule = SlidingWindow::try_new(100_000, DAY, Duration::ZERO).expect("valid");
        SlidingLedger::log(&rule, clocks(), at(seconds))
    }

    /// A log of a day, in which a permit was spent in each of 60,000 seconds.
    fn long_log() -> SlidingLedger {
        let mut log = log(0);
        (1..=60_000).for_each(|seconds| settle(&mut log, seconds));
        log
    }

    /// The bug: each settlement took some 25 bytes of a root, which no store may keep beyond a mebibyte. Then the root lent
    /// nothing for up to a window.
    #[test]
    fn a_long_log_fits_into_a_cell() {
        let bytes = serde_json::to_vec(&long_log().save()).expect("it is written").len();
        assert!(bytes < VALUE_MAX / 2, "{bytes}");
    }

    #[test]
    fn a_long_log_lets_nothing_go_sooner_and_each_settlement_little_later() {
        let mut log = long_log();
        for seconds in (1..60_000).step_by(997) {
            log.advance(at(86_400 + seconds));
            let (sum, exact) = (log.settled_sum, 60_000 - seconds);
            assert!((exact..=exact + 11).contains(&sum), "{sum} and not {exact} at {seconds}");
            assert!(log.is_sound());
        }
        // A log that is short again is exact.
        settle(&mut log, 86_400 + 60_000);
        log.advance(at(2 * 86_400 + 59_999));
        assert_eq!(log.settled_sum, 1);
        log.advance(at(2 * 86_400 + 60_000));
        assert_eq!(log.settled_sum, 0);
    }

    #[test]
    fn a_settlement_of_a_long_log_is_credited_until_it_would_end_if_it_were_kept_apart() {
        let mut log = long_log();
        for seconds in [1, 8_000, 9_000, 59_999] {
            log.credit(1, at(seconds));
        }
        assert_eq!((log.settled_sum, log.is_sound()), (59_996, true));
        log.advance(at(86_400 + 9_001));
        let sum = log.settled_sum;
        log.credit(1, at(9_001));
        assert_eq!(log.settled_sum, sum, "it may have gone");
    }

    /// An edge in the books of before is none by this clock.
    #[test]
    fn what_was_settled_before_a_gap_that_was_not_counted_is_not_credited() {
        for (gap, left) in [(Gap::Counted, 59_999), (Gap::Unknown, 60_000)] {
            let mut again = log(60_000);
            let since = Since { gap, written: at(60_000).into(), now: at(60_000), clocks: clocks() };
            assert!(again.restore(&long_log().save(), since, (0, at(60_000))));
            again.credit(1, at(50_000));
            assert_eq!(again.settled_sum, left, "{gap:?}");
        }
    }
}
