//! The stripes of a slot that threads contend for: words in cache lines of their own, so that threads that spend from
//! different words do not wait for each other's caches. Only [`super::Slot`] uses them, and checks the lease.
//!
//! Permits stay in the stripe that they were put into until they are spent or taken out. Only the refill moves them,
//! under the lock under which reports are written. So each sum over all words counts a permit once.

use super::StripeWords;
use super::word::{Took, Word};
use crate::sync::{AtomicU64, Ordering, spin};
use lessor_holder::permits::Balance;

/// Most stripes of a slot. More would cost memory (128 bytes each, in a striped slot) and lengthen a sweep before it
/// refuses. They would help only machines on which more threads spend from one limit at once, which now share stripes.
pub const STRIPES_MAX: usize = if cfg!(slot_loom) { 4 } else { 16 };

/// How often a sweep that found nothing looks again because permits are being moved. A move takes some hundred
/// nanoseconds, unless its thread loses its core in between.
const LOOKS_MAX: u32 = 64;

/// The state that callers on one stripe read and write. Common processors fetch two cache lines at a time.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Stripe {
    pub(super) words: StripeWords,
    /// Refusals, in another line: other threads read the word before they refuse.
    pub(super) refused: Line<AtomicU64>,
}

/// A value with a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Line<T>(pub(super) T);

impl Stripe {
    fn new() -> Self {
        Stripe { words: StripeWords::new(), refused: Line(AtomicU64::new(0)) }
    }
}

/// The stripes of one slot, beside the slot's own word, where permits come in.
#[derive(Debug)]
pub(super) struct Stripes {
    /// Inline, though seldom all are in use: a separate list would be one more wait for memory at each call.
    places: [Stripe; STRIPES_MAX],
    /// Number of stripes in use, less one: the number is a power of two.
    mask: usize,
    /// Fewest permits for each stripe; with fewer, permits are left where they are.
    worth: u64,
    /// Odd while permits are moved, and changed when some were put in. A sweep that sees neither has seen all permits.
    moves: AtomicU64,
}

/// Where a take found its permits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) took: Took,
    /// The stripe, or `None` for the slot's own word.
    pub(super) place: Option<usize>,
}

impl Stripes {
    /// Makes `stripes` stripes, rounded up to a power of two.
    pub(super) fn new(stripes: usize, worth: u64) -> Self {
        let count = stripes.next_power_of_two().min(STRIPES_MAX);
        let places = std::array::from_fn(|_| Stripe::new());
        Stripes { places, mask: count - 1, worth, moves: AtomicU64::new(0) }
    }

    /// See [`super::Slot::renew`].
    pub(super) fn renew(&self) {
        for stripe in self.all() {
            stripe.words.renew();
            stripe.refused.0.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the stripe of a caller with this `stripe_hint`.
    #[inline]
    pub(super) fn stripe(&self, stripe_hint: usize) -> &Stripe {
        &self.places[stripe_hint & self.mask]
    }

    /// Returns the stripes in use.
    pub(super) fn all(&self) -> &[Stripe] {
        &self.places[..=self.mask]
    }

    fn words<'a>(&'a self, own: &'a Word) -> impl Iterator<Item = &'a Word> {
        std::iter::once(own).chain(self.all().iter().map(|stripe| &stripe.words.word))
    }

    /// Sums up all words.
    pub(super) fn balance(&self, own: &Word) -> Balance {
        self.words(own).map(Word::balance).fold(Balance::default(), |sum, word| Balance {
            free: sum.free + word.free,
            held: sum.held + word.held,
        })
    }

    /// Takes `permits` from one word, or from several; returns `None` only if at some instant fewer were free.
    #[cold]
    pub(super) fn sweep(&self, own: &Word, stripe_hint: usize, permits: u64) -> Option<Found> {
        self.until_still(|| {
            self.take_whole(own, stripe_hint, permits).or_else(|| self.take_parts(own, permits))
        })
    }

    /// Repeats `look` until it finds something, or finds nothing while no permits are moved or put in.
    fn until_still<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        for _ in 0..LOOKS_MAX {
            let before = self.moves.load(Ordering::Acquire);
            if let Some(found) = look() {
                return Some(found);
            }
            if before.is_multiple_of(2) && self.moves.load(Ordering::Acquire) == before {
                return None;
            }
            spin();
        }
        None
    }

    fn take_whole(&self, own: &Word, stripe_hint: usize, permits: u64) -> Option<Found> {
        if let Some(took) = own.take(permits) {
            return Some(Found { took, place: None });
        }
        (0..=self.mask).find_map(|step| {
            let place = (stripe_hint + step) & self.mask;
            let took = self.places[place].words.word.take(permits)?;
            Some(Found { took, place: Some(place) })
        })
    }

    /// Takes from several words, set aside until there is enough: a call that fails spends nothing.
    fn take_parts(&self, own: &Word, permits: u64) -> Option<Found> {
        self.hold_parts(own, permits).then(|| {
            self.release(own, permits, false);
            Found { took: Took { left: self.balance(own).free, clashed: false }, place: None }
        })
    }

    /// Sets `permits` aside, in one word if possible.
    pub(super) fn hold(&self, own: &Word, permits: u64) -> bool {
        let in_one = || self.words(own).any(|word| word.hold(permits).is_some());
        self.until_still(|| (in_one() || self.hold_parts(own, permits)).then_some(())).is_some()
    }

    fn hold_parts(&self, own: &Word, permits: u64) -> bool {
        // A single permit is in one word. If all words have too few, collecting them only to put them back is useless.
        if permits <= 1 || self.balance(own).free < permits {
            return false;
        }
        let mut missing = permits;
        for word in self.words(own) {
            missing -= word.hold_up_to(missing);
        }
        if missing > 0 {
            self.release(own, permits - missing, true);
            self.put_in();
        }
        missing == 0
    }

    /// Records that permits were put in: a sweep under way looks again.
    pub(super) fn put_in(&self) {
        self.moves.fetch_add(2, Ordering::AcqRel);
    }

    /// Takes out `permits` that were set aside, and frees them if they go `back`. Permits are all alike: another call
    /// may take those that this call set aside, if it has set aside as many elsewhere.
    pub(super) fn release(&self, own: &Word, permits: u64, back: bool) {
        let mut rest = permits;
        // All words together have at least as many set aside, though these may move on during the search.
        while rest > 0 {
            for word in self.words(own) {
                rest -= word.release(rest, back);
            }
        }
    }

    /// Takes out up to `most` free permits, and returns how many.
    pub(super) fn take_up_to(&self, own: &Word, most: u64) -> u64 {
        let mut rest = most;
        for word in self.words(own) {
            rest -= word.take_up_to(rest, 0);
        }
        most - rest
    }

    /// Gives every stripe its share, after permits were put into the slot's own word. One caller at a time, under the
    /// lock under which reports are written.
    pub(super) fn level(&self, own: &Word) {
        self.moves.fetch_add(1, Ordering::AcqRel);
        let share = self.balance(own).free / self.all().len() as u64;
        if share >= self.worth {
            self.share_out(own, share);
        }
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    /// Fills stripes that have less than half of `share` up to it: from the slot's own word, and then from stripes with
    /// more than their share.
    fn share_out(&self, own: &Word, share: u64) {
        for poor in self.all().iter().filter(|stripe| stripe.words.word.balance().free < share / 2) {
            let missing = share - poor.words.word.balance().free.min(share);
            let mut found = own.take_up_to(missing, 0);
            for rich in self.all() {
                found += rich.words.word.take_up_to(missing - found, share);
            }
            poor.words.word.add(found, 0);
        }
    }
}
