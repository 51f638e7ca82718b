//! How fast this process may spend of one pool: a bucket that fills by itself, in one atomic word. Callers take from it
//! after the slot, and the background task changes its rate. It never blocks, allocates or reads a clock.
//!
//! It knows no deadline: a call takes from the slot first, and the slot checks the deadline of the lease of both.

use crate::sync::{AtomicU64, Ordering};
use lessor_holder::permits::{FILLS_MAX, Pacer};
use lessor_protocol::Moment;
use std::sync::Arc;
use std::time::Duration;

pub use lessor_holder::permits::BucketRate;

/// One node's side of one pool, whose callers take from a [`Pace`] where the limit has a steady flow.
pub type Refill = lessor_holder::refill::Refill<Arc<Pace>>;

/// Longest time, in nanoseconds, for which a debt stops a flow: thirty days. A larger debt would be nonsense, and the word
/// has no room for any number of them.
const DEBT_MAX: u64 = 30 * 24 * 60 * 60 * 1_000_000_000;

/// The word while no rate is lent: a bucket that never holds anything.
const NOTHING: u64 = u64::MAX;

/// A refusal of a pace, with the time until it would let the call through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// `None` if no wait helps: nothing is lent, or the bucket is too small for the call.
    pub wait: Option<Duration>,
}

/// What a call took, for undoing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    before: u64,
    after: u64,
}

/// A bucket that holds, at instant `t`, what is minted in `min(t + base − empty, depth)`.
///
/// # Memory ordering
/// A taker reads `empty` first (Acquire), and then the other values. A thread that changes these values blocks the word
/// before and publishes a new one afterwards (Release). The word rises with every change, so a taker that has mixed old
/// and new values fails in its compare-exchange. If these values refuse it, it is refused as it is between two rates.
#[derive(Debug)]
pub struct Pace {
    /// When the bucket was, or would have been, empty, in nanoseconds on a clock that is `base` ahead. It only rises,
    /// except in [`Pace::put_back`].
    empty: AtomicU64,
    /// The highest value that the word had and no longer shows.
    highest: AtomicU64,
    /// As much as keeps the word from going back, and from going below zero.
    base: AtomicU64,
    interval: AtomicU64,
    depth: AtomicU64,
    /// Time in nanoseconds, at `interval` for each permit, to mint what was owed when the last rate ended and since.
    owed: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace::new()
    }
}

impl Pace {
    /// Makes a pace without a rate.
    pub fn new() -> Self {
        Pace {
            empty: AtomicU64::new(NOTHING),
            highest: AtomicU64::new(0),
            base: AtomicU64::new(0),
            interval: AtomicU64::new(0),
            depth: AtomicU64::new(0),
            owed: AtomicU64::new(0),
        }
    }

    /// Takes `permits` out of the bucket at `now`: decided and taken in one compare-exchange.
    ///
    /// # Errors
    /// If there are fewer in the bucket. Nothing changes then.
    pub fn take(&self, permits: u64, now: Moment) -> Result<Taken, Early> {
        loop {
            let before = self.empty.load(Ordering::Acquire);
            let after = self.after(before, permits, now)?;
            // Pairs with the Acquire above: the next taker sees the word that this one left.
            if self.empty.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok(Taken { before, after });
            }
        }
    }

    /// Whether [`Pace::take`] would succeed, and if not, why.
    ///
    /// # Errors
    /// As [`Pace::take`].
    pub fn check(&self, permits: u64, now: Moment) -> Result<(), Early> {
        self.after(self.empty.load(Ordering::Acquire), permits, now).map(|_| ())
    }

    /// Permits in the bucket at `now`.
    pub fn available(&self, now: Moment) -> u64 {
        let empty = self.empty.load(Ordering::Acquire);
        let interval = self.interval.load(Ordering::Relaxed).max(1);
        self.saved(empty, now) / interval
    }

    /// Undoes `taken`. If another call took after it, the permits are lost: the other call may have been let through
    /// only because this one left no more.
    pub fn put_back(&self, taken: Taken) {
        // First: a word that was ever seen must not return with another rate.
        self.highest.fetch_max(taken.after, Ordering::AcqRel);
        let _ = self.empty.compare_exchange(taken.after, taken.before, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Takes `permits` out of the bucket at `now`, even if there are fewer in it: it lets nothing through until the rest
    /// is minted, by this rate or the next one.
    pub fn owe(&self, permits: u64, now: Moment) {
        loop {
            let before = self.empty.load(Ordering::Acquire);
            let cost = permits.saturating_mul(self.interval.load(Ordering::Relaxed));
            if before == NOTHING {
                return self.keep_owed(cost);
            }
            let now = now.as_nanos().saturating_add(self.base.load(Ordering::Relaxed));
            let depth = self.depth.load(Ordering::Relaxed);
            let most = before.max(now.saturating_add(DEBT_MAX));
            let after = before.max(now.saturating_sub(depth)).saturating_add(cost).min(most);
            // As in a take.
            if self.empty.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Keeps a debt of `cost` for the next rate.
    fn keep_owed(&self, cost: u64) {
        let more = |owed: u64| Some(owed.saturating_add(cost).min(DEBT_MAX));
        let _ = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Permits that are owed at `now`, rounded up.
    pub fn owed(&self, now: Moment) -> u64 {
        let empty = self.empty.load(Ordering::Acquire);
        let owed = self.owed.load(Ordering::Relaxed).saturating_add(self.lacking(empty, now));
        owed.div_ceil(self.interval.load(Ordering::Relaxed).max(1))
    }

    /// Time in nanoseconds until a bucket with the word `empty` is as good as empty; zero while no rate is lent.
    fn lacking(&self, empty: u64, now: Moment) -> u64 {
        let now = now.as_nanos().saturating_add(self.base.load(Ordering::Relaxed));
        if empty == NOTHING { 0 } else { empty.saturating_sub(now) }
    }

    /// When the bucket would be empty after `permits` were taken at `now`.
    fn after(&self, empty: u64, permits: u64, now: Moment) -> Result<u64, Early> {
        if empty == NOTHING {
            return Err(Early { wait: None });
        }
        let now = now.as_nanos().saturating_add(self.base.load(Ordering::Relaxed));
        let cost = permits.saturating_mul(self.interval.load(Ordering::Relaxed));
        let depth = self.depth.load(Ordering::Relaxed);
        let after = empty.max(now.saturating_sub(depth)).saturating_add(cost);
        if cost > depth {
            Err(Early { wait: None })
        } else if after > now {
            Err(Early { wait: Some(Duration::from_nanos(after - now)) })
        } else {
            Ok(after)
        }
    }

    /// Time in nanoseconds that it took to mint what is in a bucket last empty at `empty`.
    fn saved(&self, empty: u64, now: Moment) -> u64 {
        let now = now.as_nanos().saturating_add(self.base.load(Ordering::Relaxed));
        now.saturating_sub(empty).min(self.depth.load(Ordering::Relaxed))
    }

    /// Goes by `rate` from `now` on, with what takes `saved` nanoseconds to mint in the bucket, less what is owed. Only
    /// after [`Pace::stop`], and by one caller at a time.
    pub fn go(&self, rate: BucketRate, saved: u64, now: Moment) {
        let saved = saved.min(rate.depth).min(FILLS_MAX);
        // The same number of permits, at the new time for each.
        let owed = u128::from(self.owed.swap(0, Ordering::Relaxed)) * u128::from(rate.interval)
            / u128::from(self.interval.load(Ordering::Relaxed).max(1));
        let paid = now.as_nanos().saturating_add(u64::try_from(owed).unwrap_or(u64::MAX).min(DEBT_MAX));
        // If a word were used twice, a taker that knows it with another rate would not see the change.
        let unused = self.highest.load(Ordering::Acquire) + 1;
        // As low as it may be: a base that only rose would use the words up.
        let base = (unused + saved).saturating_sub(paid);
        self.base.store(base, Ordering::Relaxed);
        self.interval.store(rate.interval, Ordering::Relaxed);
        self.depth.store(rate.depth, Ordering::Relaxed);
        // Pairs with the Acquire load of takers.
        self.empty.store(paid.saturating_add(base) - saved, Ordering::Release);
    }

    /// Lets nothing through from now on. Returns the time in nanoseconds that it took to mint what is in the bucket, if
    /// a rate was lent. What is owed is kept for the next rate, unless the whole lease is forgotten, at
    /// [`Moment::ORIGIN`].
    pub fn stop(&self, now: Moment) -> Option<u64> {
        let before = self.empty.swap(NOTHING, Ordering::AcqRel);
        if before == NOTHING {
            return None;
        }
        self.highest.fetch_max(before, Ordering::AcqRel);
        if now > Moment::ORIGIN {
            self.keep_owed(self.lacking(before, now));
        }
        Some(self.saved(before, now))
    }
}

impl Pacer for Pace {
    fn go(&self, rate: BucketRate, saved: u64, now: Moment) {
        Pace::go(self, rate, saved, now);
    }

    fn stop(&self, now: Moment) -> Option<u64> {
        Pace::stop(self, now)
    }
}

#[cfg(test)]
mod tests;
