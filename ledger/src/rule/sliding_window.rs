//! `sliding_window`: At most N in any window of length W, aligned or not. A permit is charged while it is outstanding,
//! and from its last possible spend `x` until `x + W'`. `W' = (W + margin)·(1 + drift)` covers the way to the vendor
//! and an allocator's clock that runs fast.
//!
//! Why it holds: take any window and, of the permits spent in it, the one that was lent last. At that instant
//! all the others were still charged, and the sum was at most N.

mod change;
mod even;
mod lasts;
mod long_log;
mod resting;
mod written;

use super::{Account, Draw, Ends, Pace, RuleAccount, RuleError, Saved, Since, check_per, check_permits};
use crate::{CarryOver, Rule};
use lessor_protocol::moment::nanos;
use lessor_protocol::{ClockBounds, Moment};
use std::collections::VecDeque;
use std::time::Duration;

/// At most `limit` permits in any window of length `per`: the checked numbers of a sliding window or log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u64,
    per: Duration,
    margin: Duration,
}

impl SlidingWindow {
    /// Default time that may pass between a spend and the vendor's count: most calls arrive within a quarter of a
    /// second of being admitted. A longer margin costs its share of the window.
    pub const MARGIN: Duration = Duration::from_millis(250);

    /// Checks the numbers.
    ///
    /// # Errors
    /// If `limit` is above 2^53 − 1, `per` is zero or above 366 days, or `margin` is longer than `per`.
    pub fn try_new(limit: u64, per: Duration, margin: Duration) -> Result<Self, RuleError> {
        check_permits("limit", limit)?;
        check_per(per)?;
        if margin > per {
            let problem =
                format!("is {margin:?}, longer than the window itself ({per:?}): use a shorter margin");
            return Err(RuleError { field: "margin", problem });
        }
        Ok(SlidingWindow { limit, per, margin })
    }

    /// Permits per window. 0 refuses everything.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of the window, as the contract says it.
    pub fn per(&self) -> Duration {
        self.per
    }

    /// Longest time that may pass between a spend and the vendor's count.
    pub fn margin(&self) -> Duration {
        self.margin
    }
}

/// Sub-windows per window. Charges are rounded up to the end of one, which costs half of one on average: a
/// thousandth of the window. More would cost memory (16 bytes each, only while busy), fewer would cost quota.
const SUB_WINDOWS: u64 = 512;

/// Parts of a window: easing off plans one part ahead, or until the first charge ends if that is later. The permits
/// left are spread over that time. A longer plan leaves permits unused where others come back all the time; a shorter
/// one does not ease off.
const PLAN_PARTS: u64 = 30;

/// Top-ups that count at a time: more than an operator makes by hand in one window. One more drops the one that ends
/// first.
const EXTRA_MAX: usize = 64;

/// The books of a sliding window or log.
#[derive(Clone, Debug)]
pub struct SlidingLedger {
    limit: u64,
    /// W in nanoseconds, as the contract says it.
    per: u64,
    /// Whether each settlement is kept apart, as in a log.
    is_log: bool,
    /// W' in nanoseconds.
    window: u64,
    /// Length of a sub-window in nanoseconds, at least 1.
    width: u64,
    now: Moment,
    /// Settled permits by the sub-window at whose end they are let go, soonest first, one entry for each sub-window.
    settled: VecDeque<Slot>,
    /// Sum of `settled`.
    settled_sum: u64,
    outstanding: u64,
    /// Top-ups: when each ends, and its permits, soonest first.
    extra: VecDeque<(Moment, u64)>,
    /// Settlements up to this instant are no longer charged where their instant says, so they cannot be credited.
    since: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Index of the sub-window; it ends at `index · width`.
    index: u64,
    permits: u64,
}

impl SlidingLedger {
    /// Creates an empty window at `now`.
    pub fn new(rule: &SlidingWindow, clocks: ClockBounds, now: Moment) -> Self {
        let per = rule.per() + rule.margin();
        let ledger = Self::in_parts(SUB_WINDOWS, rule.limit(), per, clocks, now);
        SlidingLedger { per: nanos(rule.per()), ..ledger }
    }

    /// Creates an empty log at `now`. Its sub-windows are nanoseconds, so all settlements are kept apart but those of
    /// one instant, up to a bound (see `long_log`). Each has at least one permit, so there are never more entries than
    /// the limit. An entry takes 16 bytes, and an ask looks at those that end within the next term or thirtieth of the
    /// window.
    pub fn log(rule: &SlidingWindow, clocks: ClockBounds, now: Moment) -> Self {
        let ledger = Self::in_parts(u64::MAX, rule.limit(), rule.per() + rule.margin(), clocks, now);
        SlidingLedger { per: nanos(rule.per()), is_log: true, ..ledger }
    }

    fn in_parts(parts: u64, limit: u64, per: Duration, clocks: ClockBounds, now: Moment) -> Self {
        let window = nanos(clocks.stretched(per));
        SlidingLedger {
            limit,
            per: nanos(per),
            is_log: false,
            window,
            width: (window / parts).max(1),
            now,
            settled: VecDeque::new(),
            settled_sum: 0,
            outstanding: 0,
            extra: VecDeque::new(),
            since: now,
        }
    }

    /// Returns the first sub-window that ends no earlier than `at + W'`.
    fn slot_of(&self, at: Moment) -> u64 {
        at.as_nanos().saturating_add(self.window).div_ceil(self.width)
    }

    fn end_of(&self, slot: u64) -> Moment {
        Moment::from_nanos(slot.saturating_mul(self.width))
    }
}

impl Account for SlidingLedger {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        self.end_extra();
        while let Some(slot) = self.settled.front().copied()
            && self.end_of(slot.index) <= self.now
        {
            self.settled.pop_front();
            self.settled_sum -= slot.permits;
        }
    }

    fn available(&self) -> u64 {
        self.allowed().saturating_sub(self.outstanding + self.settled_sum)
    }

    fn charge(&mut self, permits: u64) {
        self.outstanding += permits;
    }

    fn settle(&mut self, permits: u64, at: Moment) {
        if permits == 0 {
            return;
        }
        self.outstanding -= permits;
        self.settled_sum += permits;
        let index = self.slot_of(at);
        match self.settled.back_mut() {
            Some(last) if last.index >= index => last.permits += permits,
            _ => {
                let index = self.new_entry(index);
                self.settled.push_back(Slot { index, permits });
            }
        }
    }

    fn release(&mut self, permits: u64) {
        self.outstanding -= permits;
    }

    fn credit(&mut self, permits: u64, at: Moment) {
        if at <= self.since {
            return;
        }
        let index = self.entry_of(self.slot_of(at));
        // The permits of a slot that is gone were let go already.
        if let Ok(place) = self.settled.binary_search_by_key(&index, |slot| slot.index) {
            let freed = permits.min(self.settled[place].permits);
            self.settled[place].permits -= freed;
            self.settled_sum -= freed;
            if self.settled[place].permits == 0 {
                self.settled.remove(place);
            }
        }
    }

    fn ready_at(&self, permits: u64, ends: Ends<'_>) -> Option<Moment> {
        let leases = ends.map(|(end, permits)| Slot { index: self.slot_of(end.max(self.now)), permits });
        self.free_at(permits, leases)
    }

    fn arriving(&self, span: Duration) -> u64 {
        let until = self.now + span;
        self.settled.iter().take_while(|slot| self.end_of(slot.index) <= until).map(|slot| slot.permits).sum()
    }

    fn sustained(&self, span: Duration) -> u64 {
        Pace { permits: self.limit, over: self.window }.within(span)
    }

    /// Permits spent from now on come back a window later, after all that were spent before.
    fn lasts(&self, draw: Draw) -> Option<Duration> {
        self.lasts_for(draw.and_at_once(self.excess()))
    }

    /// The permits left must last until charges end, and each part that is let go must last until more charges end. The
    /// pace is the slowest of these rates, as far as the plan looks ahead.
    fn pace(&self) -> Option<Pace> {
        let until = |slot: &Slot| nanos(self.end_of(slot.index).since(self.now)).max(1);
        let first = self.settled.front().map_or(self.window, until);
        let horizon = first.max(self.window / PLAN_PARTS).max(1);
        let mut lent = self.available();
        let mut pace: Option<Pace> = None;
        for slot in self.settled.iter().take_while(|slot| until(slot) <= horizon) {
            let reached = Pace { permits: lent, over: until(slot) };
            pace = Some(pace.map_or(reached, |pace| pace.slower(reached)));
            lent += slot.permits;
        }
        let whole = Pace { permits: lent, over: horizon };
        Some(pace.map_or(whole, |pace| pace.slower(whole)))
    }

    fn is_fresh(&self) -> bool {
        self.outstanding == 0 && self.settled_sum == 0 && self.extra.is_empty()
    }

    fn memory(&self) -> Duration {
        Duration::from_nanos(self.window.saturating_add(self.width))
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    fn forget(&mut self, quarantined: Moment) -> Moment {
        self.end_of(self.slot_of(quarantined))
    }

    fn excess(&self) -> u64 {
        (self.outstanding + self.settled_sum).saturating_sub(self.allowed())
    }

    fn is_sound(&self) -> bool {
        self.settled_sum == self.settled.iter().map(|slot| slot.permits).sum::<u64>()
    }
}

impl RuleAccount for SlidingLedger {
    fn change(&mut self, rule: &Rule, clocks: ClockBounds, carry_over: CarryOver) -> bool {
        match rule {
            Rule::SlidingWindow(rule) if !self.is_log && nanos(rule.per()) == self.per => {
                self.goes_on_by(SlidingLedger::new(rule, clocks, self.now), carry_over);
            }
            Rule::SlidingLog(rule) if self.is_log && nanos(rule.per()) == self.per => {
                self.goes_on_by(SlidingLedger::log(rule, clocks, self.now), carry_over);
            }
            Rule::SlidingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::FixedWindow(_)
            | Rule::TokenBucket(_)
            | Rule::LeakyBucket(_)
            | Rule::Concurrency(_) => return false,
        }
        true
    }

    fn adopt(&mut self, permits: u64, _until: Moment) {
        self.outstanding = permits;
    }

    fn top_up(&mut self, permits: u64) {
        self.allow_more(permits);
    }

    fn most(&self) -> u64 {
        self.allowed()
    }

    fn save(&self) -> Saved {
        self.saved()
    }

    fn restore(&mut self, saved: &Saved, since: Since, (out, _): (u64, Moment)) -> bool {
        self.restored(saved, since, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ledger(limit: u64) -> SlidingLedger {
        let rule = SlidingWindow::try_new(limit, Duration::from_nanos(512), Duration::ZERO).expect("valid");
        SlidingLedger::new(&rule, ClockBounds::try_new(0).expect("no drift"), Moment::from_nanos(SECOND))
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(SECOND + nanos)
    }

    #[test]
    fn a_permit_counts_until_a_window_after_its_last_possible_spend() {
        // Window 512 ns in sub-windows of 1 ns: no rounding. Lent at 0, reported spent at 100.
        let mut ledger = ledger(1);
        ledger.charge(1);
        ledger.advance(at(100));
        ledger.settle(1, at(100));
        ledger.advance(at(611));
        assert_eq!(ledger.available(), 0, "one nanosecond before x + W");
        ledger.advance(at(612));
        assert_eq!(ledger.available(), 1, "half-open: free at exactly x + W");
    }

    #[test]
    fn ready_counts_settled_permits_and_the_ends_of_leases() {
        let mut ledger = ledger(10);
        ledger.charge(9);
        ledger.settle(2, at(0));
        let ends = || vec![(at(50), 3), (at(80), 4)].into_iter();
        let ready = |permits| ledger.ready_at(permits, &mut ends());
        assert_eq!(ready(1), Some(at(0)));
        assert_eq!(ready(3), Some(at(512)));
        assert_eq!(ready(4), Some(at(562)));
        assert_eq!(ready(10), Some(at(592)));
        assert_eq!(ready(11), None);
    }

    /// A window of 1,000 s has sub-windows of about two seconds, so a sliding window would keep one entry instead of
    /// these three.
    #[test]
    fn a_log_keeps_each_spend_apart_and_to_the_nanosecond() {
        let rule = SlidingWindow::try_new(5, Duration::from_secs(1_000), Duration::ZERO).expect("valid");
        let mut log = SlidingLedger::log(&rule, ClockBounds::try_new(0).expect("no drift"), at(0));
        log.charge(5);
        for (nanos, permits) in [(7, 1), (8, 2), (8, 1), (9, 1)] {
            log.advance(at(nanos));
            log.settle(permits, at(nanos));
        }
        assert_eq!(log.settled.len(), 3, "those of one instant are one");
        let end = 1_000 * SECOND;
        for (nanos, free) in [(end + 6, 0), (end + 7, 1), (end + 8, 4), (end + 9, 5)] {
            log.advance(at(nanos));
            assert_eq!(log.available(), free, "after {nanos} ns");
        }
    }

    /// Otherwise a session that burns its leases and proves them unspent, again and again, would fill the memory.
    #[test]
    fn what_is_credited_in_full_is_not_remembered() {
        let rule = SlidingWindow::try_new(5, Duration::from_secs(1_000), Duration::ZERO).expect("valid");
        let mut log = SlidingLedger::log(&rule, ClockBounds::try_new(0).expect("no drift"), at(0));
        for nanos in 1..100 {
            log.charge(5);
            log.advance(at(nanos));
            log.settle(5, at(nanos));
            log.credit(5, at(nanos));
        }
        assert_eq!((log.settled.len(), log.available()), (0, 5));
    }

    #[test]
    fn a_credit_frees_only_what_is_still_charged() {
        let mut ledger = ledger(5);
        ledger.charge(5);
        ledger.settle(5, at(10));
        ledger.credit(2, at(10));
        assert_eq!(ledger.available(), 2);
        ledger.advance(at(522));
        ledger.credit(3, at(10));
        assert_eq!(ledger.available(), 5, "the slot was gone: nothing is freed twice");
        assert!(ledger.is_sound());
    }

    #[test]
    fn the_pace_is_what_lasts_until_charges_end() {
        // 4 left and nothing ends for 512 ns: 4 per 512 ns. 500 ns later, 6 end in 12 ns: the 4 need last no longer.
        let mut ledger = ledger(10);
        ledger.charge(6);
        ledger.settle(6, at(0));
        assert_eq!(ledger.pace(), Some(Pace { permits: 4, over: 512 }));
        ledger.advance(at(500));
        assert_eq!(ledger.pace(), Some(Pace { permits: 4, over: 12 }));
        // Where charges end all the time, the permits left are spread over a thirtieth of a window, 17 ns.
        let mut trickle = self::ledger(100);
        trickle.charge(60);
        (1..=60).for_each(|nanos| trickle.settle(1, at(nanos)));
        trickle.advance(at(512));
        assert_eq!(trickle.pace(), Some(Pace { permits: 40 + 16, over: 17 }));
    }
}
