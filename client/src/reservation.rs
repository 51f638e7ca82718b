//! Permits set aside for a call whose cost is known only when it is over. Limits make reservations, callers settle them;
//! it refuses nothing.

use crate::guard::Guard;
use crate::local_pool::LocalPool;
use std::sync::Arc;

/// Permits reserved for a call whose cost is known only afterwards, from [`crate::Limit::reserve`].
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
/// Dropping a reservation settles it in full, for the cost of its call is unknown; a call that was never made is
/// [`Reservation::refund`]ed.
///
/// **Waiting before the call.** A permit that is acquired is charged to the window in which it was acquired. One that is
/// reserved is charged until it is settled or [begins](Reservation::begin), so a call may wait for something else first. [`Reservation::is_good`], right
/// before the call, says whether the permit still covers it; if not, take another one. In a steady flow, a call is due when
/// it was reserved.
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
/// **Time-out.** A reservation is open for as long as this process renews its lease, and for ten minutes at most. When the
/// allocator cannot be reached, it is over when the lease is, within two seconds: all that was reserved counts as spent
/// then, at the allocator too, and nothing of it comes back. [`Reservation::is_open`] says whether it would.
#[must_use = "a reservation that is dropped is settled in full"]
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<LocalPool>,
    /// `None` if nothing was set aside: for zero permits, or because the limit is in shadow mode.
    number: Option<u64>,
    permits: u64,
}

/// What came of settling a [`Reservation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Permits that were not needed, and can be spent again by this process.
    pub returned: u64,
    /// Permits that the call has cost beyond what was reserved, and that were there to pay for them.
    pub taken: u64,
    /// Permits beyond that, which were not there: the call has exceeded what this process was lent. The next permits that
    /// come pay for them, before another caller gets one.
    pub owed: u64,
}

impl Reservation {
    pub(crate) fn new(pool: Arc<LocalPool>, number: Option<u64>, permits: u64) -> Self {
        Reservation { pool, number, permits }
    }

    /// Permits that are reserved, less what was refunded.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// Whether a call that is made now is covered: the lease that the permits were reserved from has not ended, so the fleet
    /// counts them as in use. It costs a lock and a look at the clock.
    ///
    /// Permits that nothing was set aside for are good for ever: those of shadow mode and of a fallback, and zero permits.
    pub fn is_good(&self) -> bool {
        self.number.is_none_or(|number| self.pool.is_open(number))
    }

    /// Whether what is not needed would come back: see the time-out above.
    pub fn is_open(&self) -> bool {
        self.number.is_some_and(|number| self.pool.is_open(number))
    }

    /// Gives up to `permits` back that will not be needed, before the call is over or because it is not made. Returns how
    /// many can be spent again: never more than are reserved, and none once the reservation is over.
    pub fn refund(&mut self, permits: u64) -> u64 {
        let back = permits.min(self.permits);
        self.permits -= back;
        self.number.map_or(0, |number| self.pool.give_back(number, back))
    }

    /// The call begins now, and costs what is reserved. Where the limit caps what is in flight, the permits are in use until
    /// the guard is dropped; where it does not, they are spent, and the guard does nothing.
    pub fn begin(mut self) -> Guard {
        let number = self.number.take();
        let counted = number.and_then(|number| self.pool.enter_reserved(number));
        Guard::new(counted.filter(|permits| *permits > 0).map(|permits| (self.pool.clone(), permits)))
    }

    /// The call has cost `actual` permits: what was reserved beyond that can be spent again.
    ///
    /// A call that has cost more than was reserved takes the difference from what is there. What is not there is owed: no
    /// caller in this process gets a permit until that is paid. (At most as much is ever owed as one call can take.) Where
    /// there is a choice, reserve the most that a call can cost. A limit that is exceeded stays exceeded, also when later
    /// permits pay for it.
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
