//! The pools that the background task is to look at: those with a lease, and those that somebody called since. A million
//! keys that nobody calls are none of its business. Pools put themselves here, the task takes them.

use crate::local_pool::LocalPool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Pools that were called while the task did not know them, and how it is woken.
#[derive(Debug, Default)]
pub(crate) struct Called {
    pub(crate) wake: Notify,
    /// The runtime that the task runs on, which has a timer.
    pub(crate) runtime: OnceLock<Handle>,
    pools: Mutex<Vec<Arc<LocalPool>>>,
}

impl Called {
    /// The task is to look at `pool` from now on.
    pub(crate) fn push(&self, pool: Arc<LocalPool>) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).push(pool);
    }

    /// Moves all of them to `known`.
    pub(crate) fn take(&self, known: &mut Vec<Arc<LocalPool>>) {
        known.append(&mut self.pools.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
