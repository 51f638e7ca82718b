//! Permits in plain cells: [`Permits`] for one thread, for tests and for models that copy a whole state.

use crate::permits::{Balance, BucketRate, FILLS_MAX, Pacer, Permits, Short};
use lessor_protocol::Moment;
use std::cell::Cell;

/// Permits of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    balance: Cell<Balance>,
    deadline: Cell<Moment>,
    refused: Cell<u64>,
}

impl Hand {
    /// Creates it without permits, with a lease that is over.
    pub fn new() -> Self {
        Hand::default()
    }

    /// Sets `permits` aside: [`Permits::spend_held`] or [`Hand::put_back`] must follow.
    ///
    /// # Errors
    /// As [`Permits::take`].
    pub fn hold(&self, permits: u64, now: Moment) -> Result<u64, Short> {
        let free = self.take(permits, now)?;
        let Balance { held, .. } = self.balance.get();
        self.balance.set(Balance { free, held: held + permits });
        Ok(free)
    }

    /// Frees permits that were set aside.
    pub fn put_back(&self, permits: u64) {
        let Balance { free, held } = self.balance.get();
        self.balance.set(Balance { free: free + permits, held: held - permits });
    }

    /// Counts `permits` that a caller was refused.
    pub fn refuse(&self, permits: u64) {
        self.refused.set(self.refused.get() + permits);
    }
}

impl Permits for Hand {
    fn balance(&self) -> Balance {
        self.balance.get()
    }

    fn deadline(&self) -> Moment {
        self.deadline.get()
    }

    fn refused(&self) -> u64 {
        self.refused.get()
    }

    fn take(&self, permits: u64, now: Moment) -> Result<u64, Short> {
        let Balance { free, held } = self.balance.get();
        if free < permits {
            return Err(Short::Empty);
        }
        if now >= self.deadline.get() {
            return Err(Short::Expired);
        }
        self.balance.set(Balance { free: free - permits, held });
        Ok(free - permits)
    }

    fn spend_held(&self, permits: u64) -> u64 {
        let Balance { free, held } = self.balance.get();
        self.balance.set(Balance { free, held: held - permits });
        free
    }

    fn install(&self, permits: u64, lost: u64, deadline: Moment) -> u64 {
        let Balance { free, held } = self.balance.get();
        let taken = lost.min(free + permits);
        self.balance.set(Balance { free: free + permits - taken, held });
        self.deadline.set(self.deadline.get().max(deadline));
        taken
    }

    fn shed(&self, keep: u64) -> u64 {
        let Balance { free, held } = self.balance.get();
        let kept = free.min(keep);
        self.balance.set(Balance { free: kept, held });
        free - kept
    }

    fn end(&self) -> u64 {
        self.deadline.set(Moment::ORIGIN);
        self.shed(0)
    }
}

/// The bucket of one thread: [`Pacer`] in plain cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    rate: Cell<BucketRate>,
    /// When the bucket was, or would have been, empty, in nanoseconds on a clock that is [`FILLS_MAX`] ahead; `None`
    /// while no rate is lent.
    empty: Cell<Option<u64>>,
}

impl Bucket {
    /// Takes `permits` out of the bucket.
    ///
    /// # Errors
    /// If it holds fewer. Nothing changes then.
    pub fn take(&self, permits: u64, now: Moment) -> Result<(), Short> {
        let BucketRate { interval, depth } = self.rate.get();
        let (empty, now) = (self.empty.get().ok_or(Short::Early)?, ahead(now));
        let after = empty.max(now.saturating_sub(depth)).saturating_add(permits.saturating_mul(interval));
        if after > now {
            return Err(Short::Early);
        }
        self.empty.set(Some(after));
        Ok(())
    }
}

impl Pacer for Bucket {
    fn go(&self, rate: BucketRate, saved: u64, now: Moment) {
        self.rate.set(rate);
        self.empty.set(Some(ahead(now) - saved.min(rate.depth).min(FILLS_MAX)));
    }

    fn stop(&self, now: Moment) -> Option<u64> {
        let empty = self.empty.take()?;
        Some(ahead(now).saturating_sub(empty).min(self.rate.get().depth))
    }
}

/// Returns `now` on a clock that is [`FILLS_MAX`] ahead.
fn ahead(now: Moment) -> u64 {
    now.as_nanos().saturating_add(FILLS_MAX)
}
