//! Changes and top-ups of a sliding window: what becomes of its charges, and when permits can be lent. No charge ends
//! sooner than it would have ended.

use super::{SlidingLedger, Slot};
use crate::CarryOver;
use crate::rule::scaled_up;
use lessor_protocol::{Moment, PERMITS_MAX};
use std::collections::VecDeque;

impl SlidingLedger {
    /// Continues under the rule of `fresh`, whose window has the same length.
    pub(super) fn goes_on_by(&mut self, fresh: SlidingLedger, carry_over: CarryOver) {
        if carry_over == CarryOver::Proportional {
            self.scale(fresh.limit);
        }
        self.limit = fresh.limit;
        if fresh.window != self.window {
            self.move_ends(&fresh);
        }
    }

    /// Scales charges in proportion from the old limit to `limit`. The sum of the newest charges is rounded up at each
    /// charge, so whatever part of the past a window still sees is rounded up once.
    fn scale(&mut self, limit: u64) {
        let most = PERMITS_MAX - self.outstanding;
        let (mut newest, mut scaled) = (0, 0);
        for slot in self.settled.iter_mut().rev() {
            newest += slot.permits;
            let sum = scaled_up(newest, self.limit, limit).min(most);
            slot.permits = sum - scaled;
            scaled = sum;
        }
        self.settled_sum = scaled;
        self.since = self.now;
    }

    /// Moves charges to the sub-windows of `fresh`, whose margin differs. Each charge lasts as the longer margin says:
    /// a call may still be under way that was admitted under the old one.
    fn move_ends(&mut self, fresh: &SlidingLedger) {
        let longer = fresh.window.saturating_sub(self.window);
        let mut settled: VecDeque<Slot> = VecDeque::new();
        for slot in &self.settled {
            let end = self.end_of(slot.index).as_nanos().saturating_add(longer);
            let index = end.div_ceil(fresh.width);
            match settled.back_mut() {
                Some(last) if last.index >= index => last.permits += slot.permits,
                _ => settled.push_back(Slot { index, permits: slot.permits }),
            }
        }
        (self.settled, self.window, self.width, self.since) = (settled, fresh.window, fresh.width, self.now);
    }

    /// Allows `permits` more, for as long as a permit spent now is charged.
    pub(super) fn allow_more(&mut self, permits: u64) {
        let ends = Moment::from_nanos(self.now.as_nanos().saturating_add(self.window));
        // A top-up from before the window became shorter may end later.
        let place = self.extra.partition_point(|(other, _)| *other <= ends);
        self.extra.insert(place, (ends, permits));
        if self.extra.len() > super::EXTRA_MAX {
            // Drops the top-up that ends first: less is allowed than might be, never more.
            self.extra.pop_front();
        }
    }

    /// Returns the most that may be charged now, top-ups included.
    pub(super) fn allowed(&self) -> u64 {
        self.extra.iter().fold(self.limit, |sum, (_, permits)| sum.saturating_add(*permits)).min(PERMITS_MAX)
    }

    /// Drops the top-ups that have ended.
    pub(super) fn end_extra(&mut self) {
        while self.extra.front().is_some_and(|(ends, _)| *ends <= self.now) {
            self.extra.pop_front();
        }
    }

    /// Returns when `permits` can be lent if charges end as they will and `leases`, soonest first, burn. Top-ups end on
    /// the way.
    pub(super) fn free_at(&self, permits: u64, leases: impl Iterator<Item = Slot>) -> Option<Moment> {
        let mut free =
            i128::from(self.allowed()) - i128::from(self.outstanding) - i128::from(self.settled_sum);
        let mut ready = self.now;
        let mut settled = self.settled.iter().copied().peekable();
        let mut leases = leases.peekable();
        let mut extra = self.extra.iter().peekable();
        while free < i128::from(permits) {
            let settled_first = match (settled.peek(), leases.peek()) {
                (Some(slot), Some(lease)) => slot.index <= lease.index,
                (slot, _) => slot.is_some(),
            };
            let next = if settled_first { settled.next() } else { leases.next() }?;
            free += i128::from(next.permits);
            ready = self.end_of(next.index);
            while let Some((_, permits)) = extra.next_if(|(ends, _)| *ends <= ready) {
                free -= i128::from(*permits);
            }
        }
        Some(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;
    use crate::rule::{Account, Gap, RuleAccount, Since, SlidingWindow};
    use lessor_protocol::ClockBounds;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    fn rule(limit: u64, margin: u64) -> Rule {
        let margin = Duration::from_nanos(margin);
        Rule::SlidingWindow(SlidingWindow::try_new(limit, Duration::from_nanos(512), margin).expect("valid"))
    }

    fn clocks() -> ClockBounds {
        ClockBounds::try_new(0).expect("no drift")
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(SECOND + nanos)
    }

    /// A window of ten, at 200: 4 settled at 0, 2 at 100, and 1 outstanding.
    fn ledger() -> SlidingLedger {
        let Rule::SlidingWindow(rule) = rule(10, 0) else { unreachable!("it is one") };
        let mut ledger = SlidingLedger::new(&rule, clocks(), at(0));
        ledger.charge(7);
        ledger.settle(4, at(0));
        ledger.advance(at(100));
        ledger.settle(2, at(100));
        ledger.advance(at(200));
        ledger
    }

    fn available_at(ledger: &SlidingLedger, nanos: u64) -> u64 {
        let mut later = ledger.clone();
        later.advance(at(nanos));
        later.available()
    }

    #[test]
    fn as_it_is_what_is_charged_stays_charged() {
        for carry_over in [CarryOver::AsIs, CarryOver::Additive] {
            let mut less = ledger();
            assert!(less.change(&rule(3, 0), clocks(), carry_over));
            assert!(less.excess() == 4 && less.is_sound());
            assert_eq!([512, 612].map(|nanos| available_at(&less, nanos)), [0, 2], "3 − 3, then 3 − 1");
            let mut more = ledger();
            assert!(more.change(&rule(30, 0), clocks(), carry_over));
            assert_eq!(more.available(), 30 - 7);
        }
    }

    #[test]
    fn in_proportion_the_newest_sums_are_rounded_up() {
        // Three tenths of the newest 2 are 0.6, and of the newest 6 they are 1.8. The sums are rounded up to 1 and 2.
        let mut ledger = ledger();
        assert!(ledger.change(&rule(3, 0), clocks(), CarryOver::Proportional));
        assert_eq!((ledger.available(), available_at(&ledger, 512)), (3 - 1 - 2, 3 - 1 - 1));
        assert!(ledger.change(&rule(30, 0), clocks(), CarryOver::Proportional));
        assert_eq!(ledger.available(), 30 - 1 - 20);
    }

    /// The bug: a top-up had allowed more charges than the limit, and their sum, scaled, did not fit 64 bits.
    #[test]
    fn in_proportion_no_more_is_charged_than_there_can_be() {
        let Rule::SlidingWindow(one) = rule(1, 0) else { unreachable!("it is one") };
        let mut ledger = SlidingLedger::new(&one, clocks(), at(0));
        ledger.top_up(10_000);
        ledger.charge(3_001);
        ledger.settle(2_000, at(0));
        ledger.advance(at(100));
        ledger.settle(1_000, at(100));
        assert!(ledger.change(&rule(PERMITS_MAX, 0), clocks(), CarryOver::Proportional));
        assert_eq!((ledger.available(), ledger.is_sound()), (0, true));
        let Rule::SlidingWindow(most) = rule(PERMITS_MAX, 0) else { unreachable!("it is one") };
        let mut again = SlidingLedger::new(&most, clocks(), at(100));
        let since = Since { gap: Gap::Counted, written: at(100).into(), now: at(100), clocks: clocks() };
        assert!(again.restore(&ledger.save(), since, (1, at(300))));
        assert_eq!((again.available(), available_at(&again, 612)), (0, PERMITS_MAX - 1));
    }

    /// A late report proves permits unspent that were settled before the change. How many of them are still charged is
    /// unknown.
    #[test]
    fn what_was_scaled_is_not_credited() {
        let mut ledger = ledger();
        assert!(ledger.change(&rule(3, 0), clocks(), CarryOver::Proportional));
        ledger.credit(2, at(100));
        assert_eq!(ledger.available(), 0);
    }

    #[test]
    fn another_window_is_another_rule() {
        let longer = SlidingWindow::try_new(10, Duration::from_nanos(513), Duration::ZERO).expect("valid");
        assert!(!ledger().change(&Rule::SlidingWindow(longer), clocks(), CarryOver::AsIs));
    }

    /// With a longer margin all charges last longer. With a shorter one, those made under the longer margin still do.
    #[test]
    fn another_margin_lets_nothing_go_sooner() {
        let mut ledger = ledger();
        assert!(ledger.change(&rule(10, 512), clocks(), CarryOver::AsIs));
        assert_eq!([1_023, 1_024].map(|nanos| available_at(&ledger, nanos)), [3, 7]);
        assert!(ledger.change(&rule(10, 0), clocks(), CarryOver::AsIs));
        assert_eq!([1_023, 1_024].map(|nanos| available_at(&ledger, nanos)), [3, 7]);
        ledger.settle(1, at(200));
        assert_eq!([1_023, 1_024, 1_124].map(|nanos| available_at(&ledger, nanos)), [3, 7, 10]);
    }

    #[test]
    fn a_top_up_counts_for_as_long_as_a_spend_does() {
        let mut ledger = ledger();
        ledger.top_up(5);
        assert_eq!([200, 511, 512, 711, 712].map(|nanos| available_at(&ledger, nanos)), [8, 8, 12, 14, 9]);
        // More permits than are left wait for charges to end. The top-up that ends meanwhile does not count.
        let ready = |permits| ledger.ready_at(permits, &mut [(at(300), 1)].into_iter());
        assert_eq!([8, 9, 14, 15].map(ready), [Some(at(200)), Some(at(512)), Some(at(612)), None]);
    }

    #[test]
    fn what_is_over_is_ready_once_all_of_it_has_gone() {
        let mut ledger = ledger();
        assert!(ledger.change(&rule(3, 0), clocks(), CarryOver::AsIs));
        let ready = |permits| ledger.ready_at(permits, &mut [(at(300), 1)].into_iter());
        assert_eq!([1, 2, 3, 4].map(ready), [Some(at(612)), Some(at(612)), Some(at(812)), None]);
    }
}
