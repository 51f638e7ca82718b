//! What is left at a vendor that counts by a bucket, by the one clock that all must go by, or that counts what is in flight.

use lessor_ledger::Rule;
use lessor_ledger::rule::RefillStyle;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// The vendor's own books.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    Bucket(Bucket),
    /// So many may be in flight, and are.
    InFlight(u64, u64),
}

/// Its own bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    capacity: u64,
    refill: u64,
    per: u64,
    /// In parts of a permit, of which it has as many as nanoseconds are in `per`.
    level: u128,
    now: Moment,
}

impl Left {
    /// Returns the books of a vendor that goes by `rule`, if it counts so.
    pub(super) fn of(rule: &Rule, now: Moment) -> Option<Self> {
        match rule {
            // When its intervals begin is unknown.
            Rule::TokenBucket(rule) if rule.refill_style() == RefillStyle::Interval => None,
            Rule::TokenBucket(rule) => Some(Left::bucket(rule.capacity(), rule.refill(), rule.per(), now)),
            Rule::LeakyBucket(rule) => Some(Left::bucket(rule.burst(), rule.refill(), rule.per(), now)),
            Rule::Concurrency(rule) => Some(Left::InFlight(rule.limit(), 0)),
            Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) => None,
        }
    }

    /// It is full.
    fn bucket(capacity: u64, refill: u64, per: Duration, now: Moment) -> Self {
        let per = nanos(per);
        Left::Bucket(Bucket { capacity, refill, per, level: u128::from(capacity) * u128::from(per), now })
    }

    /// A permit is spent.
    pub(super) fn spend(&mut self, now: Moment) {
        match self {
            Left::Bucket(bucket) => {
                bucket.advance(now);
                // Whether there was one, others judge.
                bucket.level = bucket.level.saturating_sub(u128::from(bucket.per));
            }
            Left::InFlight(_, flying) => *flying += 1,
        }
    }

    /// A call has ended.
    pub(super) fn land(&mut self) {
        match self {
            Left::Bucket(_) => {}
            Left::InFlight(_, flying) => *flying -= 1,
        }
    }

    /// How many are left.
    pub(super) fn at(&mut self, now: Moment) -> u64 {
        match self {
            Left::Bucket(bucket) => {
                bucket.advance(now);
                u64::try_from(bucket.level / u128::from(bucket.per)).unwrap_or(u64::MAX)
            }
            Left::InFlight(limit, flying) => limit.saturating_sub(*flying),
        }
    }

    /// Whether more are in flight than may be.
    pub(super) fn is_exceeded(&self) -> bool {
        matches!(self, Left::InFlight(limit, flying) if flying > limit)
    }
}

impl Bucket {
    fn advance(&mut self, now: Moment) {
        let gained = u128::from(nanos(now.since(self.now))) * u128::from(self.refill);
        let full = u128::from(self.capacity) * u128::from(self.per);
        (self.level, self.now) = ((self.level + gained).min(full), self.now.max(now));
    }
}
