//! Handles to one limit, or to one key of it: [`Limit`], and in the submodules the ways to wait, check, enter and
//! reserve.

mod check;
mod enter;
mod reserve;
mod waits;

use crate::client::Task;
use crate::guard::{Counted, Guard};
use crate::local_pool::{Condition, HotRef, LocalPool};
use crate::peek::Peek;
use crate::priority::Priority;
use crate::refusal::Refusal;
use crate::shared::Shared;
use lessor_protocol::LimitName;
use std::fmt;
use std::sync::Arc;

pub(crate) use waits::{until, within};

/// A handle to one limit, or to one key of a keyed limit. Cheap to clone: look it up once and keep it.
///
/// All handles to the same limit and key in one process spend the same lease.
///
/// A handle keeps its client alive: the client ends when its last handle, the last handle to any of its limits, and the
/// last call in flight and reservation are gone.
#[derive(Clone)]
pub struct Limit {
    /// Where the hot state of the pool is: a call reads it before the rest of the pool.
    hot_ref: HotRef,
    pool: Arc<LocalPool>,
    shared: Arc<Shared>,
    priority: Priority,
    /// Keeps the background task running; `None` for a handle without a client.
    task: Option<Arc<Task>>,
}

/// Prints one line, and never a key.
impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Limit({:?}, priority {:?})", self.pool, self.priority)
    }
}

impl Limit {
    pub(crate) fn new(pool: Arc<LocalPool>, shared: Arc<Shared>) -> Self {
        Limit { hot_ref: pool.hot_ref().clone(), pool, shared, priority: Priority::Normal, task: None }
    }

    /// Makes this a handle of the client that owns `task`.
    pub(crate) fn of(self, task: Option<Arc<Task>>) -> Self {
        Limit { task, ..self }
    }

    /// Returns a handle to one key of the limit: a user, a tenant. It takes a lock, so look a key up once and keep the
    /// handle.
    ///
    /// A process knows about a million keys of one limit. A handle to a further one refuses everything with
    /// [`Refusal::Full`] for as long as it lives: look the key up again later.
    pub fn key(&self, key: &str) -> Limit {
        if self.pool.condition() == Condition::Unknown && LimitName::try_new(self.name()).is_err() {
            // Each key of a limit that cannot be is refused as the limit is.
            return self.clone();
        }
        let of_key = Limit::new(self.shared.pool(&self.pool.name().limit, Some(key)), self.shared.clone());
        of_key.with_priority(self.priority).of(self.task.clone())
    }

    /// Returns a handle to the same limit whose waiting callers have `priority`.
    ///
    /// ```no_run
    /// # async fn example(limit: lessor::Limit) -> Result<(), lessor::Refusal> {
    /// let urgent = limit.with_priority(lessor::Priority::High);
    /// urgent.acquire(1).await?; // before all who wait by `limit`
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_priority(&self, priority: Priority) -> Limit {
        Limit { priority, ..self.clone() }
    }

    /// The priority of this handle's waiting callers.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Spends `permits` now, or nothing. Zero permits always succeed and cost nothing.
    ///
    /// The call is local: it reads a coarse clock and swaps one word. It takes no lock, allocates nothing, logs nothing
    /// and never waits. A spend that leaves few permits wakes the background task, at most once a refill. It never
    /// overtakes callers that wait in [`Limit::acquire`].
    ///
    /// The permits are charged to this instant, so make the call at once. The delay until the vendor counts the call
    /// has to stay within the `margin` of the limit. A call that first has to wait for something else uses
    /// [`Limit::try_reserve`] and [`crate::Reservation::is_good`].
    ///
    /// # Errors
    /// A [`Refusal`] with the reason. Nothing was spent then.
    ///
    /// # Memory ordering
    /// A successful call does not synchronise threads: writes before it do not become visible to other threads through
    /// it.
    #[inline(always)]
    pub fn try_acquire(&self, permits: u64) -> Result<(), Refusal> {
        self.pool.try_acquire_at(self.hot_ref.hot_state(), permits)
    }

    /// Spends `permits` of one key now, or nothing: the same as `self.key(key).try_acquire(permits)`, for callers that
    /// see many keys and keep no handles.
    ///
    /// Each call is one lookup, which takes a lock that few other threads take at the same time. Only the first call of
    /// a key allocates. A key without calls and handles is forgotten once its leases have ended or were given back; the
    /// background task looks every five seconds. Until then it takes about 1 KB.
    ///
    /// # Errors
    /// As [`Limit::try_acquire`]. The first call of a key is refused, unless the limit is in shadow mode: nothing is
    /// leased for the key yet, and the call only asks for it. [`Limit::check_key`] waits for that answer.
    #[inline]
    pub fn try_acquire_key(&self, key: &str, permits: u64) -> Result<(), Refusal> {
        let known = self.pool.keys().and_then(|keys| keys.try_acquire(key, permits));
        known.unwrap_or_else(|| self.key(key).try_acquire(permits))
    }

    /// Spends as many permits as there are, up to `permits`, and returns how many: at least one. It suits callers that
    /// can do a part of their work.
    ///
    /// ```no_run
    /// # fn example(limit: &lessor::Limit, batch: Vec<u32>) -> Result<(), lessor::Refusal> {
    /// let now = limit.try_acquire_up_to(batch.len() as u64)?;
    /// let (now, later) = batch.split_at(now as usize);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Limit::try_acquire`] for one permit.
    pub fn try_acquire_up_to(&self, permits: u64) -> Result<u64, Refusal> {
        if permits == 0 {
            return Ok(0);
        }
        match self.pool.take_up_to(permits, false) {
            Ok(taken) => Ok(taken),
            Err(_) if self.pool.lets_all_pass() => {
                self.pool.let_pass(permits);
                Ok(permits)
            }
            Err(_) if self.pool.try_pass(1, false) => Ok(1),
            Err(_) => Err(self.pool.refuse(1)),
        }
    }

    /// Returns how many permits a call could take now, and the refusal that a call of `permits` would get.
    ///
    /// It takes nothing, asks for nothing and does not count as demand: looking at a limit brings no permits to this
    /// process.
    ///
    /// ```no_run
    /// # fn example(limit: &lessor::Limit) {
    /// let peek = limit.peek(10);
    /// println!("{} now, ten in {:?}", peek.available, peek.ready_in());
    /// # }
    /// ```
    pub fn peek(&self, permits: u64) -> Peek {
        let (available, refusal) = self.pool.peek(permits);
        Peek { available, refusal }
    }

    pub(crate) fn guard(&self, permits: u64, counted: bool) -> Guard {
        let counted = counted.then(|| Counted { pool: self.pool.clone(), permits, task: self.task.clone() });
        Guard::new(counted)
    }

    /// Permits that could be spent at this moment without asking the allocator.
    pub fn available(&self) -> u64 {
        self.pool.available()
    }

    /// Permits that calls got in shadow mode although none were there. Shadow mode refuses nothing; this counts what it
    /// would have refused. The process learns of the mode with the first answer of the allocator.
    pub fn shadow_refused(&self) -> u64 {
        self.pool.shadow_refused()
    }

    /// Permits that calls got without a lease, while no allocator could be reached and the fallback of the limit was
    /// [`crate::Fallback::SafeShare`] or [`crate::Fallback::Open`].
    pub fn fallback_passed(&self) -> u64 {
        self.pool.fallback_passed()
    }

    /// The name of the limit.
    pub fn name(&self) -> &str {
        &self.pool.name().limit
    }

    pub(crate) fn pool(&self) -> &LocalPool {
        &self.pool
    }
}
