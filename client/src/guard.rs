//! A call in flight. Limits make guards, callers keep one for as long as their call takes; it refuses nothing.

use crate::local_pool::LocalPool;
use std::sync::Arc;

/// A call in flight, from [`crate::Limit::enter`]: its permits are in use until this is dropped.
///
/// Where the limit caps what is in flight, dropping it hands the permits back: the next call in this process can have
/// them at once where nothing else is promised, or else the fleet hears of it within a quarter of a lease's term.
/// Where it does not, dropping it does nothing.
///
/// Give the call a time-out of the rule's `longest`: a call that takes longer is counted as long as its process renews
/// its leases, and no further. A guard that is leaked, with [`std::mem::forget`] or in a cycle, counts for as long as
/// that. After [`crate::Client::shutdown`] what is still in flight counts for `longest`, whatever becomes of its guards.
#[must_use = "the call is over, and its permits may serve another call, as soon as this is dropped"]
#[derive(Debug)]
pub struct Guard {
    counted: Option<(Arc<LocalPool>, u64)>,
}

impl Guard {
    /// For `permits` of a pool that counts them, or for nothing.
    pub(crate) fn new(counted: Option<(Arc<LocalPool>, u64)>) -> Self {
        Guard { counted }
    }

    /// Whether permits are in use until it is dropped.
    #[cfg(feature = "reqwest-middleware")]
    pub(crate) fn counts(&self) -> bool {
        self.counted.is_some()
    }

    /// The call has ended: the same as dropping it, for those who like to say so.
    pub fn finish(self) {}

    /// Gives up the guard of a call whose end will not be reported, for example because it was handed to another
    /// process. Its permits count as in flight for as long as a call may take.
    pub fn forget(mut self) {
        if let Some((pool, permits)) = self.counted.take() {
            pool.lapse(permits);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((pool, permits)) = self.counted.take() {
            pool.hand_back(permits);
        }
    }
}
