//! The pools that the background task is to look at: pools with a lease, and pools that were called since its last look.
//! The task does not look at keys without calls, be there a million of them. Pools put themselves here, the task takes them.

use crate::feedback::Feedback;
use crate::local_pool::LocalPool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Pools that were called while the task did not know them, and how it is woken.
#[derive(Debug, Default)]
pub(crate) struct WakeList {
    pub(crate) wake: Notify,
    /// The runtime that the task runs on, which has a timer.
    pub(crate) runtime: OnceLock<Handle>,
    pools: Mutex<Vec<Arc<LocalPool>>>,
    /// The largest number of a word of a vendor, and of refusals, that any pool told which was forgotten. The allocator may
    /// remember them for longer, and believes none that is not larger.
    number: AtomicU64,
    refused: AtomicU64,
}

impl WakeList {
    /// The task is to look at `pool` from now on.
    pub(crate) fn push(&self, pool: Arc<LocalPool>) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).push(pool);
    }

    /// What a pool has heard of its vendor that is forgotten, as far as the next one of its name has to know it.
    pub(crate) fn forget(&self, feedback: &Feedback) {
        let (number, refused) = feedback.totals();
        self.number.fetch_max(number, Ordering::Relaxed);
        self.refused.fetch_max(refused, Ordering::Relaxed);
    }

    /// Feedback of a pool that has heard nothing, whose numbers go on after all that was forgotten.
    pub(crate) fn new_feedback(&self) -> Feedback {
        Feedback::after(self.number.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// Moves all of them to `known`.
    pub(crate) fn take(&self, known: &mut Vec<Arc<LocalPool>>) {
        known.append(&mut self.pools.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
