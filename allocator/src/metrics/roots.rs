//! Metrics of a shared store: how many swaps it does, how long they take, and how often another allocator was faster.

use lessor_ledger::overrides::Version;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use std::time::Duration;

/// The metrics of roots.
pub(crate) struct RootMetrics {
    done: Counter,
    late: Counter,
    failed: Counter,
    seconds: Histogram,
    allocators: Gauge,
    config_version: Gauge,
    config_serial: Gauge,
    newest_version: Gauge,
}

impl RootMetrics {
    /// Registers all of them, at zero.
    pub(super) fn new() -> Self {
        let swaps = |result: &'static str| counter!("lessor_store_swaps_total", "result" => result);
        RootMetrics {
            done: swaps("done"),
            late: swaps("late"),
            failed: swaps("failed"),
            seconds: histogram!("lessor_store_swap_seconds"),
            allocators: gauge!("lessor_store_allocators"),
            config_version: gauge!("lessor_config_version"),
            config_serial: gauge!("lessor_config_serial"),
            newest_version: gauge!("lessor_store_config_version"),
        }
    }

    /// Records a batch that took `took`: swaps that were done, and swaps that came too late.
    pub(crate) fn swapped(&self, done: usize, late: usize, took: Duration) {
        self.done.increment(done as u64);
        self.late.increment(late as u64);
        self.seconds.record(took);
    }

    /// Sets the number of allocators that signed lately, this one among them.
    pub(crate) fn allocators(&self, allocators: usize) {
        self.allocators.set(allocators as f64);
    }

    /// Sets the version of the configuration in force, and that of the `newest` file which the head names.
    pub(crate) fn config_is(&self, version: Version, newest: u64) {
        self.config_version.set(version.file as f64);
        self.config_serial.set(version.serial as f64);
        self.newest_version.set(newest as f64);
    }

    /// Counts `swaps` of unknown outcome.
    pub(crate) fn failed(&self, swaps: usize) {
        self.failed.increment(swaps as u64);
    }
}
