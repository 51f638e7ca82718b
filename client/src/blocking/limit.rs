//! The handle to a limit for code without async. It passes calls on to the async handle, and parks the thread where
//! that waits.

use super::runtime::Runtime;
use crate::guard::Guard;
use crate::peek::Peek;
use crate::priority::Priority;
use crate::refusal::Refusal;
use crate::reservation::Reservation;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A handle to one limit, or to one key of a keyed limit, for code without async. See [`crate::Limit`].
#[derive(Clone)]
pub struct Limit {
    limit: crate::Limit,
    runtime: Arc<Runtime>,
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limit.fmt(f)
    }
}

impl Limit {
    pub(super) fn new(limit: crate::Limit, runtime: Arc<Runtime>) -> Self {
        Limit { limit, runtime }
    }

    /// Returns a handle to one key of the limit, as [`crate::Limit::key`].
    pub fn key(&self, key: &str) -> Limit {
        Limit::new(self.limit.key(key), self.runtime.clone())
    }

    /// Returns a handle with `priority`, as [`crate::Limit::with_priority`].
    #[must_use]
    pub fn with_priority(&self, priority: Priority) -> Limit {
        Limit::new(self.limit.with_priority(priority), self.runtime.clone())
    }

    /// Returns the same handle for async code, for [`all`](crate::all()), and for calls that do not wait.
    pub fn as_async(&self) -> &crate::Limit {
        &self.limit
    }

    /// Spends `permits` now, or nothing: the same call as [`crate::Limit::try_acquire`], at the same cost.
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self, permits: u64) -> Result<(), Refusal> {
        self.limit.try_acquire(permits)
    }

    /// Spends as many permits as there are, as [`crate::Limit::try_acquire_up_to`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire_up_to(&self, permits: u64) -> Result<u64, Refusal> {
        self.limit.try_acquire_up_to(permits)
    }

    /// Returns what a call could take now, as [`crate::Limit::peek`].
    pub fn peek(&self, permits: u64) -> Peek {
        self.limit.peek(permits)
    }

    /// Spends `permits`, waiting for them if need be, as [`crate::Limit::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self, permits: u64) -> Result<(), Refusal> {
        self.runtime.wait(self.limit.acquire(permits))
    }

    /// Spends one permit, waiting for it if need be.
    ///
    /// # Errors
    /// As [`Limit::acquire`].
    pub fn until_ready(&self) -> Result<(), Refusal> {
        self.acquire(1)
    }

    /// Spends `permits` if they become available within `patience`, as [`crate::Limit::acquire_within`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, permits: u64, patience: Duration) -> Result<(), Refusal> {
        self.runtime.wait(self.limit.acquire_within(permits, patience))
    }

    /// Spends `permits` if they become available by `deadline`, as [`crate::Limit::acquire_by`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_by(&self, permits: u64, deadline: Instant) -> Result<(), Refusal> {
        self.runtime.wait(self.limit.acquire_by(permits, deadline))
    }

    /// Reserves `permits` for a call whose cost is known only when it is over, as [`crate::Limit::reserve`].
    ///
    /// # Errors
    /// As there.
    pub fn reserve(&self, permits: u64) -> Result<Reservation, Refusal> {
        self.runtime.wait(self.limit.reserve(permits))
    }

    /// Reserves `permits` if they become available within `patience`, as [`crate::Limit::reserve_within`].
    ///
    /// # Errors
    /// As there.
    pub fn reserve_within(&self, permits: u64, patience: Duration) -> Result<Reservation, Refusal> {
        self.runtime.wait(self.limit.reserve_within(permits, patience))
    }

    /// Starts a call that takes `permits`, waiting for them if need be, as [`crate::Limit::enter`].
    ///
    /// # Errors
    /// As there.
    pub fn enter(&self, permits: u64) -> Result<Guard, Refusal> {
        self.runtime.wait(self.limit.enter(permits))
    }

    /// Starts a call that takes `permits` if they become available within `patience`, as
    /// [`crate::Limit::enter_within`].
    ///
    /// # Errors
    /// As there.
    pub fn enter_within(&self, permits: u64, patience: Duration) -> Result<Guard, Refusal> {
        self.runtime.wait(self.limit.enter_within(permits, patience))
    }
}
