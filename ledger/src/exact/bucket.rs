//! A bucket of permits. A level is whole permits and an exact remainder, so no permit is ever a nanosecond early or
//! late, however often the bucket is looked at. A full bucket keeps no remainder, and nothing beyond its capacity but a
//! top-up. With a debt the level may be below zero.

use super::Exact;
use crate::rule::token_bucket::refill::Refill;
use crate::rule::{LeakyBucket, RefillStyle, TokenBucket};
use crate::{CarryOver, Rule};
use lessor_protocol::moment::{nanos, span_of};
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX};
use std::time::Duration;

/// The books of a bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    rule: TokenBucket,
    /// Nanoseconds in which `refill` permits come, at least 1.
    per: u64,
    now: Moment,
    /// Permits in the bucket, below 2^53 either way.
    level: i64,
    /// Whether the bucket keeps a steady flow.
    is_steady: bool,
    /// Permits by which the level may exceed the capacity, since a top-up.
    surplus: u64,
    gain: Gain,
    /// Permits taken since the bucket was last full, and not given back. Time has made good what was taken before.
    taken: u64,
}

/// How a bucket refills, and how far it is.
#[derive(Clone, Debug)]
enum Gain {
    /// Each permit as soon as its part of the time is over.
    Even {
        /// Gained since the last whole permit, in 1/`per` of a permit: below `per`, and 0 while the bucket is full.
        fraction: u128,
    },
    /// All at once.
    Interval {
        /// When the next permits come.
        next: Moment,
    },
    /// Slowly at first: as in the allocator, on clocks without drift.
    Warming(Refill),
}

impl Bucket {
    /// Creates a bucket at its initial level.
    pub(super) fn new(rule: &TokenBucket, now: Moment) -> Self {
        let per = nanos(rule.per());
        let gain = match (rule.warm_up(), rule.refill_style()) {
            (Some(_), _) => Gain::Warming(Refill::new(rule, no_drift(), now)),
            (None, RefillStyle::Greedy) => Gain::Even { fraction: 0 },
            (None, RefillStyle::Interval) => Gain::Interval { next: now + rule.per() },
        };
        Bucket {
            rule: *rule,
            per,
            now,
            level: rule.initial().cast_signed(),
            surplus: 0,
            is_steady: false,
            gain,
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
            self.drop_fraction();
        }
    }

    /// Returns the permits beyond the capacity.
    fn beyond(&self) -> u64 {
        u64::try_from(self.level - self.capacity()).unwrap_or(0)
    }

    fn drop_fraction(&mut self) {
        if let Gain::Even { fraction } = &mut self.gain {
            *fraction = 0;
        }
    }

    /// Scales the level with the capacity, which was `before`, rounded down.
    fn scale(&mut self, before: i64) {
        if before == 0 {
            return;
        }
        let (before, after) = (i128::from(before), i128::from(self.capacity()));
        // Permits stay below 2^53 and `per` below 2^55: no product leaves 127 bits.
        let whole = i128::from(self.level) * after;
        let mut level = whole.div_euclid(before);
        if let Gain::Even { fraction } = &mut self.gain {
            let per = i128::from(self.per);
            let parts = (whole.rem_euclid(before) * per + fraction.cast_signed() * after) / before;
            level += parts / per;
            *fraction = (parts % per).cast_unsigned();
        }
        self.level = i64::try_from(level).unwrap_or(i64::MAX);
    }
}

fn no_drift() -> ClockBounds {
    ClockBounds::try_new(0).expect("no drift is a drift that clocks can have")
}

impl Exact for Bucket {
    fn advance(&mut self, now: Moment) {
        let elapsed = now.since(self.now);
        self.now = self.now.max(now);
        let room = u64::try_from(self.capacity() - self.level).unwrap_or(0);
        let permits = match &mut self.gain {
            Gain::Even { fraction } => {
                let parts = *fraction + u128::from(nanos(elapsed)) * u128::from(self.rule.refill());
                let per = u128::from(self.per);
                *fraction = parts % per;
                u64::try_from(parts / per).unwrap_or(u64::MAX)
            }
            Gain::Interval { next } if self.now < *next => 0,
            Gain::Interval { next } => {
                let times = nanos(self.now.since(*next)) / self.per + 1;
                *next = *next + Duration::from_nanos(times.saturating_mul(self.per));
                times.saturating_mul(self.rule.refill())
            }
            Gain::Warming(refill) => refill.advance(elapsed, self.now, room, true),
        };
        self.add(permits.min(room));
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
        let refill = self.rule.refill();
        if needed > self.rule.capacity() || refill == 0 {
            return None;
        }
        match &self.gain {
            Gain::Even { fraction } => {
                let parts = u128::from(missing) * u128::from(self.per) - fraction;
                let wait = parts.div_ceil(u128::from(refill));
                Some(self.now + span_of(wait))
            }
            Gain::Interval { next } => {
                let more = missing.div_ceil(refill) - 1;
                Some(*next + Duration::from_nanos(more.saturating_mul(self.per)))
            }
            Gain::Warming(refill) => refill.minted_at(self.now, missing),
        }
    }

    fn take(&mut self, permits: u64) {
        self.level -= permits.cast_signed();
        self.surplus = self.surplus.min(self.beyond());
        self.taken = self.taken.saturating_add(permits);
        if let Gain::Warming(refill) = &mut self.gain {
            refill.spent(permits);
        }
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
        let mut next = Bucket { level: self.level, taken: self.taken, ..fresh };
        match (&self.gain, &next.gain) {
            (Gain::Even { .. }, Gain::Even { .. }) | (Gain::Interval { .. }, Gain::Interval { .. }) => {
                next.gain = self.gain.clone();
            }
            // As warm as it was, unless it warms up along another curve: then it begins cold.
            (Gain::Warming(_), Gain::Warming(_)) if is_same_curve(&self.rule, &next.rule) => {
                next.gain = self.gain.clone();
            }
            (Gain::Even { .. } | Gain::Interval { .. } | Gain::Warming(_), _) => {}
        }
        match carry_over {
            // A debt stays as it is.
            CarryOver::Proportional if self.level > 0 => next.scale(self.capacity()),
            CarryOver::Additive => {
                let (level, least) = (self.level + next.capacity() - self.capacity(), self.level.min(0));
                next.level = level.max(least);
                if level < least {
                    next.drop_fraction();
                }
            }
            CarryOver::AsIs | CarryOver::Proportional | CarryOver::Reset => {}
        }
        next.brim();
        Box::new(next)
    }

    fn is_fresh(&self) -> bool {
        let is_full = self.level == self.capacity() && self.rule.initial() == self.rule.capacity();
        is_full
            && match &self.gain {
                Gain::Even { .. } => true,
                // A new bucket would refill at other instants.
                Gain::Interval { .. } => false,
                Gain::Warming(refill) => refill.is_fresh(),
            }
    }

    fn copy(&self) -> Box<dyn Exact> {
        Box::new(self.clone())
    }
}

fn is_same_curve(one: &TokenBucket, other: &TokenBucket) -> bool {
    let curve = |rule: &TokenBucket| (rule.refill(), rule.per(), rule.warm_up());
    curve(one) == curve(other)
}
