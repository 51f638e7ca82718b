//! The handle that callers hold: one limit, or one key of it. Cheap to clone; look it up once and keep it.

use crate::guard::Guard;
use crate::local_pool::LocalPool;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::wait::wait_in_line;
use std::sync::Arc;
use std::time::Duration;

/// A handle to one limit, or to one key of a keyed limit.
///
/// All handles of the same limit and key in one process spend the same lease.
#[derive(Clone, Debug)]
pub struct Limit {
    pool: Arc<LocalPool>,
    shared: Arc<Shared>,
}

impl Limit {
    pub(crate) fn new(pool: Arc<LocalPool>, shared: Arc<Shared>) -> Self {
        Limit { pool, shared }
    }

    /// The same limit for one key: a user, a tenant. Look it up once and keep the handle: this takes a lock.
    pub fn key(&self, key: &str) -> Limit {
        Limit::new(self.shared.pool(&self.pool.name.limit, Some(key)), self.shared.clone())
    }

    /// Spends `permits` now, or not at all. Zero permits always succeed and cost nothing.
    ///
    /// Local: it reads a coarse clock and swaps one word. It takes no lock, allocates nothing, logs nothing and never
    /// waits. A spend that leaves little behind wakes the background task, at most once a refill. It never
    /// overtakes callers that wait in [`Limit::acquire`].
    ///
    /// # Errors
    /// A [`Refusal`] says why not. Nothing was spent then.
    ///
    /// # Memory ordering
    /// What happens before a successful call is not made visible to other threads by it: it counts, it does not
    /// synchronise.
    #[inline(always)]
    pub fn try_acquire(&self, permits: u64) -> Result<(), Refusal> {
        self.pool.try_acquire(permits)
    }

    /// Spends `permits`, waiting for them if need be, first come, first served. Needs a tokio timer where the limit has a
    /// steady flow: the wait for the next permit of it is timed.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] and [`Refusal::Closed`], which no waiting would change, and
    /// [`Refusal::Unavailable`] if the allocator does not know the limit.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line; nothing is spent and nothing is lost.
    pub async fn acquire(&self, permits: u64) -> Result<(), Refusal> {
        if self.pool.take_or_pass(permits, false).is_ok() {
            return Ok(());
        }
        wait_in_line(&self.pool, permits, || self.pool.take_or_pass(permits, true).ok()).await
    }

    /// Spends `permits` if they can be had within `patience`; a permit that comes just then is in time.
    ///
    /// Fails at once if the wait cannot end in time, as far as this process knows. Needs a tokio timer.
    ///
    /// # Errors
    /// As [`Limit::acquire`], and [`Refusal::Empty`] with how long it would still be.
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn acquire_within(&self, permits: u64, patience: Duration) -> Result<(), Refusal> {
        if self.pool.take_or_pass(permits, false).is_ok() {
            return Ok(());
        }
        if self.pool.in_vain(permits, patience) {
            return Err(self.pool.refuse(permits));
        }
        let wait = wait_in_line(&self.pool, permits, || self.pool.take_or_pass(permits, true).ok());
        within(patience, wait).await.unwrap_or_else(|| Err(self.pool.refuse(permits)))
    }

    /// Starts a call that takes `permits` now, or not at all. The call lasts until the guard is dropped.
    ///
    /// Where the limit caps what is in flight (a `concurrency` rule), that is what to use rather than
    /// [`Limit::try_acquire`]: a permit that is only acquired counts as in flight for as long as a call may take. Where
    /// it does not, this is the same as `try_acquire`, and dropping the guard does nothing. It takes a lock where calls
    /// are counted, for as long as it takes to count one.
    ///
    /// # Errors
    /// As [`Limit::try_acquire`].
    pub fn try_enter(&self, permits: u64) -> Result<Guard, Refusal> {
        match self.pool.enter_or_pass(permits, false) {
            Ok(counted) => Ok(self.guard(permits, counted)),
            Err(_) => Err(self.pool.refuse(permits)),
        }
    }

    /// Starts a call that takes `permits`, waiting for them if need be, first come, first served.
    ///
    /// # Errors
    /// As [`Limit::acquire`].
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn enter(&self, permits: u64) -> Result<Guard, Refusal> {
        if let Ok(counted) = self.pool.enter_or_pass(permits, false) {
            return Ok(self.guard(permits, counted));
        }
        // The guard is made at once: whoever drops this future then drops it too.
        let attempt = || Some(self.guard(permits, self.pool.enter_or_pass(permits, true).ok()?));
        wait_in_line(&self.pool, permits, attempt).await
    }

    /// Starts a call that takes `permits` if they can be had within `patience`.
    ///
    /// # Errors
    /// As [`Limit::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`].
    pub async fn enter_within(&self, permits: u64, patience: Duration) -> Result<Guard, Refusal> {
        if let Ok(counted) = self.pool.enter_or_pass(permits, false) {
            return Ok(self.guard(permits, counted));
        }
        if self.pool.in_vain(permits, patience) {
            return Err(self.pool.refuse(permits));
        }
        within(patience, self.enter(permits)).await.unwrap_or_else(|| Err(self.pool.refuse(permits)))
    }

    pub(crate) fn guard(&self, permits: u64, counted: bool) -> Guard {
        Guard::new(if counted { Some((self.pool.clone(), permits)) } else { None })
    }

    /// Permits that could be spent at this moment without asking anybody.
    pub fn available(&self) -> u64 {
        self.pool.available()
    }

    /// Permits that calls got though there were none, because the limit is in shadow mode: nothing is refused there, and
    /// this is what would have been. Until the allocator has answered once, nobody here knows that it is.
    pub fn shadow_refused(&self) -> u64 {
        self.pool.shadow_refused()
    }

    /// The name of the limit.
    pub fn name(&self) -> &str {
        &self.pool.name.limit
    }

    pub(crate) fn pool(&self) -> &LocalPool {
        &self.pool
    }
}

/// What `future` gives within `patience`; the future is looked at once more when it is over.
pub(crate) async fn within<T>(patience: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(patience, future).await.ok()
}
