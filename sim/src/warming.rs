//! The curve along which a bucket warms up, kept the plain way: in floating point, with every permit at the instant at
//! which it was spent. The oracle and the reference hold what is spent against it; it knows no leases.

use lessor_ledger::rule::TokenBucket;
use lessor_protocol::moment::nanos;

/// What floating point may be off by, in permits: far below one, far above what a run adds up.
const ERROR: f64 = 1e-4;

/// One central bucket that warms up, but does not cool by itself: nothing that does is ever ahead of it.
#[derive(Clone, Debug)]
pub struct Warming {
    capacity: f64,
    level: f64,
    coldness: f64,
    coldest: f64,
    per: u64,
    /// Nanoseconds in which a permit comes while it is warm.
    interval: f64,
    cold_factor: f64,
    at: u64,
}

impl Warming {
    /// A full and cold one, if `rule` warms up, which allows `less` than it says.
    pub fn new(rule: &TokenBucket, less: u64, at: u64) -> Option<Self> {
        let warm_up = rule.warm_up()?;
        let per = nanos(rule.per());
        let interval = rule.per().as_nanos() as f64 / rule.refill() as f64;
        let cold_factor = f64::from(warm_up.cold_factor());
        let coldest = 2.0 * warm_up.over().as_nanos() as f64 / (interval * (1.0 + cold_factor));
        let capacity = (rule.capacity() - less) as f64;
        Some(Warming {
            capacity,
            level: capacity,
            coldness: coldest,
            coldest,
            per,
            interval,
            cold_factor,
            at,
        })
    }

    /// The most that it holds.
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Nanoseconds in which it is refilled by what its rule says.
    pub fn per(&self) -> u64 {
        self.per
    }

    /// It goes on by `rule`, with `level` in it. Another curve begins cold, but for what is `out`: that may have been
    /// spent, which is heard of later.
    pub fn goes_on_by(&mut self, rule: &TokenBucket, level: u64, out: u64, at: u64) {
        let Some(fresh) = Warming::new(rule, 0, at) else { return };
        let is_same = (fresh.interval, fresh.coldest) == (self.interval, self.coldest);
        let coldness = if is_same { self.coldness } else { (fresh.coldness - out as f64).max(0.0) };
        *self = Warming { level: level as f64, coldness, ..fresh };
    }

    /// It gives `permits` more, once.
    pub fn top_up(&mut self, permits: u64) {
        self.level += permits as f64;
    }

    /// It begins at `at`, with `permits` out that were lent before.
    pub fn hold_at_least(&mut self, permits: u64, at: u64) {
        (self.level, self.at) = (self.level.max(permits as f64), at);
        self.coldness = (self.coldness - permits as f64).max(0.0);
    }

    /// Permits that it can give at `at`.
    pub fn room(&mut self, at: u64) -> u64 {
        let share = if self.coldest > 0.0 { self.coldness / self.coldest } else { 0.0 };
        let interval = self.interval * (1.0 + (self.cold_factor - 1.0) * share);
        let minted = at.saturating_sub(self.at) as f64 / interval;
        // What it was topped up with stays, and so does what was out when it was made smaller.
        self.level = (self.level + minted).min(self.level.max(self.capacity));
        self.at = self.at.max(at);
        (self.level + ERROR).max(0.0) as u64
    }

    /// Gives `permits`, that are there.
    pub fn give(&mut self, permits: u64) {
        self.level -= permits as f64;
        self.coldness = (self.coldness - permits as f64).max(0.0);
    }

    /// A node says that it spent `permits`, and did not: the allocator counts what is said.
    pub fn warm(&mut self, permits: u64, at: u64) {
        self.room(at);
        self.coldness = (self.coldness - permits as f64).max(0.0);
    }

    /// It was idle for so long that it is cold again.
    pub fn freeze(&mut self) {
        self.coldness = self.coldest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_ledger::rule::WarmUp;
    use std::time::Duration;

    /// 100 a second over 10 s: 500 permits of coldness, of which all are spent after 10 s.
    #[test]
    fn it_is_warm_after_the_time_that_the_rule_says() {
        let second = Duration::from_secs(1);
        let rule = TokenBucket::try_new(2, 100, second, 2).expect("valid");
        let rule = rule.with_warm_up(WarmUp::try_new(10 * second, 3).expect("valid")).expect("valid");
        let mut bucket = Warming::new(&rule, 0, 0).expect("it warms up");
        let (mut spent, mut first) = (0, 0);
        for milli in 0..20_000_u64 {
            let room = bucket.room(milli * 1_000_000);
            bucket.give(room);
            spent += room;
            first += if milli < 10_000 { room } else { 0 };
        }
        // Half the rate on average while it warms up, and the whole rate from then on.
        assert!((495..=505).contains(&first), "{first}");
        assert!((1_490..=1_505).contains(&spent), "{spent}");
    }
}
