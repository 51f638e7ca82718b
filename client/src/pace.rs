//! How fast this process may spend of one pool right now: a bucket that it fills by itself, in one atomic word. Callers
//! take from it after the slot, the background task changes what it goes by; it never blocks, allocates or reads a clock.
//!
//! It knows no deadline: a call takes from the slot first, which checks that of the lease that both came with.

use crate::sync::{AtomicU64, Ordering};
use lessor_holder::permits::Pacer;
use lessor_protocol::Moment;
use std::sync::Arc;
use std::time::Duration;

pub use lessor_holder::permits::Gait;

/// One node's side of one pool, whose callers take from a [`Pace`] where the limit has a steady flow.
pub type Refill = lessor_holder::refill::Refill<Arc<Pace>>;

/// The word while no rate is lent: a bucket that will never hold anything.
const NOTHING: u64 = u64::MAX;

/// What a pace refused, and how long until it would not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// `None` if no wait helps: nothing is lent, or the bucket is too small for the call.
    pub wait: Option<Duration>,
}

/// What a call took, to undo it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    before: u64,
    after: u64,
}

/// A bucket that holds at instant `t` what is minted in `min(t + base − empty, depth)`.
///
/// # Memory ordering
/// A taker reads `empty` first (Acquire), and then the values that it goes by. A thread that changes these values blocks
/// the word before and publishes a new one after it (Release). The word rises with every change, so a taker that has mixed
/// the old with the new fails in its compare-exchange.
#[derive(Debug)]
pub struct Pace {
    /// When the bucket was, or would have been, empty, on a clock that is `base` ahead. Rises, but for
    /// [`Pace::put_back`].
    empty: AtomicU64,
    /// The latest that the word held and does not show any more.
    highest: AtomicU64,
    /// Grows wherever the word would have to go back.
    base: AtomicU64,
    interval: AtomicU64,
    depth: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace::new()
    }
}

impl Pace {
    /// No rate is lent.
    pub fn new() -> Self {
        Pace {
            empty: AtomicU64::new(NOTHING),
            highest: AtomicU64::new(0),
            base: AtomicU64::new(0),
            interval: AtomicU64::new(0),
            depth: AtomicU64::new(0),
        }
    }

    /// Takes `permits` out of the bucket at `now`: decided and taken in one compare-exchange.
    ///
    /// # Errors
    /// If there are fewer in it. Nothing changes then.
    pub fn take(&self, permits: u64, now: Moment) -> Result<Taken, Early> {
        loop {
            let before = self.empty.load(Ordering::Acquire);
            let after = self.after(before, permits, now)?;
            // Pairs with the Acquire above: the next taker sees what this one left.
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

    /// Permits that are in the bucket at `now`.
    pub fn available(&self, now: Moment) -> u64 {
        let empty = self.empty.load(Ordering::Acquire);
        let interval = self.interval.load(Ordering::Relaxed).max(1);
        self.saved(empty, now) / interval
    }

    /// Undoes `taken`, as if it had never been. If another call took after it, what was taken is lost: that call may have
    /// been let through only because this one left no more.
    pub fn put_back(&self, taken: Taken) {
        // First: no word that was ever seen may come back for another gait.
        self.highest.fetch_max(taken.after, Ordering::AcqRel);
        let _ = self.empty.compare_exchange(taken.after, taken.before, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// When the bucket is empty once `permits` are taken at `now`.
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

    /// How long what is in a bucket that was empty at `empty` took to mint.
    fn saved(&self, empty: u64, now: Moment) -> u64 {
        let now = now.as_nanos().saturating_add(self.base.load(Ordering::Relaxed));
        now.saturating_sub(empty).min(self.depth.load(Ordering::Relaxed))
    }

    /// Goes by `gait` from `now` on, with a bucket in which there is what takes `saved` to mint. One caller at a time, and
    /// only after [`Pace::stop`].
    pub fn go(&self, gait: Gait, saved: u64, now: Moment) {
        let base = self.base.load(Ordering::Relaxed);
        let empty = now.as_nanos().saturating_add(base).saturating_sub(saved.min(gait.depth));
        // Were a word used twice, a taker that knows it with another gait would not see the change.
        let unused = (self.highest.load(Ordering::Acquire) + 1).max(empty);
        self.base.store(base + (unused - empty), Ordering::Relaxed);
        self.interval.store(gait.interval, Ordering::Relaxed);
        self.depth.store(gait.depth, Ordering::Relaxed);
        // Pairs with the Acquire load of takers.
        self.empty.store(unused, Ordering::Release);
    }

    /// Lets nothing through from now on. Returns how long what is in the bucket took to mint, if a rate was lent.
    pub fn stop(&self, now: Moment) -> Option<u64> {
        let before = self.empty.swap(NOTHING, Ordering::AcqRel);
        if before == NOTHING {
            return None;
        }
        self.highest.fetch_max(before, Ordering::AcqRel);
        Some(self.saved(before, now))
    }
}

impl Pacer for Pace {
    fn go(&self, gait: Gait, saved: u64, now: Moment) {
        Pace::go(self, gait, saved, now);
    }

    fn stop(&self, now: Moment) -> Option<u64> {
        Pace::stop(self, now)
    }
}

#[cfg(test)]
mod tests;
