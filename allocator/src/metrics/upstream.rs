//! Metrics of an upstream: whether it answers, how fast, and with what.

use crate::config::Upstream;
use lessor_protocol::lock_anyway::LockAnyway;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The metrics of one upstream.
pub(crate) struct UpstreamMetrics {
    exchanges: [Counter; 2],
    seconds: Histogram,
    unfit: Counter,
    up: Gauge,
    stands: Arc<Mutex<Stands>>,
}

/// The state of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stands {
    /// It was not asked yet.
    #[default]
    Unasked,
    /// It answered the last exchange.
    Up,
    /// It did not answer the last exchange.
    Down,
}

impl UpstreamMetrics {
    /// Registers all of them, at zero.
    pub(crate) fn new(upstream: &Upstream) -> Self {
        let name = || upstream.as_str().to_owned();
        let exchanges = |result: &'static str| counter!("lessor_upstream_exchanges_total", "upstream" => name(), "result" => result);
        UpstreamMetrics {
            exchanges: ["ok", "failed"].map(exchanges),
            seconds: histogram!("lessor_upstream_exchange_seconds", "upstream" => name()),
            unfit: counter!("lessor_upstream_unfit_total", "upstream" => name()),
            up: gauge!("lessor_upstream_up", "upstream" => name()),
            stands: Arc::default(),
        }
    }

    /// Records an exchange that was answered after `took`.
    pub(crate) fn exchanged(&self, took: Duration) {
        self.exchanges[0].increment(1);
        self.seconds.record(took);
        self.up.set(1.0);
        self.note(Stands::Up);
    }

    /// Records an exchange that was not answered, or could not begin.
    pub(crate) fn failed(&self) {
        self.exchanges[1].increment(1);
        self.up.set(0.0);
        self.note(Stands::Down);
    }

    fn note(&self, stands: Stands) {
        *self.stands.lock_anyway() = stands;
    }

    /// Returns a handle of the state.
    pub(super) fn stands(&self) -> Arc<Mutex<Stands>> {
        self.stands.clone()
    }

    /// Counts answers for single pools that were of no use.
    pub(crate) fn unfit(&self, answers: usize) {
        self.unfit.increment(answers as u64);
    }
}
