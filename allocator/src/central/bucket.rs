//! A bucket that refills continuously. Levels are whole permits and an exact remainder, so that no permit is ever a
//! nanosecond early or late, however often it is looked at; nothing is kept beyond the brim.

use super::Exact;
use super::carry::Carry;
use lessor_protocol::moment::nanos;
use lessor_protocol::rule::{LeakyBucket, TokenBucket};
use lessor_protocol::{Moment, Rule};
use std::time::Duration;

/// What is in a bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    capacity: u64,
    refill: u64,
    /// Nanoseconds in which `refill` permits come, at least 1.
    per: u64,
    initial: u64,
    now: Moment,
    level: u64,
    /// What has come since the last whole permit, in 1/`per` of a permit: below `per`, and 0 while it is full.
    fraction: u128,
    /// Taken since it was last full and not given back. Time has made good what was taken before.
    taken: u64,
}

impl Bucket {
    /// A bucket at its initial level.
    pub(super) fn new(rule: &TokenBucket, now: Moment) -> Self {
        Bucket {
            capacity: rule.capacity(),
            refill: rule.refill(),
            per: nanos(rule.per()),
            initial: rule.initial(),
            now,
            level: rule.initial(),
            fraction: 0,
            taken: 0,
        }
    }

    /// A steady flow: a bucket that holds the burst. With a burst of 1 it is full whenever one is there, and keeps no
    /// remainder: so the next one comes a whole interval after the last, never earlier.
    pub(super) fn steady(rule: &LeakyBucket, now: Moment) -> Self {
        // A flow of nothing lets not even its burst through.
        let burst = if rule.refill() == 0 { 0 } else { rule.burst() };
        Bucket {
            capacity: burst,
            refill: rule.refill(),
            per: nanos(rule.per()),
            initial: burst,
            now,
            level: burst,
            fraction: 0,
            taken: 0,
        }
    }

    /// A new one for `rule`, which is one of the two.
    fn fresh(rule: &Rule, now: Moment) -> Self {
        match rule {
            Rule::TokenBucket(rule) => Bucket::new(rule, now),
            Rule::LeakyBucket(rule) => Bucket::steady(rule, now),
            Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::Concurrency(_) => {
                unreachable!("rules are matched by kind")
            }
        }
    }

    fn add(&mut self, permits: u64) {
        self.level = self.level.saturating_add(permits);
        self.brim();
    }

    /// Lets flow over what is beyond the brim.
    fn brim(&mut self) {
        if self.level >= self.capacity {
            self.level = self.capacity;
            self.fraction = 0;
            self.taken = 0;
        }
    }

    /// Lets the level grow or shrink with the capacity, from `before`, rounded down.
    fn scale(&mut self, before: u64) {
        if before == 0 {
            return;
        }
        let (level, fraction) = (u128::from(self.level), self.fraction);
        let (per, before, after) = (u128::from(self.per), u128::from(before), u128::from(self.capacity));
        // Permits stay below 2^53 and `per` below 2^55: no product leaves 128 bits.
        let whole = level * after;
        self.level = u64::try_from(whole / before).unwrap_or(u64::MAX);
        self.fraction = (whole % before * per + fraction * after) / before;
        self.level = self.level.saturating_add(u64::try_from(self.fraction / per).unwrap_or(u64::MAX));
        self.fraction %= per;
    }
}

impl Exact for Bucket {
    fn advance(&mut self, now: Moment) {
        let elapsed = nanos(now.since(self.now));
        self.now = self.now.max(now);
        let parts = self.fraction + u128::from(elapsed) * u128::from(self.refill);
        let per = u128::from(self.per);
        self.fraction = parts % per;
        self.add(u64::try_from(parts / per).unwrap_or(u64::MAX));
    }

    fn available(&self) -> u64 {
        self.level
    }

    fn ready_at(&self, permits: u64) -> Option<Moment> {
        let missing = permits.saturating_sub(self.level);
        if missing == 0 {
            return Some(self.now);
        }
        if permits > self.capacity || self.refill == 0 {
            return None;
        }
        let parts = u128::from(missing) * u128::from(self.per) - self.fraction;
        let wait = parts.div_ceil(u128::from(self.refill));
        Some(self.now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    fn take(&mut self, permits: u64) {
        self.level -= permits;
        self.taken = self.taken.saturating_add(permits);
    }

    fn refund(&mut self, permits: u64) {
        let permits = permits.min(self.taken);
        self.taken -= permits;
        self.add(permits);
    }

    fn top_up(&mut self, permits: u64) {
        self.add(permits);
    }

    fn carried(&self, rule: &Rule, carry: Carry) -> Box<dyn Exact> {
        let fresh = Bucket::fresh(rule, self.now);
        let mut next = Bucket { level: self.level, fraction: self.fraction, taken: self.taken, ..fresh };
        match carry {
            Carry::Reset => return Box::new(Bucket::fresh(rule, self.now)),
            Carry::AsIs => {}
            Carry::Proportional => next.scale(self.capacity),
            Carry::Additive => {
                let grown = self.level.saturating_add(next.capacity);
                if grown < self.capacity {
                    next.fraction = 0;
                }
                next.level = grown.saturating_sub(self.capacity);
            }
        }
        next.brim();
        Box::new(next)
    }

    fn is_fresh(&self) -> bool {
        self.level == self.capacity && self.initial == self.capacity
    }

    fn copy(&self) -> Box<dyn Exact> {
        Box::new(self.clone())
    }
}
