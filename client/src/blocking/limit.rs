//! The handle to a limit for code without async. It passes everything on to the async one, and parks where that waits.

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

    /// The same limit for one key, as [`crate::Limit::key`].
    pub fn key(&self, key: &str) -> Limit {
        Limit::new(self.limit.key(key), self.runtime.clone())
    }

    /// As [`crate::Limit::with_priority`].
    #[must_use]
    pub fn with_priority(&self, priority: Priority) -> Limit {
        Limit::new(self.limit.with_priority(priority), self.runtime.clone())
    }

    /// The same handle for code that is async, for [`crate::all`], and for what does not wait.
    pub fn as_async(&self) -> &crate::Limit {
        &self.limit
    }

    /// Spends `permits` now, or not at all: the same call as [`crate::Limit::try_acquire`], at the same cost.
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self, permits: u64) -> Result<(), Refusal> {
        self.limit.try_acquire(permits)
    }

    /// Spends what there is, as [`crate::Limit::try_acquire_up_to`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire_up_to(&self, permits: u64) -> Result<u64, Refusal> {
        self.limit.try_acquire_up_to(permits)
    }

    /// What could be taken now, as [`crate::Limit::peek`].
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

    /// Spends `permits` if they can be had within `patience`, as [`crate::Limit::acquire_within`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, permits: u64, patience: Duration) -> Result<(), Refusal> {
        self.runtime.wait(self.limit.acquire_within(permits, patience))
    }

    /// Spends `permits` if they can be had by `deadline`, as [`crate::Limit::acquire_by`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_by(&self, permits: u64, deadline: Instant) -> Result<(), Refusal> {
        self.runtime.wait(self.limit.acquire_by(permits, deadline))
    }

    /// Reserves `permits` for a call whose cost is known afterwards, as [`crate::Limit::reserve`].
    ///
    /// # Errors
    /// As there.
    pub fn reserve(&self, permits: u64) -> Result<Reservation, Refusal> {
        self.runtime.wait(self.limit.reserve(permits))
    }

    /// Reserves `permits` if they can be had within `patience`, as [`crate::Limit::reserve_within`].
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

    /// Starts a call that takes `permits` if they can be had within `patience`, as [`crate::Limit::enter_within`].
    ///
    /// # Errors
    /// As there.
    pub fn enter_within(&self, permits: u64, patience: Duration) -> Result<Guard, Refusal> {
        self.runtime.wait(self.limit.enter_within(permits, patience))
    }
}
