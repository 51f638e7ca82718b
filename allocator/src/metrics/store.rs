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
