//! What Prometheus sees of an allocator that this one leases from: whether it answers, how fast, and with what.

use crate::config::Upstream;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use std::time::Duration;

/// The metrics of one upstream.
pub(crate) struct UpstreamMetrics {
    exchanges: [Counter; 2],
    seconds: Histogram,
    unfit: Counter,
    up: Gauge,
}

impl UpstreamMetrics {
    /// All of them, at zero.
    pub(crate) fn new(upstream: &Upstream) -> Self {
        let name = || upstream.as_str().to_owned();
        let exchanges = |result: &'static str| counter!("lessor_upstream_exchanges_total", "upstream" => name(), "result" => result);
        UpstreamMetrics {
            exchanges: ["ok", "failed"].map(exchanges),
            seconds: histogram!("lessor_upstream_exchange_seconds", "upstream" => name()),
            unfit: counter!("lessor_upstream_unfit_total", "upstream" => name()),
            up: gauge!("lessor_upstream_up", "upstream" => name()),
        }
    }

    /// It answered after `took`.
    pub(crate) fn exchanged(&self, took: Duration) {
        self.exchanges[0].increment(1);
        self.seconds.record(took);
        self.up.set(1.0);
    }

    /// It did not.
    pub(crate) fn failed(&self) {
        self.exchanges[1].increment(1);
        self.up.set(0.0);
    }

    /// So many answers in it were of no use.
    pub(crate) fn unfit(&self, answers: usize) {
        self.unfit.increment(answers as u64);
    }
}

/// What they are, for people.
pub(super) fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_counter!(
        "lessor_upstream_exchanges_total",
        "Exchanges with an allocator that limits are leased from"
    );
    describe_histogram!("lessor_upstream_exchange_seconds", "How long it took to answer");
    describe_counter!("lessor_upstream_unfit_total", "Answers of it for single pools that were of no use");
    describe_gauge!("lessor_upstream_up", "1 while it answers");
}
