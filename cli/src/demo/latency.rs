//! How long `try_acquire` took. Each node fills one, sends its buckets home, and the demo adds them up.
//!
//! A sample is the time between two readings of the clock around one call: the readings themselves (20 to 40 ns
//! each) are in it and nothing is subtracted. The first call after a sleep finds cold caches; it is in it too.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// The slowest call that is told apart from slower ones: a process stopped for a minute, not one for an hour.
const SLOWEST: Duration = Duration::from_secs(60);

/// Digits that are kept of each sample.
const DIGITS: u8 = 3;

/// Samples in nanoseconds.
#[derive(Debug)]
pub(crate) struct Latency(Histogram<u64>);

/// What the table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
}

impl Latency {
    /// No sample yet.
    pub(crate) fn new() -> Self {
        let slowest = SLOWEST.as_nanos() as u64;
        Latency(Histogram::new_with_max(slowest, DIGITS).expect("both numbers are in the range it documents"))
    }

    /// One sample.
    pub(crate) fn record(&mut self, took: Duration) {
        self.0.saturating_record(took.as_nanos() as u64);
    }

    /// The buckets in use, as `(nanoseconds, calls)`.
    pub(crate) fn buckets(&self) -> Vec<(u64, u64)> {
        let used = self.0.iter_recorded();
        used.map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()
    }

    /// Adds the buckets of another one.
    pub(crate) fn add(&mut self, buckets: &[(u64, u64)]) {
        for &(nanos, calls) in buckets {
            self.0.saturating_record_n(nanos, calls);
        }
    }

    /// What the table shows.
    pub(crate) fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_up_buckets_is_adding_up_samples() {
        let (mut all, mut sum) = (Latency::new(), Latency::new());
        let mut dice = fastrand::Rng::with_seed(1);
        for _ in 0..3 {
            let mut one = Latency::new();
            for _ in 0..1000 {
                let took = Duration::from_nanos(1 << dice.u64(0..20));
                one.record(took);
                all.record(took);
            }
            sum.add(&one.buckets());
        }
        assert_eq!(sum.percentiles(), all.percentiles());
        assert_eq!(sum.buckets(), all.buckets());
    }

    #[test]
    fn a_call_slower_than_all_is_kept_as_the_slowest() {
        let mut latency = Latency::new();
        latency.record(Duration::from_secs(3600));
        assert!(latency.percentiles().p50 >= SLOWEST.as_nanos() as u64);
    }
}
