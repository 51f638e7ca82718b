//! One call on several limits at once: a permit of each, or none of any.

use crate::guard::Guard;
use crate::limit::{Limit, until, within};
use crate::local_pool::CLOCK;
use crate::refusal::Refusal;
use crate::reservation::Reservation;
use crate::wait::wait_in_line;
use lessor_protocol::Moment;
use std::time::{Duration, Instant};

/// A call that costs permits of several limits, all of them or none.
///
/// ```no_run
/// # async fn send(lessor: lessor::Client) -> Result<(), lessor::Refusal> {
/// let rest = lessor.limit("vendor/rest");
/// let messages = lessor.limit("vendor/messages");
/// lessor::all([(&rest, 1), (&messages, 1)]).acquire().await?;
/// # Ok(())
/// # }
/// ```
pub fn all<const N: usize>(parts: [(&Limit, u64); N]) -> All<'_, N> {
    All { parts }
}

/// Spends every part now, or none of any: `all(parts).try_acquire()`.
///
/// # Errors
/// The refusal of the first part that is short.
pub fn try_all<const N: usize>(parts: [(&Limit, u64); N]) -> Result<(), Refusal> {
    all(parts).try_acquire()
}

/// See [`all`].
#[derive(Clone, Copy, Debug)]
pub struct All<'a, const N: usize> {
    parts: [(&'a Limit, u64); N],
}

impl<const N: usize> All<'_, N> {
    /// Spends every part now, or none of any. Takes no lock and allocates nothing.
    ///
    /// # Errors
    /// The refusal of the first part that is short. Nothing was spent then.
    pub fn try_acquire(&self) -> Result<(), Refusal> {
        self.take(N).map_err(|part| self.refuse(part))
    }

    /// Spends every part, waiting if need be: in the line of one limit at a time, the one that is short.
    ///
    /// # Errors
    /// As [`Limit::acquire`], for any part.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line; nothing is spent and nothing is lost.
    pub async fn acquire(&self) -> Result<(), Refusal> {
        self.wait(All::take).await
    }

    /// Starts a call that takes every part now, or none of any; it lasts until its guards are dropped. See
    /// [`Limit::try_enter`].
    ///
    /// # Errors
    /// As [`All::try_acquire`].
    pub fn try_enter(&self) -> Result<[Guard; N], Refusal> {
        self.start(N).map_err(|part| self.refuse(part))
    }

    /// Starts a call that takes every part, waiting if need be.
    ///
    /// # Errors
    /// As [`All::acquire`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn enter(&self) -> Result<[Guard; N], Refusal> {
        self.wait(All::start).await
    }

    /// Starts a call that takes every part if they can all be had within `patience`. Needs a tokio timer.
    ///
    /// # Errors
    /// As [`All::acquire_within`].
    pub async fn enter_within(&self, patience: Duration) -> Result<[Guard; N], Refusal> {
        let short = match self.start(N) {
            Ok(guards) => return Ok(guards),
            Err(short) => short,
        };
        let (limit, permits) = self.parts[short];
        if limit.pool().in_vain(permits, patience) {
            return Err(self.refuse(short));
        }
        within(patience, self.enter()).await.unwrap_or_else(|| Err(self.refuse(short)))
    }

    /// Reserves every part now, or none of any, for a call whose cost is known only when it is over: requests and tokens of
    /// one model, say. See [`Limit::try_reserve`].
    ///
    /// # Errors
    /// As [`All::try_acquire`].
    pub fn try_reserve(&self) -> Result<[Reservation; N], Refusal> {
        self.set_aside(N).map_err(|part| self.refuse(part))
    }

    /// Reserves every part, waiting if need be.
    ///
    /// # Errors
    /// As [`All::acquire`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn reserve(&self) -> Result<[Reservation; N], Refusal> {
        self.wait(All::set_aside).await
    }

    /// Waits until `take` gives something.
    async fn wait<T>(&self, take: impl Fn(&Self, usize) -> Result<T, usize>) -> Result<T, Refusal> {
        let mut short = match take(self, N) {
            Ok(taken) => return Ok(taken),
            Err(short) => short,
        };
        loop {
            let (limit, permits) = self.parts[short];
            // First in line here: try all. If this limit is what is short, wait on; if another is, wait there.
            let turn = wait_in_line(limit.pool(), limit.priority(), permits, || match take(self, short) {
                Err(part) if part == short => None,
                other => Some(other),
            });
            match turn.await? {
                Ok(taken) => return Ok(taken),
                Err(part) => short = part,
            }
        }
    }

    /// Spends every part if they can all be had within `patience`. Needs a tokio timer.
    ///
    /// # Errors
    /// As [`All::acquire`], and [`Refusal::Empty`] with how long it would still be.
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn acquire_within(&self, patience: Duration) -> Result<(), Refusal> {
        let Err(short) = self.take(N) else { return Ok(()) };
        let (limit, permits) = self.parts[short];
        if limit.pool().in_vain(permits, patience) {
            return Err(self.refuse(short));
        }
        within(patience, self.acquire()).await.unwrap_or_else(|| Err(self.refuse(short)))
    }

    /// Spends every part if they can all be had by `deadline`, as [`Limit::acquire_by`].
    ///
    /// # Errors
    /// As [`All::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`All::acquire`].
    pub async fn acquire_by(&self, deadline: Instant) -> Result<(), Refusal> {
        self.acquire_within(until(deadline)).await
    }

    /// Spends every part, or names the one that is short. `first` is the part in whose line the caller is first, `N` if
    /// it is in none.
    fn take(&self, first: usize) -> Result<(), usize> {
        let is_held = self.hold(first)?;
        for ((limit, permits), is_held) in self.parts.iter().zip(is_held) {
            match is_held {
                true => limit.pool().spend_held(*permits),
                false => limit.pool().let_pass(*permits),
            }
        }
        Ok(())
    }

    /// The same for a call that ends with its guards.
    fn start(&self, first: usize) -> Result<[Guard; N], usize> {
        let is_held = self.hold(first)?;
        let mut is_held = is_held.into_iter();
        Ok(self.parts.map(|(limit, permits)| {
            if is_held.next().expect("one for each part") {
                return limit.guard(permits, limit.pool().enter_held(permits));
            }
            limit.pool().let_pass(permits);
            limit.guard(permits, false)
        }))
    }

    /// The same for a call that is settled when it is over.
    fn set_aside(&self, first: usize) -> Result<[Reservation; N], usize> {
        let is_held = self.hold(first)?;
        let mut is_held = is_held.into_iter();
        Ok(self.parts.map(|(limit, permits)| {
            if is_held.next().expect("one for each part") {
                return limit.reservation(limit.pool().reserve_held(permits), permits);
            }
            limit.pool().let_pass(permits);
            limit.reservation(None, permits)
        }))
    }

    /// Sets every part aside that is not in shadow mode or there anyway, and tells which; or puts back what was set aside
    /// and names the part that is short.
    fn hold(&self, first: usize) -> Result<[bool; N], usize> {
        // One reading for all parts: they are checked within nanoseconds of each other.
        let now = CLOCK.now();
        let mut is_held = [false; N];
        for (part, (limit, permits)) in self.parts.iter().enumerate() {
            is_held[part] = limit.pool().hold(*permits, part == first, now).is_ok();
            // A limit in shadow mode stops nobody, nor one without an allocator that has a part of the reserve left.
            let stops = || !limit.pool().is_shadow() && !limit.pool().take_share(*permits, part == first);
            if !is_held[part] && stops() {
                let held = self.parts.iter().zip(is_held).filter(|(_, is_held)| *is_held);
                held.for_each(|((limit, permits), _)| limit.pool().put_back(*permits));
                return Err(part);
            }
        }
        if let Err(early) = self.take_paces(&mut is_held, now) {
            for (part, ((limit, permits), is_held)) in self.parts.iter().zip(is_held).enumerate() {
                match part == early {
                    // It may be its line that this call is first in: calling the first would be calling itself.
                    _ if !is_held => {}
                    true => limit.pool().put_back_quietly(*permits),
                    false => limit.pool().put_back(*permits),
                }
            }
            return Err(early);
        }
        Ok(is_held)
    }

    /// Takes from the paces of those limits that have a steady flow, once the permits of all are set aside; or from
    /// none, and names the part that is too early.
    fn take_paces(&self, is_held: &mut [bool; N], now: Moment) -> Result<(), usize> {
        let mut taken = [None; N];
        for (part, (limit, permits)) in self.parts.iter().enumerate() {
            if !is_held[part] {
                continue;
            }
            match limit.pool().hold_pace(*permits, now) {
                Ok(pace) => taken[part] = pace,
                Err(_) if limit.pool().is_shadow() => {
                    limit.pool().put_back(*permits);
                    is_held[part] = false;
                }
                Err(_) => {
                    for (part, (limit, _)) in self.parts[..part].iter().enumerate() {
                        limit.pool().put_back_pace(taken[part]);
                    }
                    return Err(part);
                }
            }
        }
        Ok(())
    }

    /// Counts the attempt against the part that is short, and says why.
    fn refuse(&self, short: usize) -> Refusal {
        let (limit, permits) = self.parts[short];
        limit.pool().refuse(permits)
    }
}
