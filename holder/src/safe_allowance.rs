//! The permits of one limit that this process may spend while no allocator answers: a part of its reserve, spent
//! evenly. The background task receives it, calls take from it; it reads no clock.
//!
//! A call of n permits needs n − 1 intervals before it and n after it. So a span of k intervals holds at most k + 1
//! permits, however large the calls are, and an interval of length `span` holds no more than the share.

use lessor_protocol::rare::Usual;
use lessor_protocol::{ClockBounds, Moment, SafeShare};
use std::time::Duration;

/// A part of the reserve of one limit.
#[derive(Clone, Copy, Debug)]
pub struct SafeAllowance {
    held: Option<Held>,
    /// When the last take is paid for.
    paid: Moment,
    /// When all spends have left the longest window of any share.
    clear: Moment,
}

/// No share was received, and nothing was taken.
impl Usual for SafeAllowance {
    const USUAL: &'static Self = &SafeAllowance { held: None, paid: Moment::ORIGIN, clear: Moment::ORIGIN };
}

impl Default for SafeAllowance {
    fn default() -> Self {
        *SafeAllowance::USUAL
    }
}

/// A take of [`SafeAllowance::try_take`], which can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paid {
    before: Moment,
    after: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    permits: u64,
    /// Nanoseconds from one permit to the next.
    interval: u64,
    ends: Moment,
}

impl SafeAllowance {
    /// Takes in the `share` of an answer to an ask that was first sent at `first_sent`. Without one, an earlier share
    /// holds until its end.
    pub fn tell(&mut self, share: Option<SafeShare>, first_sent: Moment, clocks: ClockBounds) {
        let Some(share) = share.filter(SafeShare::is_sane) else { return };
        let ends = clocks.holder_end(first_sent, share.lasts);
        self.held = Some(Held { permits: share.permits, interval: share.interval(clocks), ends });
        self.note();
    }

    /// Carries over the spends of `earlier`, so that the later end of both counts.
    pub fn inherit(&mut self, earlier: &SafeAllowance) {
        self.paid = self.paid.max(earlier.paid);
        self.clear = self.clear.max(earlier.clear);
        self.note();
    }

    /// Whether all spends have left every window, so that a new share may be spent beside them.
    pub fn is_forgettable(&self, now: Moment) -> bool {
        now >= self.clear
    }

    /// Extends the time for which spends are remembered, according to the share that is held.
    fn note(&mut self) {
        if let Some(held) = self.held.filter(|_| self.paid > Moment::ORIGIN) {
            self.clear = self.clear.max(self.paid + times(held.interval, held.permits));
        }
    }

    /// Takes `permits`, if they are due by now.
    pub fn take(&mut self, permits: u64, now: Moment) -> bool {
        self.try_take(permits, now).is_some()
    }

    /// Takes `permits` like [`SafeAllowance::take`], and returns what [`SafeAllowance::put_back`] needs to undo it.
    pub fn try_take(&mut self, permits: u64, now: Moment) -> Option<Paid> {
        let (Some(held), Some(Duration::ZERO)) = (self.held, self.wait(permits, now)) else { return None };
        let before = std::mem::replace(&mut self.paid, now + times(held.interval, permits));
        self.note();
        Some(Paid { before, after: self.paid })
    }

    /// Undoes a take that was not spent, unless another take came after it: then it stays spent.
    pub fn put_back(&mut self, taken: Paid) {
        if self.paid == taken.after {
            self.paid = taken.before;
        }
    }

    /// Records `permits` that were spent beyond the share: the next that fall due pay for them. Returns false if there
    /// is no share.
    pub fn owe(&mut self, permits: u64, now: Moment) -> bool {
        let Some(held) = self.held else { return false };
        self.paid = self.paid.max(now) + times(held.interval, permits);
        self.note();
        true
    }

    /// Returns how long it is until `permits` can be taken; `None` if never.
    pub fn wait(&self, permits: u64, now: Moment) -> Option<Duration> {
        let held = self.held.filter(|held| permits <= held.permits)?;
        let due = (self.paid + times(held.interval, permits.saturating_sub(1))).max(now);
        (due < held.ends).then(|| due.since(now))
    }
}

fn times(interval: u64, permits: u64) -> Duration {
    Duration::from_nanos(interval.saturating_mul(permits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::millis as at;
    use proptest::prelude::*;

    const MILLI: u64 = 1_000_000;

    fn share(permits: u64) -> SafeShare {
        SafeShare { permits, span: Duration::from_secs(1), lasts: Duration::from_secs(60) }
    }

    fn allowance(permits: u64) -> SafeAllowance {
        let mut allowance = SafeAllowance::default();
        allowance.tell(Some(share(permits)), at(10_000), ClockBounds::try_new(0).expect("no drift"));
        allowance
    }

    #[test]
    fn permits_come_one_after_the_other_until_the_share_ends() {
        let mut allowance = allowance(10);
        assert!(
            allowance.take(1, at(20_000)) && !allowance.take(1, at(20_099)) && allowance.take(1, at(20_100))
        );
        assert_eq!(allowance.wait(1, at(20_150)), Some(Duration::from_millis(50)));
        // Three permits need two intervals before them, and three after.
        assert_eq!(allowance.wait(3, at(20_150)), Some(Duration::from_millis(250)));
        assert!(allowance.take(3, at(20_400)));
        assert_eq!(allowance.wait(1, at(20_400)), Some(Duration::from_millis(300)));
        assert_eq!((allowance.wait(11, at(30_000)), allowance.wait(1, at(70_000))), (None, None));
        assert!(allowance.take(10, at(69_999)));
    }

    #[test]
    fn what_was_spent_beyond_a_reservation_is_paid_before_the_next_call() {
        let mut allowance = allowance(10);
        assert!(!SafeAllowance::default().owe(1, at(20_000)), "a process without a share");
        assert!(allowance.owe(3, at(20_000)));
        assert_eq!(allowance.wait(1, at(20_000)), Some(Duration::from_millis(300)));
        assert!(allowance.take(1, at(20_300)) && !allowance.take(1, at(20_399)));
    }

    #[test]
    fn what_was_not_spent_goes_back_unless_another_call_came_after_it() {
        let mut allowance = allowance(10);
        let taken = allowance.try_take(2, at(20_000)).expect("two permits are due");
        assert!(!allowance.take(1, at(20_001)));
        allowance.put_back(taken);
        let first = allowance.try_take(1, at(20_001)).expect("the permit is due again");
        assert!(allowance.take(1, at(20_200)));
        allowance.put_back(first);
        assert!(!allowance.take(1, at(20_201)), "the later permit was spent");
    }

    /// A limit that is forgotten and used again: spends of the earlier share count.
    #[test]
    fn what_an_earlier_allowance_spent_is_paid_first() {
        let mut earlier = allowance(10);
        assert!(earlier.take(5, at(20_000)));
        let mut later = allowance(10);
        later.inherit(&earlier);
        assert_eq!(later.wait(1, at(20_000)), Some(Duration::from_millis(500)));
        assert!(!later.is_forgettable(at(21_499)) && later.is_forgettable(at(21_500)));
    }

    #[test]
    fn a_node_that_was_told_of_nothing_takes_nothing_and_what_was_told_holds_until_its_end() {
        let mut allowance = SafeAllowance::default();
        assert!(!allowance.take(1, at(20_000)));
        allowance.tell(Some(share(0)), at(20_000), ClockBounds::default());
        assert!(!allowance.take(1, at(20_000)));
        allowance.tell(Some(share(1)), at(20_000), ClockBounds::default());
        allowance.tell(None, at(30_000), ClockBounds::default());
        assert!(allowance.take(1, at(30_000)));
        // Another share does not forgive what was taken from this one.
        allowance.tell(Some(share(2)), at(30_500), ClockBounds::default());
        assert!(!allowance.take(1, at(30_900)) && allowance.take(1, at(31_002)));
    }

    proptest! {
        /// In any window of real time the holder of a share spends no more than the share. This holds on any clock within
        /// the drift, and for calls of any size.
        #[test]
        fn no_window_holds_more_than_the_share(
            permits in 1u64..12,
            rate in -1.0f64..1.0,
            calls in proptest::collection::vec((0u64..400, 1u64..12), 1..60),
        ) {
            let clocks = ClockBounds::default();
            let rate = 1.0 + rate * f64::from(ClockBounds::DRIFT_PPM) / 1e6;
            let mut allowance = SafeAllowance::default();
            allowance.tell(Some(share(permits)), at(0), clocks);
            let (mut real, mut spent) = (0u64, vec![]);
            for (pause, n) in calls {
                real += pause * MILLI;
                let now = Moment::from_nanos((real as f64 * rate) as u64);
                if allowance.take(n, now) {
                    spent.push((real, n));
                }
            }
            for (index, &(end, _)) in spent.iter().enumerate() {
                let window = spent[..=index].iter().filter(|(at, _)| at + 1_000 * MILLI > end);
                let sum: u64 = window.map(|(_, n)| n).sum();
                prop_assert!(sum <= permits, "{} in a window up to {}: {:?}", sum, end, spent);
            }
        }
    }
}
