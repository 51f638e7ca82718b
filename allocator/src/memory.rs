//! Memory of this process against its bound, `memory_max`. Beyond the bound no new key is accepted, keys accept few new
//! sessions, and existing keys and sessions go on. The figure is the system's, so that caches and connections count as
//! pools do.

use crate::server::ticks;
use crate::shared::Shared;
use lessor_ledger::registry::limit::{Memory, MemoryWatch};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Interval of looks. Keys that come at the speed of the network take some ten megabytes in between.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether memory was short at the last look.
#[derive(Debug, Default)]
pub(crate) struct ShortMemory(AtomicBool);

impl ShortMemory {
    /// Returns the warning to operators, for a bound of `max` bytes.
    pub(crate) fn warning(&self, max: Option<u64>) -> Option<String> {
        let max = max.filter(|_| self.0.load(Relaxed))?;
        Some(format!(
            "memory is short: this process takes more than server.memory_max ({max}), so new keys are refused, and \
             most new sessions of keys"
        ))
    }
}

/// Returns the resident memory of this process in bytes; `None` if the system does not tell.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = kilobytes.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1_024)
}

/// Watches the memory of `shared` until it is dropped.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut looks = ticks(LOOK_EVERY);
    let max = shared.config().server.memory_max;
    let mut watch = max.map(MemoryWatch::new);
    loop {
        looks.tick().await;
        let Some(bytes) = resident() else { continue };
        let memory = watch.as_mut().map_or(Memory::Enough, |watch| watch.look(bytes));
        let is_short = memory != Memory::Enough;
        shared.metrics().memory(bytes, is_short);
        let was_short = shared.standing().short_memory.0.swap(is_short, Relaxed);
        if is_short || was_short {
            shared.beside(|registry, _| registry.hold_pools(memory));
        }
        match (was_short, is_short) {
            (false, true) => tracing::warn!(bytes, max, "memory is short: new keys are refused"),
            (true, false) => tracing::info!(bytes, max, "memory is no longer short: new keys are admitted"),
            (true, true) | (false, false) => {}
        }
    }
}
