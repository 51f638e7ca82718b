//! At most C + D + r·T in any interval T, exactly as one central bucket that may be D in the red. Permits that are out
//! still take their room: refill pauses while level and outstanding together fill the bucket.
//!
//! Why it holds: what can be spent in an interval is what the bucket, its debt and the leases hold at its start, at most
//! C + D, and what is minted in it, at most r·T (at intervals: what comes at the instants in it). A permit that was
//! burned made room for another; if it proves unspent later, it is gone all the same.

mod coldness;
pub(crate) mod refill;

use super::{Ends, Ledger};
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::rule::TokenBucket;
use lessor_protocol::{Moment, Terms};
use refill::Refill;
use std::time::Duration;

/// The books of a token bucket.
#[derive(Clone, Debug)]
pub struct BucketLedger {
    capacity: u64,
    initial: u64,
    /// How far below zero the level may go.
    debt: i64,
    now: Moment,
    /// What is in the bucket; below zero in the red. All counts are below 2^53: neither sign nor sum can overflow.
    level: i64,
    refill: Refill,
    outstanding: u64,
}

impl BucketLedger {
    /// A bucket with its initial level at `now`.
    pub fn new(rule: &TokenBucket, terms: Terms, now: Moment) -> Self {
        BucketLedger {
            capacity: rule.capacity(),
            initial: rule.initial(),
            debt: rule.debt().cast_signed(),
            now,
            level: rule.initial().cast_signed(),
            refill: Refill::new(rule, terms, now),
            outstanding: 0,
        }
    }

    /// What the bucket still has room for.
    fn room(&self) -> u64 {
        let out = if mutant::is(Mutant::FullBucket) { 0 } else { self.outstanding.cast_signed() };
        u64::try_from(self.capacity.cast_signed() - self.level - out).unwrap_or(0)
    }

    /// What a bucket with `level` lends: all of it and its debt, but nothing at all while it holds no permit.
    fn lends(&self, level: i64) -> u64 {
        let debt = if mutant::is(Mutant::DebtTwice) { 2 * self.debt } else { self.debt };
        if level < 1 { 0 } else { (level + debt).cast_unsigned() }
    }

    /// Permits that must be minted until it lends `permits`.
    fn missing(&self, permits: u64) -> u64 {
        let level = permits.cast_signed().saturating_sub(self.debt).max(1);
        if permits == 0 { 0 } else { u64::try_from(level.saturating_sub(self.level)).unwrap_or(0) }
    }
}

impl Ledger for BucketLedger {
    fn advance(&mut self, now: Moment) {
        let elapsed = now.since(self.now);
        self.now = self.now.max(now);
        let minted = self.refill.advance(elapsed, self.now, self.room(), self.outstanding == 0);
        self.level += minted.cast_signed();
    }

    fn available(&self) -> u64 {
        self.lends(self.level)
    }

    fn charge(&mut self, permits: u64) {
        self.level -= permits.cast_signed();
        self.outstanding += permits;
        if mutant::is(Mutant::WarmedByGrant) {
            self.refill.spent(permits);
        }
    }

    fn settle(&mut self, permits: u64, _at: Moment) {
        self.outstanding -= permits;
        self.refill.spent(permits);
    }

    fn burn(&mut self, permits: u64, _at: Moment) {
        self.outstanding -= permits;
    }

    fn release(&mut self, permits: u64) {
        self.outstanding -= permits;
        self.level += permits.cast_signed();
    }

    fn credit(&mut self, permits: u64, _at: Moment) {
        if mutant::is(Mutant::BucketCredit) {
            self.level += permits.min(self.room()).cast_signed();
        }
    }

    fn ready_at(&self, permits: u64, ends: Ends<'_>) -> Option<Moment> {
        if permits > self.lends(self.capacity.cast_signed()) {
            return None;
        }
        // Lets the future happen on a copy: up to each lease end, refill runs as far as it has room.
        let mut future = self.clone();
        loop {
            let missing = future.missing(permits);
            if missing == 0 {
                return Some(future.now);
            }
            let is_room = missing <= future.room();
            let minted = if is_room { future.refill.minted_at(future.now, missing) } else { None };
            match (minted, ends.next()) {
                (Some(minted), Some((end, _))) if minted <= end => return Some(minted),
                (minted, None) => return minted,
                (_, Some((end, permits))) => {
                    future.advance(end);
                    future.burn(permits, end);
                }
            }
        }
    }

    fn arriving(&self, span: Duration) -> u64 {
        let minted = self.refill.within(self.now, span).min(self.capacity).cast_signed();
        let level = (self.level + minted).min(self.capacity.cast_signed());
        self.lends(level) - self.available()
    }

    fn sustained(&self, span: Duration) -> u64 {
        self.refill.sustained(span, self.capacity + self.debt.cast_unsigned())
    }

    fn pace(&self) -> Option<super::Pace> {
        None
    }

    fn lease_end(&self) -> Option<Moment> {
        None
    }

    fn is_fresh(&self) -> bool {
        let is_full = self.level == self.capacity.cast_signed() && self.initial == self.capacity;
        self.outstanding == 0 && is_full && self.refill.is_fresh()
    }

    fn memory(&self) -> Duration {
        Duration::ZERO
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Earlier lives may have taken all that it lends up to `quarantined`: it refills from there.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        if mutant::is(Mutant::BucketFullOnRestart) {
            return quarantined;
        }
        let now = self.now;
        self.level = -self.debt;
        self.now = quarantined;
        self.refill.restart(quarantined);
        self.advance(now);
        quarantined
    }

    fn is_sound(&self) -> bool {
        self.level >= -self.debt
            && self.level + self.outstanding.cast_signed() <= self.capacity.cast_signed()
            && self.refill.is_sound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::rule::{RefillStyle, RuleError, WarmUp};

    fn bucket(capacity: u64, refill: u64, per_ms: u64, initial: u64) -> BucketLedger {
        let rule = TokenBucket::try_new(capacity, refill, Duration::from_millis(per_ms), initial);
        let terms = Terms::try_new(0).expect("no drift");
        BucketLedger::new(&rule.expect("valid"), terms, Moment::ORIGIN)
    }

    fn millis(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn refill_pauses_while_the_bucket_is_out() {
        let mut bucket = bucket(10, 10, 1_000, 10);
        bucket.charge(10);
        bucket.advance(millis(5_000));
        assert_eq!(bucket.available(), 0, "ten are out: there is no room");
        bucket.settle(10, millis(5_000));
        bucket.advance(millis(5_099));
        assert_eq!(bucket.available(), 0);
        bucket.advance(millis(5_100));
        assert_eq!(bucket.available(), 1);
    }

    #[test]
    fn fractions_survive_takes_but_never_exceed_the_cap() {
        let mut bucket = bucket(2, 3, 1_000, 0);
        for step in 1..=100 {
            bucket.advance(millis(step * 10));
            if bucket.available() > 0 {
                bucket.charge(1);
                bucket.settle(1, millis(step * 10));
            }
        }
        // 3 a second for a second, looked at every 10 ms: the third falls due at exactly 1,000 ms.
        assert_eq!((bucket.available(), bucket.outstanding()), (0, 0));
        bucket.advance(millis(10_100));
        assert_eq!(bucket.available(), 2);
        // A full bucket has no part of another permit: the next takes all of its third of a second.
        bucket.charge(1);
        bucket.settle(1, millis(10_100));
        bucket.advance(millis(10_433));
        assert_eq!(bucket.available(), 1);
        bucket.advance(millis(10_434));
        assert_eq!(bucket.available(), 2);
    }

    #[test]
    fn ready_is_the_first_instant_at_which_it_is_there() {
        let mut bucket = bucket(10, 3, 1_000, 0);
        for permits in 1..=10 {
            let ready = bucket.ready_at(permits, &mut std::iter::empty()).expect("it refills");
            let mut early = bucket.clone();
            early.advance(Moment::from_nanos(ready.as_nanos() - 1));
            assert!(early.available() < permits);
            early.advance(ready);
            assert!(early.available() >= permits);
        }
        bucket.advance(millis(60_000));
        bucket.charge(10);
        // Nine come back spent at 61 s; from then on there is room.
        let mut ends = vec![(millis(61_000), 9), (millis(90_000), 1)].into_iter();
        assert_eq!(bucket.ready_at(3, &mut ends), Some(millis(62_000)));
    }

    #[test]
    fn a_bucket_that_never_refills_is_never_ready() {
        assert_eq!(bucket(10, 0, 1_000, 4).ready_at(5, &mut std::iter::empty()), None);
        assert_eq!(bucket(10, 0, 1_000, 4).ready_at(4, &mut std::iter::empty()), Some(Moment::ORIGIN));
    }

    /// `rule` on clocks without drift, from the origin on.
    fn ledger(rule: Result<TokenBucket, RuleError>) -> BucketLedger {
        BucketLedger::new(&rule.expect("valid"), Terms::try_new(0).expect("no drift"), Moment::ORIGIN)
    }

    fn rule(capacity: u64, refill: u64) -> TokenBucket {
        TokenBucket::try_new(capacity, refill, Duration::from_secs(1), capacity).expect("valid")
    }

    /// What is lent now, spent and reported at once.
    fn spend(bucket: &mut BucketLedger, permits: u64) {
        let now = bucket.now;
        bucket.charge(permits);
        bucket.settle(permits, now);
    }

    #[test]
    fn what_comes_at_intervals_comes_all_at_once_as_far_as_there_is_room() {
        // Four a second, in a bucket of ten that was emptied at half a second.
        let mut bucket = ledger(rule(10, 4).with_refill_style(RefillStyle::Interval));
        bucket.advance(millis(500));
        spend(&mut bucket, 10);
        assert_eq!(bucket.ready_at(5, &mut std::iter::empty()), Some(millis(2_000)));
        for (at, level) in [(999, 0), (1_000, 4), (1_999, 4), (2_000, 8), (3_000, 10), (9_500, 10)] {
            bucket.advance(millis(at));
            assert_eq!(bucket.available(), level, "after {at} ms");
        }
        // A second is over since the last refill, not since the permit was taken.
        spend(&mut bucket, 1);
        bucket.advance(millis(10_000));
        assert_eq!(bucket.available(), 10);
        // What is out takes its room at that instant, and nothing comes later for it.
        bucket.charge(10);
        bucket.advance(millis(11_500));
        bucket.settle(10, millis(11_500));
        assert_eq!((bucket.available(), bucket.arriving(Duration::from_millis(499))), (0, 0));
        assert_eq!(bucket.arriving(Duration::from_millis(500)), 4);
        bucket.advance(millis(12_000));
        assert_eq!(bucket.available(), 4);
    }

    #[test]
    fn an_interval_begins_anew_where_books_were_lost() {
        let mut bucket = ledger(rule(10, 4).with_refill_style(RefillStyle::Interval));
        bucket.forget(millis(700));
        for (at, level) in [(1_699, 0), (1_700, 4), (2_700, 8)] {
            bucket.advance(millis(at));
            assert_eq!(bucket.available(), level, "after {at} ms");
        }
    }

    #[test]
    fn a_bucket_goes_into_the_red_as_far_as_it_may_and_lends_nothing_until_it_is_out() {
        let mut bucket = ledger(rule(5, 1).with_debt(3));
        assert_eq!(bucket.available(), 8);
        spend(&mut bucket, 8);
        let ready = |bucket: &BucketLedger, permits| bucket.ready_at(permits, &mut std::iter::empty());
        assert_eq!(
            [1, 4, 5, 8].map(|permits| ready(&bucket, permits)),
            [4, 4, 5, 8].map(|s| Some(millis(s * 1_000)))
        );
        assert_eq!(ready(&bucket, 9), None);
        bucket.advance(millis(3_999));
        assert_eq!((bucket.available(), bucket.level), (0, 0), "out of the red, and empty");
        bucket.advance(millis(4_000));
        assert_eq!((bucket.available(), bucket.arriving(Duration::from_secs(1))), (4, 1));
        // Half of it: what comes back unspent lowers the debt.
        bucket.charge(4);
        assert_eq!((bucket.available(), bucket.level), (0, -3));
        bucket.release(3);
        assert_eq!((bucket.available(), bucket.level), (0, 0));
        assert!(bucket.is_sound());
        assert_eq!(
            (bucket.forget(millis(4_000)), bucket.level),
            (millis(4_000), -3),
            "it may have been taken"
        );
    }

    #[test]
    fn a_cold_bucket_is_three_times_slower_and_half_the_permits_make_it_twice() {
        // 100 a second over 10 s: 500 permits of coldness, 30 ms a permit while it is cold, 10 ms while it is warm.
        let warm_up = WarmUp::try_new(Duration::from_secs(10), 3).expect("valid");
        let mut bucket = ledger(rule(1_000, 100).with_warm_up(warm_up));
        let next = |bucket: &BucketLedger| {
            let ready = bucket.ready_at(bucket.available() + 1, &mut std::iter::empty());
            ready.expect("it refills").since(bucket.now).as_millis()
        };
        bucket.charge(1_000);
        assert_eq!(bucket.ready_at(1, &mut [(millis(5), 1_000)].into_iter()), Some(millis(35)), "burned");
        bucket.settle(250, millis(0));
        assert_eq!(next(&bucket), 20, "half of the coldness was spent");
        // What burns makes room, and nothing warmer.
        bucket.burn(500, millis(0));
        assert_eq!(next(&bucket), 20);
        bucket.settle(250, millis(0));
        assert_eq!(next(&bucket), 10);
        // Full again after 10 s, and half as cold as it can be 5 s later.
        bucket.advance(millis(10_000));
        assert_eq!((bucket.available(), bucket.is_fresh()), (1_000, false));
        bucket.advance(millis(15_000));
        spend(&mut bucket, 0);
        bucket.charge(1);
        bucket.burn(1, millis(15_000));
        assert_eq!(next(&bucket), 20);
        bucket.advance(millis(15_020));
        bucket.charge(1_000);
        bucket.advance(millis(60_000));
        bucket.release(1_000);
        bucket.charge(1);
        bucket.burn(1, millis(60_000));
        assert_eq!(next(&bucket), 20, "while something is out it does not cool");
        bucket.advance(millis(75_100));
        assert!(bucket.is_fresh(), "{bucket:?}");
    }

    #[test]
    fn a_bucket_that_may_have_been_emptied_starts_empty() {
        let mut bucket = bucket(10, 10, 1_000, 10);
        assert_eq!(bucket.forget(millis(2_000)), millis(2_000));
        bucket.advance(millis(2_100));
        assert_eq!(bucket.available(), 1);
    }
}
