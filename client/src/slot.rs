//! What this process may spend of one pool right now, in one atomic word. Callers take from it at every
//! admission, one background task refills it; it never blocks, allocates or reads a clock.
//!
//! A permit leaves the word in the same compare-exchange that decides to admit. The deadline is checked at
//! every spend, against a `now` the caller has just read, so a process that was stopped past it spends nothing
//! when it wakes. What passes between that reading and the call's arrival at the vendor is the limit's `margin`.

use crate::sync::{AtomicU64, Ordering};
use lessor_protocol::Moment;
use lessor_protocol::mutant::{self, Mutant};

// The word:   63 ........ 32 31 ......... 0
//             held for `all`  free to spend
//
// Held permits are set aside by a call that needs several limits at once: no longer free, not yet spent. One
// load shows both, so that a report never mistakes a permit that may still be put back for a spent one.
const HELD: u32 = 32;
const ONE_HELD: u64 = 1 << HELD;
const FREE: u64 = ONE_HELD - 1;

/// The most that fits in either half.
pub const SLOT_MAX: u64 = FREE;

/// Why a slot gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// Too few permits are free.
    Empty,
    /// The lease is over.
    Expired,
    /// The permits are there, and their time is not yet: see [`crate::pace`].
    Early,
}

/// What is in a slot at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Free to spend.
    pub free: u64,
    /// Set aside by calls that need several limits.
    pub held: u64,
}

impl Balance {
    fn of(word: u64) -> Self {
        Balance { free: word & FREE, held: word >> HELD }
    }

    /// All that may still be spent.
    pub fn total(self) -> u64 {
        self.free + self.held
    }
}

/// The permits in hand and the instant they end.
///
/// # Memory ordering
/// [`Slot::install`] changes the word before it moves the deadline (Release); a spender that sees the new
/// deadline (Acquire) therefore takes from a word in which nothing of an ended lease is left. The deadline never
/// moves back. A successful spend is AcqRel on the word: it is ordered with every other change of the balance.
#[derive(Debug, Default)]
pub struct Slot {
    word: AtomicU64,
    /// Nanoseconds of the node's clock; nothing may be spent from this instant on. Written by `install` only.
    deadline: AtomicU64,
}

impl Slot {
    /// An empty slot whose lease is over.
    pub fn new() -> Self {
        Slot { word: AtomicU64::new(0), deadline: AtomicU64::new(0) }
    }

    /// Spends `permits` and returns how many are still free.
    ///
    /// # Errors
    /// If there are fewer, or the lease is over. Nothing changes then.
    #[inline]
    pub fn take(&self, permits: u64, now: Moment) -> Result<u64, Short> {
        self.change(permits, now, permits)
    }

    /// Sets `permits` aside: [`Slot::spend_held`] or [`Slot::put_back`] must follow.
    ///
    /// # Errors
    /// As [`Slot::take`].
    #[inline]
    pub fn hold(&self, permits: u64, now: Moment) -> Result<u64, Short> {
        // Free falls by `permits` and held rises by as many, in one subtraction that wraps past the top.
        self.change(permits, now, permits.wrapping_sub(permits << HELD))
    }

    /// Spends what was set aside, and returns how many are still free.
    pub fn spend_held(&self, permits: u64) -> u64 {
        Balance::of(self.word.fetch_sub(permits << HELD, Ordering::AcqRel)).free
    }

    /// Frees what was set aside.
    pub fn put_back(&self, permits: u64) {
        self.word.fetch_sub((permits << HELD).wrapping_sub(permits), Ordering::AcqRel);
    }

    /// What is in it. Whatever is not in it was spent or taken out.
    pub fn balance(&self) -> Balance {
        Balance::of(self.word.load(Ordering::Acquire))
    }

    /// The instant its lease ends.
    pub fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Adds `permits`, takes `lost` out again (as far as they are still free), and moves the deadline to
    /// `deadline` unless it is later already. Returns how many of `lost` were still there. One caller at a time.
    pub fn install(&self, permits: u64, lost: u64, deadline: Moment) -> u64 {
        let mut word = self.word.load(Ordering::Acquire);
        let taken = loop {
            let free = Balance::of(word).free;
            let taken = lost.min(free + permits);
            let next = (word & !FREE) | (free + permits - taken).min(FREE);
            // Pairs with the Acquire loads of spenders: see the type's docs.
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break taken,
                Err(current) => word = current,
            }
        };
        self.deadline.fetch_max(deadline.as_nanos(), Ordering::Release);
        taken
    }

    /// Takes out whatever is free beyond `keep`, and returns it.
    pub fn shed(&self, keep: u64) -> u64 {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let surplus = Balance::of(word).free.saturating_sub(keep);
            if surplus == 0 {
                return 0;
            }
            match self.word.compare_exchange_weak(word, word - surplus, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return surplus,
                Err(current) => word = current,
            }
        }
    }

    /// Takes `less` off the word if at least `permits` are free and the lease is live.
    #[inline]
    fn change(&self, permits: u64, now: Moment, less: u64) -> Result<u64, Short> {
        let mut word = self.word.load(Ordering::Acquire);
        // Pairs with the Release in `install`.
        if now.as_nanos() >= self.deadline.load(Ordering::Acquire) && !mutant::is(Mutant::DeadlineAtRefill) {
            return Err(Short::Expired);
        }
        loop {
            let free = word & FREE;
            if permits > free {
                return Err(Short::Empty);
            }
            let next = word.wrapping_sub(less);
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(free - permits),
                Err(current) => word = current,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    fn slot(permits: u64) -> Slot {
        let slot = Slot::new();
        slot.install(permits, 0, at(100));
        slot
    }

    #[test]
    fn permits_are_spent_until_none_is_left() {
        let slot = slot(5);
        assert_eq!(slot.take(3, at(0)), Ok(2));
        assert_eq!(slot.take(3, at(0)), Err(Short::Empty));
        assert_eq!(slot.take(2, at(99)), Ok(0));
        assert_eq!(slot.balance(), Balance { free: 0, held: 0 });
    }

    #[test]
    fn nothing_is_spent_at_or_after_the_deadline() {
        let slot = slot(5);
        assert_eq!(slot.take(1, at(100)), Err(Short::Expired));
        assert_eq!(slot.hold(1, at(u64::MAX)), Err(Short::Expired));
        assert_eq!(slot.balance().free, 5);
    }

    #[test]
    fn held_permits_are_neither_free_nor_spent() {
        let slot = slot(5);
        assert_eq!(slot.hold(4, at(0)), Ok(1));
        assert_eq!(slot.balance(), Balance { free: 1, held: 4 });
        assert_eq!(slot.take(2, at(0)), Err(Short::Empty));
        slot.put_back(4);
        assert_eq!(slot.balance(), Balance { free: 5, held: 0 });
        slot.hold(5, at(0)).expect("five are free");
        assert_eq!(slot.spend_held(5), 0);
        assert_eq!(slot.balance().total(), 0);
    }

    #[test]
    fn an_install_adds_and_drops_and_never_moves_the_deadline_back() {
        let slot = slot(5);
        assert_eq!(slot.install(10, 2, at(50)), 2);
        assert_eq!((slot.balance().free, slot.deadline()), (13, at(100)));
        assert_eq!(slot.install(1, 100, at(300)), 14, "no more than there is");
        assert_eq!((slot.balance().free, slot.deadline()), (0, at(300)));
    }

    #[test]
    fn shedding_keeps_what_it_is_told_and_what_is_held() {
        let slot = slot(10);
        slot.hold(4, at(0)).expect("ten are free");
        assert_eq!(slot.shed(2), 4);
        assert_eq!(slot.balance(), Balance { free: 2, held: 4 });
        assert_eq!(slot.shed(2), 0);
    }

    #[test]
    fn a_full_slot_stays_within_its_half() {
        let slot = slot(SLOT_MAX);
        slot.hold(SLOT_MAX, at(0)).expect("all of it");
        assert_eq!(slot.balance(), Balance { free: 0, held: SLOT_MAX });
        slot.put_back(SLOT_MAX);
        assert_eq!(slot.balance(), Balance { free: SLOT_MAX, held: 0 });
    }

    #[test]
    fn eight_threads_spend_every_permit_once() {
        let slot = slot(80_000);
        let spent: u64 = std::thread::scope(|scope| {
            let spend = || (0..20_000).filter(|_| slot.take(1, at(0)).is_ok()).count() as u64;
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(spend)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!((spent, slot.balance().free), (80_000, 0));
    }
}
