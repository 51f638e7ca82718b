//! At most C + r·T in any interval T, exactly as one central bucket. Permits that are out still take their
//! room: refill pauses while level and outstanding together fill the bucket.
//!
//! Why it holds: what can be spent in an interval is what the bucket and the leases hold at its start, at most
//! C, and what is minted in it, at most r·T. A permit that was burned made room for another; if it proves unspent later, it
//! is gone all the same.

use super::{Ends, Ledger, Pace};
use lessor_protocol::moment::nanos;
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::rule::TokenBucket;
use lessor_protocol::{Moment, Terms};
use std::time::Duration;

/// The books of a token bucket.
#[derive(Clone, Debug)]
pub struct BucketLedger {
    capacity: u64,
    refill: u64,
    /// Nanoseconds in which `refill` permits are minted, stretched by the drift: a clock of ours that runs fast
    /// must not mint faster than the contract.
    per: u64,
    initial: u64,
    now: Moment,
    level: u64,
    /// What was minted since the last whole permit, in 1/`per` of a permit. Zero while the bucket is full.
    fraction: u128,
    outstanding: u64,
}

impl BucketLedger {
    /// A bucket with its initial level at `now`.
    pub fn new(rule: &TokenBucket, terms: Terms, now: Moment) -> Self {
        BucketLedger {
            capacity: rule.capacity(),
            refill: rule.refill(),
            per: nanos(terms.stretched(rule.per())).max(1),
            initial: rule.initial(),
            now,
            level: rule.initial(),
            fraction: 0,
            outstanding: 0,
        }
    }

    /// What the bucket still has room for.
    fn room(&self) -> u64 {
        let out = if mutant::is(Mutant::FullBucket) { 0 } else { self.outstanding };
        self.capacity.saturating_sub(self.level + out)
    }

    /// When `missing` more permits will have been minted, if nothing stops the refill.
    fn minted_at(&self, missing: u64) -> Option<Moment> {
        if self.refill == 0 {
            return None;
        }
        let parts = u128::from(missing) * u128::from(self.per) - self.fraction.min(u128::from(self.per) - 1);
        let wait = parts.div_ceil(u128::from(self.refill));
        Some(self.now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

impl Ledger for BucketLedger {
    fn advance(&mut self, now: Moment) {
        let elapsed = now.since(self.now);
        self.now = self.now.max(now);
        let room = self.room();
        if room == 0 {
            return;
        }
        let parts = self.fraction + u128::from(nanos(elapsed)) * u128::from(self.refill);
        let per = u128::from(self.per);
        let minted = if mutant::is(Mutant::RefillRoundedUp) { parts.div_ceil(per) } else { parts / per };
        let minted = u64::try_from(minted).unwrap_or(u64::MAX);
        if minted >= room {
            self.level += room;
            self.fraction = if mutant::is(Mutant::FractionKept) { parts % per } else { 0 };
        } else {
            self.level += minted;
            self.fraction = parts % per;
        }
    }

    fn available(&self) -> u64 {
        self.level
    }

    fn charge(&mut self, permits: u64) {
        self.level -= permits;
        self.outstanding += permits;
    }

    fn settle(&mut self, permits: u64, _at: Moment) {
        self.outstanding -= permits;
    }

    fn release(&mut self, permits: u64) {
        self.outstanding -= permits;
        self.level += permits;
    }

    fn credit(&mut self, permits: u64, _at: Moment) {
        if mutant::is(Mutant::BucketCredit) {
            self.level += permits.min(self.room());
        }
    }

    fn ready_at(&self, permits: u64, ends: Ends<'_>) -> Option<Moment> {
        if permits > self.capacity {
            return None;
        }
        // Lets the future happen on a copy: up to each lease end, refill runs as far as it has room.
        let mut future = self.clone();
        loop {
            let missing = permits.saturating_sub(future.level);
            if missing == 0 {
                return Some(future.now);
            }
            let minted = if missing <= future.room() { future.minted_at(missing) } else { None };
            match (minted, ends.next()) {
                (Some(minted), Some((end, _))) if minted <= end => return Some(minted),
                (minted, None) => return minted,
                (_, Some((end, permits))) => {
                    future.advance(end);
                    future.settle(permits, end);
                }
            }
        }
    }

    fn arriving(&self, span: Duration) -> u64 {
        let parts = self.fraction + u128::from(nanos(span)) * u128::from(self.refill);
        u64::try_from(parts / u128::from(self.per)).unwrap_or(u64::MAX).min(self.capacity - self.level)
    }

    fn sustained(&self, span: Duration) -> u64 {
        Pace { permits: self.refill, over: self.per }.within(span)
    }

    fn pace(&self) -> Option<Pace> {
        None
    }

    fn lease_end(&self) -> Option<Moment> {
        None
    }

    fn is_fresh(&self) -> bool {
        self.outstanding == 0 && self.level == self.capacity && self.initial == self.capacity
    }

    fn memory(&self) -> Duration {
        Duration::ZERO
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Earlier lives may have emptied it up to `quarantined`: it is empty then, and refills from there.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        if mutant::is(Mutant::BucketFullOnRestart) {
            return quarantined;
        }
        let now = self.now;
        self.level = 0;
        self.fraction = 0;
        self.now = quarantined;
        self.advance(now);
        quarantined
    }

    fn is_sound(&self) -> bool {
        self.level + self.outstanding <= self.capacity && self.fraction < u128::from(self.per)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        bucket.advance(millis(10_000));
        assert_eq!((bucket.available(), bucket.fraction), (2, 0));
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

    #[test]
    fn a_bucket_that_may_have_been_emptied_starts_empty() {
        let mut bucket = bucket(10, 10, 1_000, 10);
        assert_eq!(bucket.forget(millis(2_000)), millis(2_000));
        bucket.advance(millis(2_100));
        assert_eq!(bucket.available(), 1);
    }
}
