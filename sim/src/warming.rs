//! The curve along which a bucket warms up, kept in floating point, with every permit at the instant at which it was
//! spent. The oracle and the reference judge spends by it; it knows no leases.

use lessor_ledger::rule::TokenBucket;
use lessor_protocol::moment::nanos;

/// Bound of the floating point error in permits: far below one, and far above what a run adds up.
const ERROR: f64 = 1e-4;

/// A central bucket that warms up and does not cool by itself, so a bucket that cools is never ahead of it.
#[derive(Clone, Debug)]
pub struct Warming {
    capacity: f64,
    level: f64,
    coldness: f64,
    coldest: f64,
    per: u64,
    /// Nanoseconds a permit takes while the bucket is warm.
    interval: f64,
    cold_factor: f64,
    at: u64,
}

impl Warming {
    /// Makes a full, cold bucket that holds `less` permits fewer than `rule` says; `None` if `rule` does not warm up.
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

    /// Returns the most permits that the bucket holds.
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Returns the interval of the rule, in nanoseconds.
    pub fn per(&self) -> u64 {
        self.per
    }

    /// Goes on by `rule`, with `level` permits. A different curve begins cold, but for the permits `out`: they may have
    /// been spent, and are reported later.
    pub fn goes_on_by(&mut self, rule: &TokenBucket, level: u64, out: u64, at: u64) {
        let Some(fresh) = Warming::new(rule, 0, at) else { return };
        let is_same = (fresh.interval, fresh.coldest) == (self.interval, self.coldest);
        let coldness = if is_same { self.coldness } else { (fresh.coldness - out as f64).max(0.0) };
        *self = Warming { level: level as f64, coldness, ..fresh };
    }

    /// Adds `permits` once.
    pub fn top_up(&mut self, permits: u64) {
        self.level += permits as f64;
    }

    /// Begins at `at`, with `permits` out that were lent before.
    pub(crate) fn hold_at_least(&mut self, permits: u64, at: u64) {
        (self.level, self.at) = (self.level.max(permits as f64), at);
        self.coldness = (self.coldness - permits as f64).max(0.0);
    }

    /// Returns the permits that the bucket can give at `at`.
    pub fn room(&mut self, at: u64) -> u64 {
        let share = if self.coldest > 0.0 { self.coldness / self.coldest } else { 0.0 };
        let interval = self.interval * (1.0 + (self.cold_factor - 1.0) * share);
        let minted = at.saturating_sub(self.at) as f64 / interval;
        // Permits above the capacity stay: those of a top-up, and those out when the bucket was made smaller.
        self.level = (self.level + minted).min(self.level.max(self.capacity));
        self.at = self.at.max(at);
        (self.level + ERROR).max(0.0) as u64
    }

    /// Takes `permits` that are there.
    pub fn give(&mut self, permits: u64) {
        self.level -= permits as f64;
        self.coldness = (self.coldness - permits as f64).max(0.0);
    }

    /// Warms the bucket by `permits` that a node reports as spent and did not spend: the allocator counts reports.
    pub fn warm(&mut self, permits: u64, at: u64) {
        self.room(at);
        self.coldness = (self.coldness - permits as f64).max(0.0);
    }

    /// Makes the bucket cold again, after it was idle for long enough.
    pub fn freeze(&mut self) {
        self.coldness = self.coldest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_ledger::rule::WarmUp;
    use std::time::Duration;

    /// At 100 a second over 10 s, coldness is 500 permits, and all are spent after 10 s.
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
        // The rate is half on average while the bucket warms up, and full from then on.
        assert!((495..=505).contains(&first), "{first}");
        assert!((1_490..=1_505).contains(&spent), "{spent}");
    }
}
