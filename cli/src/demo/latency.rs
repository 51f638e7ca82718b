//! How long `try_acquire` took. Each node fills one, sends its buckets home, and the demo adds them up.
//!
//! A sample is the time between two readings of the clock around one call. The readings are in it, and nothing is
//! subtracted: [`Timed`] keeps samples of two readings with nothing in between beside those of calls.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The slowest call that is told apart from slower ones: a process stopped for a minute, not one for an hour.
const SLOWEST: Duration = Duration::from_secs(60);

/// Digits that are kept of each sample.
const DIGITS: u8 = 3;

/// Samples in nanoseconds.
#[derive(Debug)]
pub(crate) struct Latency(Histogram<u64>);

/// Calls, and the clock alone in their place.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) calls: Latency,
    pub(crate) clock: Latency,
}

/// The buckets of both, as they go home.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Buckets {
    calls: Vec<(u64, u64)>,
    clock: Vec<(u64, u64)>,
}

/// What the table shows of both, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Took {
    pub(crate) try_acquire_ns: Percentiles,
    /// Two readings of the clock with nothing in between.
    pub(crate) clock_ns: Percentiles,
}

impl Timed {
    /// No sample yet.
    pub(crate) fn new() -> Self {
        Timed { calls: Latency::new(), clock: Latency::new() }
    }

    /// What goes home.
    pub(crate) fn buckets(&self) -> Buckets {
        Buckets { calls: self.calls.buckets(), clock: self.clock.buckets() }
    }

    /// Adds what came home.
    pub(crate) fn add(&mut self, buckets: &Buckets) {
        self.calls.add(&buckets.calls);
        self.clock.add(&buckets.clock);
    }

    /// What the table shows.
    pub(crate) fn took(&self) -> Took {
        Took { try_acquire_ns: self.calls.percentiles(), clock_ns: self.clock.percentiles() }
    }
}

/// Of the samples, in nanoseconds.
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
