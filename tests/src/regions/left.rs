//! What is left at a vendor that counts by a bucket, by the one clock that all must go by.

use lessor_protocol::Moment;
use lessor_protocol::Rule;
use lessor_protocol::moment::nanos;
use lessor_protocol::rule::TokenBucket;

/// The vendor's own bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    capacity: u64,
    refill: u64,
    per: u64,
    /// In parts of a permit, of which it has as many as nanoseconds are in `per`.
    level: u128,
    now: Moment,
}

impl Left {
    /// That of a vendor who goes by `rule`, if that is a bucket.
    pub(super) fn of(rule: &Rule, now: Moment) -> Option<Self> {
        match rule {
            Rule::TokenBucket(rule) => Some(Left::new(rule, now)),
            Rule::SlidingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::FixedWindow(_)
            | Rule::LeakyBucket(_)
            | Rule::Concurrency(_) => None,
        }
    }

    /// It is full.
    fn new(rule: &TokenBucket, now: Moment) -> Self {
        let (capacity, refill, per) = (rule.capacity(), rule.refill(), nanos(rule.per()));
        Left { capacity, refill, per, level: u128::from(capacity) * u128::from(per), now }
    }

    /// A permit is spent.
    pub(super) fn spend(&mut self, now: Moment) {
        self.advance(now);
        // Whether there was one, others judge.
        self.level = self.level.saturating_sub(u128::from(self.per));
    }

    /// How many are left.
    pub(super) fn at(&mut self, now: Moment) -> u64 {
        self.advance(now);
        u64::try_from(self.level / u128::from(self.per)).unwrap_or(u64::MAX)
    }

    fn advance(&mut self, now: Moment) {
        let gained = u128::from(nanos(now.since(self.now))) * u128::from(self.refill);
        let full = u128::from(self.capacity) * u128::from(self.per);
        (self.level, self.now) = ((self.level + gained).min(full), self.now.max(now));
    }
}
