//! The handle that callers hold: one limit, or one key of it. Cheap to clone; look it up once and keep it.

mod check;
mod enter;
mod reserve;
mod waits;

use crate::client::Task;
use crate::guard::Guard;
use crate::local_pool::{HotRef, LocalPool};
use crate::peek::Peek;
use crate::priority::Priority;
use crate::refusal::Refusal;
use crate::shared::Shared;
use std::fmt;
use std::sync::Arc;

pub(crate) use waits::{until, within};

/// A handle to one limit, or to one key of a keyed limit.
///
/// All handles of the same limit and key in one process spend the same lease.
///
/// A handle keeps its client alive: the client ends with its last handle, to itself or to a limit.
#[derive(Clone)]
pub struct Limit {
    /// Where what a call reads first is, so that it need not ask the pool.
    hot_ref: HotRef,
    pool: Arc<LocalPool>,
    shared: Arc<Shared>,
    priority: Priority,
    /// What keeps the background task going.
    task: Option<Arc<Task>>,
}

/// Names no key, and is one line.
impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Limit({:?}, priority {:?})", self.pool, self.priority)
    }
}

impl Limit {
    pub(crate) fn new(pool: Arc<LocalPool>, shared: Arc<Shared>) -> Self {
        Limit { hot_ref: pool.hot_ref().clone(), pool, shared, priority: Priority::Normal, task: None }
    }

    /// The same, as one of the handles of a client.
    pub(crate) fn of(self, task: Option<Arc<Task>>) -> Self {
        Limit { task, ..self }
    }

    /// The same limit for one key: a user, a tenant. Look it up once and keep the handle: this takes a lock.
    pub fn key(&self, key: &str) -> Limit {
        let of_key = Limit::new(self.shared.pool(&self.pool.name().limit, Some(key)), self.shared.clone());
        of_key.with_priority(self.priority).of(self.task.clone())
    }

    /// A handle to the same limit whose waiting callers come before or behind others, see [`Priority`].
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

    /// Its place among those who wait.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Spends `permits` now, or not at all. Zero permits always succeed and cost nothing.
    ///
    /// Local: it reads a coarse clock and swaps one word. It takes no lock, allocates nothing, logs nothing and never
    /// waits. A spend that leaves little behind wakes the background task, at most once a refill. It never
    /// overtakes callers that wait in [`Limit::acquire`].
    ///
    /// The call is charged to this instant: make it at once. What passes until the vendor counts it is the caller's to keep
    /// within the `margin` of the limit. A call that has to wait for something else first uses [`Limit::try_reserve`] and
    /// [`crate::Reservation::is_good`].
    ///
    /// # Errors
    /// A [`Refusal`] says why not. Nothing was spent then.
    ///
    /// # Memory ordering
    /// What happens before a successful call is not made visible to other threads by it: it counts, it does not
    /// synchronise.
    #[inline(always)]
    pub fn try_acquire(&self, permits: u64) -> Result<(), Refusal> {
        self.pool.try_acquire_at(self.hot_ref.hot_state(), permits)
    }

    /// Spends `permits` of one key now, or not at all: the same as `self.key(key).try_acquire(permits)` for callers that see
    /// many keys and keep no handle. One lookup, which takes a lock that few others take at the same time; it allocates at
    /// the first call of a key. A key without calls and handles is forgotten once its leases are over or given back, and the
    /// background task has looked (every five seconds). Until then it takes 1.3 to 1.5 KB.
    ///
    /// # Errors
    /// As [`Limit::try_acquire`]. The first call of a key is refused unless its limit is in shadow mode: nothing is leased
    /// for it yet, and it is asked for. [`Limit::check_key`] waits for that answer.
    #[inline]
    pub fn try_acquire_key(&self, key: &str, permits: u64) -> Result<(), Refusal> {
        let known = self.pool.keys().and_then(|keys| keys.try_acquire(key, permits));
        known.unwrap_or_else(|| self.key(key).try_acquire(permits))
    }

    /// Spends what there is, up to `permits`, and says how many that are: at least one. For those who can do a part of
    /// their work.
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
            Err(_) if self.pool.is_shadow() => {
                self.pool.let_pass(permits);
                Ok(permits)
            }
            Err(_) if self.pool.try_pass(1, false) => Ok(1),
            Err(_) => Err(self.pool.refuse(1)),
        }
    }

    /// What could be taken now, and what a call of `permits` would be told. Takes nothing, asks for nothing and counts as no
    /// demand: looking at a limit lends no permits to this process.
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
        Guard::new(if counted { Some((self.pool.clone(), permits)) } else { None })
    }

    /// Permits that could be spent at this moment without asking the allocator.
    pub fn available(&self) -> u64 {
        self.pool.available()
    }

    /// Permits that calls got though there were none, because the limit is in shadow mode. Nothing is refused there, and
    /// this is what would have been. Until the allocator has answered once, this process does not know of the mode.
    pub fn shadow_refused(&self) -> u64 {
        self.pool.shadow_refused()
    }

    /// Permits that calls got though no allocator had lent them, because the allocator could not be reached and the limit's
    /// fallback is [`crate::Fallback::Open`].
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
