//! Metrics of the store: whether it can be written, how long that takes, and how much is written.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use std::time::Duration;

/// The metrics of the store.
pub(crate) struct StoreMetrics {
    commits: [Counter; 2],
    seconds: Histogram,
    pools: Counter,
    failing: Gauge,
    restored: Gauge,
}

impl StoreMetrics {
    /// Registers all of them, at zero.
    pub(super) fn new() -> Self {
        StoreMetrics {
            commits: ["ok", "failed"]
                .map(|result| counter!("lessor_store_commits_total", "result" => result)),
            seconds: histogram!("lessor_store_commit_seconds"),
            pools: counter!("lessor_store_pools_written_total"),
            failing: gauge!("lessor_store_failing"),
            restored: gauge!("lessor_store_restored_pools"),
        }
    }

    /// Records a batch of `pools` that took `span`, and whether it is durable.
    pub(crate) fn written(&self, pools: usize, span: Duration, is_durable: bool) {
        self.commits[usize::from(!is_durable)].increment(1);
        if is_durable {
            self.seconds.record(span);
            self.pools.increment(pools as u64);
        }
    }

    /// Sets whether the store is of no use now.
    pub(super) fn fails(&self, fails: bool) {
        self.failing.set(f64::from(u8::from(fails)));
    }

    /// Sets the number of pools that resume an earlier life.
    pub(crate) fn restored(&self, pools: usize) {
        self.restored.set(pools as f64);
    }
}

/// Describes the metrics for `/metrics`.
pub(super) fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_counter!(
        "lessor_store_commits_total",
        "Batches written to the store, by result: ok (durable), failed"
    );
    describe_histogram!(
        "lessor_store_commit_seconds",
        "Time until a batch was durable; an answer that lends may wait for it"
    );
    describe_counter!("lessor_store_pools_written_total", "Checkpoints of pools written to the store");
    describe_gauge!("lessor_store_failing", "1 while the store cannot be used, and nothing new is lent");
    describe_gauge!("lessor_store_restored_pools", "Pools that went on at the start from their checkpoints");
}
