//! Permits set aside for a call whose cost is known only when it is over. Limits make reservations, and callers settle
//! them.

use crate::client::Task;
use crate::guard::{Counted, Guard};
use crate::local_pool::LocalPool;
use std::sync::Arc;

/// Permits reserved for a call whose cost is known only when it is over, from [`crate::Limit::reserve`].
///
/// ```no_run
/// # async fn complete(prompt: &str) -> u64 { prompt.len() as u64 }
/// # async fn ask(tokens: lessor::Limit, prompt: &str) -> Result<(), lessor::Refusal> {
/// let reserved = tokens.reserve(4_000).await?; // the most that it can cost
/// let used = complete(prompt).await;
/// reserved.settle(used); // the rest is for the next call
/// # Ok(())
/// # }
/// ```
///
/// Dropping a reservation settles it in full, because the cost of its call is unknown. [`Reservation::refund`] gives
/// back the permits of a call that was never made.
///
/// **Waiting before the call.** A permit that is acquired is charged to the window in which it was acquired. A reserved
/// permit stays charged until it is settled or [begins](Reservation::begin), so its call may wait for something else
/// first. Right before the call, [`Reservation::is_good`] says whether the permit still covers it; if not, reserve
/// another one. In a steady flow, a call is due when it was reserved.
///
/// ```no_run
/// # async fn sign_in() {}
/// # async fn send() {}
/// # async fn call(limit: lessor::Limit) -> Result<(), lessor::Refusal> {
/// let mut permit = limit.reserve(1).await?;
/// sign_in().await; // it may take a while
/// while !permit.is_good() {
///     permit = limit.reserve(1).await?;
/// }
/// permit.settle(1);
/// send().await;
/// # Ok(())
/// # }
/// ```
///
/// **Time-out.** A reservation is open while this process renews its lease, and for ten minutes at most. It keeps its
/// client alive, except a [blocking](crate::blocking) one. When the
/// allocator cannot be reached, it ends with the lease, within two seconds: all reserved permits count as spent then,
/// at the allocator too, and none come back. The same holds after eight terms (of up to two seconds) while others want
/// more than there is and this process holds more than its share. [`Reservation::is_open`] says whether permits would
/// still come back.
#[must_use = "a reservation that is dropped is settled in full"]
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<LocalPool>,
    /// Keeps the background task running, which renews the lease.
    task: Option<Arc<Task>>,
    /// `None` if nothing was set aside: for zero permits, in shadow mode, or in a fallback.
    number: Option<u64>,
    permits: u64,
}

/// What settling a [`Reservation`] returned, took and left owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Permits that were not needed and that this process can spend again.
    pub returned: u64,
    /// Permits beyond the reservation that the call has cost and that were available.
    pub taken: u64,
    /// Permits beyond `taken` that were not available: the call has exceeded what this process was lent. The next
    /// permits to arrive pay for them, before another caller gets one.
    pub owed: u64,
}

impl Reservation {
    pub(crate) fn new(
        pool: Arc<LocalPool>,
        task: Option<Arc<Task>>,
        number: Option<u64>,
        permits: u64,
    ) -> Self {
        Reservation { pool, task, number, permits }
    }

    /// Permits reserved, less those refunded.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// Whether a call made now is covered: the lease of the reserved permits has not ended, so the fleet counts them as
    /// in use. It takes a lock and reads the clock.
    ///
    /// A reservation for which nothing was set aside is always good: zero permits, and permits of shadow mode or a
    /// fallback.
    pub fn is_good(&self) -> bool {
        self.number.is_none_or(|number| self.pool.is_open(number))
    }

    /// Whether unneeded permits would still come back: see the time-out above.
    pub fn is_open(&self) -> bool {
        self.number.is_some_and(|number| self.pool.is_open(number))
    }

    /// Gives back up to `permits` that will not be needed, before the call is over or because it is not made. Returns
    /// how many can be spent again: never more than are reserved, and none once the reservation is over.
    pub fn refund(&mut self, permits: u64) -> u64 {
        let back = permits.min(self.permits);
        self.permits -= back;
        self.number.map_or(0, |number| self.pool.give_back(number, back))
    }

    /// Begins the call, at the cost that is reserved. Where the limit caps calls in flight, the permits are in use
    /// until the guard is dropped; otherwise they are spent, and the guard does nothing.
    pub fn begin(mut self) -> Guard {
        let number = self.number.take();
        let counted = number.and_then(|number| self.pool.enter_reserved(number));
        let (pool, task) = (self.pool.clone(), self.task.take());
        Guard::new(counted.filter(|permits| *permits > 0).map(|permits| Counted { pool, permits, task }))
    }

    /// Settles a call that has cost `actual` permits: the rest of the reservation can be spent again.
    ///
    /// A call that has cost more than was reserved takes the difference from the available permits. Permits that are
    /// not available are owed: no caller in this process gets a permit until they are paid, and at most one call's
    /// maximum is ever owed. Where there is a choice, reserve the most that a call can cost: a limit that was exceeded
    /// stays exceeded, even when later permits pay for it.
    pub fn settle(mut self, actual: u64) -> Settled {
        let returned = self.refund(self.permits.saturating_sub(actual));
        let beyond = actual.saturating_sub(self.permits);
        let (taken, owed) = if beyond == 0 { (0, 0) } else { self.pool.overdraw(beyond) };
        Settled { returned, taken, owed }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.pool.settle(number);
        }
    }
}
