//! The guard of a call in flight. Limits make guards, and callers keep one for as long as the call takes.

use crate::client::Task;
use crate::local_pool::LocalPool;
use std::sync::Arc;

/// A call in flight, from [`crate::Limit::enter`]: its permits are in use until the guard is dropped.
///
/// Where the limit caps calls in flight, dropping the guard hands the permits back. If the limit has no other rule, the
/// next call in this process can have them at once; otherwise the fleet hears of them within a quarter of a lease's
/// term. For other limits, dropping the guard does nothing.
///
/// Give the call a timeout of at most the rule's `longest`. A longer call is counted while its process renews its
/// leases, and no longer. A guard that counts keeps its client alive, except a [blocking](crate::blocking) one. A guard
/// that is leaked, with [`std::mem::forget`] or in a cycle, counts for as long. After
/// [`crate::Client::shutdown`], calls still in flight count for `longest`, whatever happens to their guards.
#[must_use = "the call is over, and its permits may serve another call, as soon as this is dropped"]
#[derive(Debug)]
pub struct Guard {
    counted: Option<Counted>,
}

/// A call that its pool counts.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) pool: Arc<LocalPool>,
    pub(crate) permits: u64,
    /// Keeps the background task running, which reports the end of the call.
    pub(crate) task: Option<Arc<Task>>,
}

impl Guard {
    /// Makes a guard for `permits` of a pool that counts calls in flight, or one that does nothing.
    pub(crate) fn new(counted: Option<Counted>) -> Self {
        Guard { counted }
    }

    /// Whether dropping the guard hands permits back.
    #[cfg(feature = "reqwest-middleware")]
    pub(crate) fn counts(&self) -> bool {
        self.counted.is_some()
    }

    /// Ends the call: the same as dropping the guard, but explicit.
    pub fn finish(self) {}

    /// Gives up the guard of a call whose end will not be reported, for example because another process took the call
    /// over. Its permits count as in flight for as long as a call may take.
    pub fn forget(mut self) {
        if let Some(Counted { pool, permits, task: _task }) = self.counted.take() {
            pool.lapse(permits);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(Counted { pool, permits, task: _task }) = self.counted.take() {
            pool.hand_back(permits);
        }
    }
}
