//! One atomic word of a slot: its free permits, and those set aside. Only [`super::Slot`] and its stripes use it. It
//! knows no deadline.

use crate::sync::{AtomicU64, Ordering};
use lessor_holder::permits::Balance;

// The word:   63 ........ 32 31 ......... 0
//             held for `all`  free to spend
//
// Held permits are set aside by a call that needs several limits at once: no longer free, not yet spent. One
// load shows both, so that a report never mistakes a permit that may still be put back for a spent one.
const HELD: u32 = 32;
const FREE: u64 = (1 << HELD) - 1;

/// Most permits that fit into either half.
pub const SLOT_MAX: u64 = FREE;

/// The result of a successful take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub(super) left: u64,
    /// Whether another thread changed the word meanwhile.
    pub(super) clashed: bool,
}

/// A word at a moment when enough permits were free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen(u64);

/// One word of permits. A permit is in one word at a time, and leaves it in the change that decides its use.
#[derive(Debug, Default)]
pub(super) struct Word(AtomicU64);

/// Splits `word` into its halves.
fn balance_of(word: u64) -> Balance {
    Balance { free: word & FREE, held: word >> HELD }
}

impl Word {
    pub(super) fn new() -> Self {
        Word(AtomicU64::new(0))
    }

    /// See [`super::Slot::renew`].
    pub(super) fn renew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn balance(&self) -> Balance {
        balance_of(self.0.load(Ordering::Acquire))
    }

    /// Whether `permits` are free.
    #[inline]
    pub(super) fn has(&self, permits: u64) -> bool {
        self.balance().free >= permits
    }

    /// Takes `permits` out if they are free.
    #[inline]
    pub(super) fn take(&self, permits: u64) -> Option<Took> {
        self.change(permits, permits)
    }

    /// Returns the word, for [`Word::take_seen`], if `permits` are free.
    #[inline(always)]
    pub(super) fn see(&self, permits: u64) -> Option<Seen> {
        let word = self.0.load(Ordering::Acquire);
        (word & FREE >= permits).then_some(Seen(word))
    }

    /// Takes out `permits`, and returns how many are left, unless another thread has changed the word since it was `seen`.
    #[inline(always)]
    pub(super) fn take_seen(&self, Seen(word): Seen, permits: u64) -> Option<u64> {
        let taken = self.0.compare_exchange(word, word - permits, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok().then_some((word & FREE) - permits)
    }

    /// Sets `permits` aside if they are free.
    #[inline]
    pub(super) fn hold(&self, permits: u64) -> Option<Took> {
        // Free falls by `permits` and held rises by as many, in one subtraction that wraps past the top.
        self.change(permits, permits.wrapping_sub(permits << HELD))
    }

    /// Takes `less` off the word if at least `permits` are free.
    #[inline]
    fn change(&self, permits: u64, less: u64) -> Option<Took> {
        let (mut word, mut clashed) = (self.0.load(Ordering::Acquire), false);
        loop {
            let free = word & FREE;
            if permits > free {
                return None;
            }
            let next = word.wrapping_sub(less);
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Took { left: free - permits, clashed }),
                Err(current) => (word, clashed) = (current, true),
            }
        }
    }

    /// Adds `permits`, takes out up to `lost` of all that are free then, and returns how many of those it took.
    pub(super) fn add(&self, permits: u64, lost: u64) -> u64 {
        let mut taken = 0;
        self.update(|Balance { free, held }| {
            taken = lost.min(free + permits);
            Balance { free: (free + permits - taken).min(FREE), held }
        });
        taken
    }

    /// Takes out up to `most` free permits, but leaves `keep`. Returns how many it took.
    pub(super) fn take_up_to(&self, most: u64, keep: u64) -> u64 {
        let mut taken = 0;
        self.update(|Balance { free, held }| {
            taken = free.saturating_sub(keep).min(most);
            Balance { free: free - taken, held }
        });
        taken
    }

    /// Sets up to `most` free permits aside, and returns how many.
    pub(super) fn hold_up_to(&self, most: u64) -> u64 {
        let mut taken = 0;
        self.update(|Balance { free, held }| {
            taken = free.min(most);
            Balance { free: free - taken, held: held + taken }
        });
        taken
    }

    /// Takes out up to `most` permits that are set aside, and frees them if they go `back`. Returns how many.
    pub(super) fn release(&self, most: u64, back: bool) -> u64 {
        let mut taken = 0;
        self.update(|Balance { free, held }| {
            taken = held.min(most);
            Balance { free: free + if back { taken } else { 0 }, held: held - taken }
        });
        taken
    }

    fn update(&self, mut change: impl FnMut(Balance) -> Balance) {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let Balance { free, held } = change(balance_of(word));
            let next = held << HELD | free;
            if next == word {
                return;
            }
            // The next taker sees all earlier changes: see the docs of the slot.
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(current) => word = current,
            }
        }
    }
}
