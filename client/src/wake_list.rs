//! The pools that the background task has to look at: pools with a lease, and pools that were called since its last
//! look. Keys without calls cost the task nothing, even a million of them. Pools put themselves here, and the task
//! takes them.

use crate::feedback::Feedback;
use crate::local_pool::LocalPool;
use lessor_protocol::lock_anyway::LockAnyway;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Pools that were called while the task did not know them, and how to wake it.
#[derive(Debug)]
pub(crate) struct WakeList {
    pub(crate) wake: Notify,
    /// The runtime of the task, which has a timer.
    pub(crate) runtime: OnceLock<Handle>,
    /// `None` once the client is closed: each pool owns this list, and no task would take the pools out of it again.
    pools: Mutex<Option<Vec<Arc<LocalPool>>>>,
    /// The highest answer number and the highest number of refusals that any forgotten pool told about a vendor. The
    /// allocator may remember them for longer, and ignores lower numbers.
    number: AtomicU64,
    refused: AtomicU64,
}

impl Default for WakeList {
    fn default() -> Self {
        WakeList {
            wake: Notify::new(),
            runtime: OnceLock::new(),
            pools: Mutex::new(Some(vec![])),
            number: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

impl WakeList {
    /// Has the task look at `pool` from now on.
    pub(crate) fn push(&self, pool: Arc<LocalPool>) {
        if let Some(pools) = &mut *self.pools.lock_anyway() {
            pools.push(pool);
        }
    }

    /// Lets go of all pools, and of those that follow.
    pub(crate) fn close(&self) {
        let pools = self.pools.lock_anyway().take();
        // After the lock is released.
        drop(pools);
    }

    /// Notes the numbers of a forgotten pool's `feedback`, which the next pool of its name must exceed.
    pub(crate) fn forget(&self, feedback: &Feedback) {
        let (number, refused) = feedback.totals();
        self.number.fetch_max(number, Ordering::Relaxed);
        self.refused.fetch_max(refused, Ordering::Relaxed);
    }

    /// Makes the feedback of a pool that has heard nothing, with numbers that go on after all forgotten ones.
    pub(crate) fn new_feedback(&self) -> Feedback {
        Feedback::after(self.number.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// Moves all pools to `known`.
    pub(crate) fn take(&self, known: &mut Vec<Arc<LocalPool>>) {
        if let Some(pools) = &mut *self.pools.lock_anyway() {
            known.append(pools);
        }
    }
}
