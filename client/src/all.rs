//! One call on several limits at once: it gets permits of each limit, or of none.

mod lines;
mod parts;
mod take;

use crate::guard::Guard;
use crate::limit::{Limit, until, within};
use crate::refusal::Refusal;
use crate::reservation::Reservation;
use std::time::{Duration, Instant};

pub use parts::Parts;

/// Makes a call that costs permits of several limits, all of them or none.
///
/// Parts are limits, or references to limits, with a cost each, in an array, a slice or a vector. A limit that is named
/// twice costs the sum. Two handles name the same limit if one client made both from the same name and key.
///
/// ```no_run
/// # async fn send(lessor: lessor::Client, more: Vec<(lessor::Limit, u64)>) -> Result<(), lessor::Refusal> {
/// let rest = lessor.limit("vendor/rest");
/// let messages = lessor.limit("vendor/messages");
/// lessor::all([(&rest, 1), (&messages, 1)]).acquire().await?;
/// lessor::all(more.as_slice()).acquire().await?;
/// # Ok(())
/// # }
/// ```
pub fn all<P: Parts>(parts: P) -> All<P> {
    All { parts }
}

/// Spends every part now, or none: `all(parts).try_acquire()`.
///
/// # Errors
/// The refusal of the first part that is short of permits.
pub fn try_all<P: Parts>(parts: P) -> Result<(), Refusal> {
    all(parts).try_acquire()
}

/// A call on several limits, from [`all`].
///
/// # Waiting
/// A call that waits has a place in the line of each of its limits, in the order in which it came. It waits in the line
/// of the limit that is short; callers of the other limits pass it meanwhile. Once it has been short of each limit in
/// turn and is first in all lines, the callers behind it wait until every limit gives.
#[derive(Clone, Copy, Debug)]
pub struct All<P> {
    parts: P,
}

impl<P: Parts> All<P> {
    /// Spends every part now, or none. Takes no lock, and allocates nothing for an array.
    ///
    /// The permits are charged to this instant, as with [`Limit::try_acquire`].
    ///
    /// # Errors
    /// The refusal of the first part that is short. Nothing was spent then.
    pub fn try_acquire(&self) -> Result<(), Refusal> {
        self.take(None).map_err(|part| self.refuse(part))
    }

    /// Spends every part, waiting if need be.
    ///
    /// # Errors
    /// As [`Limit::acquire`], for any part.
    ///
    /// # Cancel safety
    /// As [`Limit::acquire`]: dropping the future leaves all lines; nothing is spent and nothing is lost.
    pub async fn acquire(&self) -> Result<(), Refusal> {
        self.wait(All::take).await
    }

    /// Spends every part if all become available within `patience`. Needs a tokio timer.
    ///
    /// # Errors
    /// As [`All::acquire`], and the refusal of the moment, such as [`Refusal::Empty`] with the remaining wait.
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn acquire_within(&self, patience: Duration) -> Result<(), Refusal> {
        self.wait_within(patience, All::take).await
    }

    /// Spends every part if all become available by `deadline`, as [`Limit::acquire_by`].
    ///
    /// # Errors
    /// As [`All::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn acquire_by(&self, deadline: Instant) -> Result<(), Refusal> {
        self.acquire_within(until(deadline)).await
    }

    /// Starts a call that takes every part now, or does not start it. There is one guard for each part, and the call
    /// lasts until the guards are dropped. See [`Limit::try_enter`].
    ///
    /// # Errors
    /// As [`All::try_acquire`].
    pub fn try_enter(&self) -> Result<P::Each<Guard>, Refusal> {
        self.start(None).map_err(|part| self.refuse(part))
    }

    /// Starts a call that takes every part, waiting if need be.
    ///
    /// # Errors
    /// As [`All::acquire`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn enter(&self) -> Result<P::Each<Guard>, Refusal> {
        self.wait(All::start).await
    }

    /// Starts a call that takes every part if all become available within `patience`. Needs a tokio timer.
    ///
    /// # Errors
    /// As [`All::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn enter_within(&self, patience: Duration) -> Result<P::Each<Guard>, Refusal> {
        self.wait_within(patience, All::start).await
    }

    /// Reserves every part now, or none, for a call whose cost is known only when it is over, such as requests and
    /// tokens of one model. There is one reservation for each part. See [`Limit::try_reserve`].
    ///
    /// # Errors
    /// As [`All::try_acquire`].
    pub fn try_reserve(&self) -> Result<P::Each<Reservation>, Refusal> {
        self.set_aside(None).map_err(|part| self.refuse(part))
    }

    /// Reserves every part, waiting if need be.
    ///
    /// # Errors
    /// As [`All::acquire`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn reserve(&self) -> Result<P::Each<Reservation>, Refusal> {
        self.wait(All::set_aside).await
    }

    /// Reserves every part if all become available within `patience`. Needs a tokio timer.
    ///
    /// # Errors
    /// As [`All::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn reserve_within(&self, patience: Duration) -> Result<P::Each<Reservation>, Refusal> {
        self.wait_within(patience, All::set_aside).await
    }

    /// Returns what `take` takes within `patience`.
    async fn wait_within<T>(
        &self,
        patience: Duration,
        take: impl Fn(&Self, Option<&lines::Lines<'_>>) -> Result<T, usize>,
    ) -> Result<T, Refusal> {
        let short = match take(self, None) {
            Ok(taken) => return Ok(taken),
            Err(short) => short,
        };
        if self.parts.at(short).0.pool().in_vain(self.cost(short), patience) {
            return Err(self.refuse(short));
        }
        within(patience, self.wait(take)).await.unwrap_or_else(|| Err(self.refuse(short)))
    }

    /// Counts the attempt against the part that is short, and returns the reason.
    fn refuse(&self, short: usize) -> Refusal {
        self.parts.at(short).0.pool().refuse(self.cost(short))
    }
}

/// Whether both are handles to one limit and key of one client.
fn same(one: &Limit, other: &Limit) -> bool {
    std::ptr::eq(one.pool(), other.pool())
}

#[cfg(test)]
mod tests;
