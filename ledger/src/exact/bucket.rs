//! A bucket of permits. A level is whole permits and an exact remainder, so no permit is ever a nanosecond early or
//! late, however often the bucket is looked at. A full bucket keeps no remainder, and nothing beyond its capacity but a
//! top-up. With a debt the level may be below zero.

use super::Exact;
use crate::rule::token_bucket::refill::Refill;
use crate::rule::{LeakyBucket, RefillStyle, TokenBucket};
use crate::{CarryOver, Rule};
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX};

/// The books of a bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    rule: TokenBucket,
    now: Moment,
    /// Permits in the bucket, below 2^53 either way.
    level: i64,
    /// Whether the bucket keeps a steady flow.
    is_steady: bool,
    /// Permits by which the level may exceed the capacity, since a top-up.
    surplus: u64,
    /// As in the allocator, on clocks without drift.
    refill: Refill,
    /// Permits taken since the bucket was last full, and not given back. Time has made good what was taken before.
    taken: u64,
}

impl Bucket {
    /// Creates a bucket at its initial level.
    pub(super) fn new(rule: &TokenBucket, now: Moment) -> Self {
        let no_drift = ClockBounds::try_new(0).expect("no drift is a drift that clocks can have");
        Bucket {
            rule: *rule,
            now,
            level: rule.initial().cast_signed(),
            surplus: 0,
            is_steady: false,
            refill: Refill::new(rule, no_drift, now),
            taken: 0,
        }
    }

    /// Creates a steady flow: a bucket that holds the burst. With a burst of 1 the bucket is full whenever a permit is
    /// there, and keeps no remainder. So the next permit comes a whole interval after the last, never earlier.
    pub(super) fn steady(rule: &LeakyBucket, now: Moment) -> Self {
        // A flow of nothing lets not even its burst through.
        let burst = if rule.refill() == 0 { 0 } else { rule.burst() };
        let bucket = TokenBucket::try_new(burst, rule.refill(), rule.per(), burst);
        Bucket { is_steady: true, ..Bucket::new(&bucket.expect("numbers that were checked"), now) }
    }

    /// Creates a bucket for `rule`, which is a token bucket or a steady flow.
    fn fresh(rule: &Rule, now: Moment) -> Self {
        match rule {
            Rule::TokenBucket(rule) => Bucket::new(rule, now),
            Rule::LeakyBucket(rule) => Bucket::steady(rule, now),
            Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::Concurrency(_) => {
                unreachable!("rules are matched by kind")
            }
        }
    }

    fn capacity(&self) -> i64 {
        self.rule.capacity().cast_signed()
    }

    fn add(&mut self, permits: u64) {
        self.level = self.level.saturating_add_unsigned(permits);
        self.brim();
    }

    /// Drops what is beyond the capacity and its top-up.
    fn brim(&mut self) {
        if self.level >= self.capacity() {
            self.level = self.level.min(self.capacity().saturating_add_unsigned(self.surplus));
            self.taken = 0;
            self.refill.begin_permit();
        }
    }

    /// Returns the permits beyond the capacity.
    fn beyond(&self) -> u64 {
        u64::try_from(self.level - self.capacity()).unwrap_or(0)
    }
}

impl Exact for Bucket {
    fn advance(&mut self, now: Moment) {
        let elapsed = now.since(self.now);
        self.now = self.now.max(now);
        let room = u64::try_from(self.capacity() - self.level).unwrap_or(0);
        let permits = self.refill.advance(elapsed, self.now, room, true);
        self.add(permits);
    }

    fn available(&self) -> u64 {
        // A call may go into debt only while the bucket holds a permit.
        if self.level < 1 { 0 } else { self.level.cast_unsigned() + self.rule.debt() }
    }

    fn ready_at(&self, permits: u64) -> Option<Moment> {
        let needed = permits.saturating_sub(self.rule.debt()).max(u64::from(permits > 0));
        let missing = u64::try_from(needed.cast_signed() - self.level).unwrap_or(0);
        if missing == 0 || permits == 0 {
            return Some(self.now);
        }
        if needed > self.rule.capacity() {
            return None;
        }
        self.refill.minted_at(self.now, missing)
    }

    fn take(&mut self, permits: u64) {
        self.level -= permits.cast_signed();
        self.surplus = self.surplus.min(self.beyond());
        self.taken = self.taken.saturating_add(permits);
        self.refill.spent(permits);
    }

    fn refund(&mut self, permits: u64) {
        let permits = permits.min(self.taken);
        self.taken -= permits;
        self.add(permits);
    }

    fn top_up(&mut self, permits: u64) {
        self.level = self.level.saturating_add_unsigned(permits).min(PERMITS_MAX.cast_signed());
        // A top-up does not make a flow less even.
        self.surplus = if self.is_steady { 0 } else { self.beyond() };
        self.brim();
    }

    fn carried(&self, rule: &Rule, carry_over: CarryOver) -> Box<dyn Exact> {
        let fresh = Bucket::fresh(rule, self.now);
        if carry_over == CarryOver::Reset {
            return Box::new(fresh);
        }
        let mut refill = self.refill.clone();
        assert!(refill.goes_on_by(fresh.refill), "rules are matched by period");
        let mut next = Bucket { level: self.level, taken: self.taken, refill, ..fresh };
        match carry_over {
            // A debt stays as it is.
            CarryOver::Proportional if self.level > 0 && self.rule.capacity() > 0 => {
                next.level = next.refill.scale(self.level, self.rule.capacity(), next.rule.capacity());
            }
            CarryOver::Additive => {
                let (level, least) = (self.level + next.capacity() - self.capacity(), self.level.min(0));
                next.level = level.max(least);
                if level < least {
                    next.refill.begin_permit();
                }
            }
            CarryOver::AsIs | CarryOver::Proportional | CarryOver::Reset => {}
        }
        next.brim();
        Box::new(next)
    }

    fn is_fresh(&self) -> bool {
        let is_full = self.level == self.capacity() && self.rule.initial() == self.rule.capacity();
        // At intervals a new bucket would refill at other instants.
        is_full && self.rule.refill_style() == RefillStyle::Greedy && self.refill.is_fresh()
    }

    fn copy(&self) -> Box<dyn Exact> {
        Box::new(self.clone())
    }
}
