//! How long `try_acquire` took. Each node fills histograms, sends the buckets to the demo, and the demo adds them up.
//!
//! A sample is the time between two readings of the clock around one call. It includes the readings, and nothing is
//! subtracted: beside the samples of calls, [`Timed`] keeps samples of two readings with nothing in between.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Longest time that is told apart from longer ones: a process may be stopped for a minute, hardly for an hour.
const SLOWEST: Duration = Duration::from_secs(60);

/// Significant digits of each sample.
const DIGITS: u8 = 3;

/// Samples in nanoseconds.
#[derive(Debug)]
pub(crate) struct Latency(Histogram<u64>);

/// Samples of calls, and of the clock alone.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) calls: Latency,
    pub(crate) clock: Latency,
}

/// The buckets of both, as nodes send them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Buckets {
    calls: Vec<(u64, u64)>,
    clock: Vec<(u64, u64)>,
}

/// Percentiles of both for the table, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Took {
    pub(crate) try_acquire_ns: Percentiles,
    /// Two readings of the clock with nothing in between.
    pub(crate) clock_ns: Percentiles,
}

impl Timed {
    /// Creates it without samples.
    pub(crate) fn new() -> Self {
        Timed { calls: Latency::new(), clock: Latency::new() }
    }

    /// Returns the buckets that a node sends.
    pub(crate) fn buckets(&self) -> Buckets {
        Buckets { calls: self.calls.buckets(), clock: self.clock.buckets() }
    }

    /// Adds the buckets of a node.
    pub(crate) fn add(&mut self, buckets: &Buckets) {
        self.calls.add(&buckets.calls);
        self.clock.add(&buckets.clock);
    }

    /// Returns the percentiles for the table.
    pub(crate) fn took(&self) -> Took {
        Took { try_acquire_ns: self.calls.percentiles(), clock_ns: self.clock.percentiles() }
    }
}

/// Percentiles of samples, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Percentiles { p50, p99, p999 } = self;
        write!(f, "p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns")
    }
}

impl Latency {
    /// Creates it without samples.
    pub(crate) fn new() -> Self {
        let slowest = SLOWEST.as_nanos() as u64;
        Latency(Histogram::new_with_max(slowest, DIGITS).expect("both numbers are in the range it documents"))
    }

    /// Records one sample.
    pub(crate) fn record(&mut self, took: Duration) {
        self.0.saturating_record(took.as_nanos() as u64);
    }

    /// Returns the buckets in use, as `(nanoseconds, calls)`.
    pub(crate) fn buckets(&self) -> Vec<(u64, u64)> {
        let used = self.0.iter_recorded();
        used.map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()
    }

    /// Adds the buckets of another histogram.
    pub(crate) fn add(&mut self, buckets: &[(u64, u64)]) {
        for &(nanos, calls) in buckets {
            self.0.saturating_record_n(nanos, calls);
        }
    }

    /// Returns the percentiles for the table.
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
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..3 {
            let mut one = Latency::new();
            for _ in 0..1000 {
                let took = Duration::from_nanos(1 << rng.u64(0..20));
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
