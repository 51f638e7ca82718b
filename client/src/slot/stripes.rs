//! The stripes of a slot that threads contend for: words with cache lines of their own, so that threads which spend from
//! different ones do not wait for each other's caches. Only [`super::Slot`] uses them; it knows what a lease is.
//!
//! Permits stay in the stripe that they were put into until they are spent or taken out; only the one that refills the
//! slot moves them, under its lock, and reports under the same one. So each sum over all words counts a permit once.

use super::StripeWords;
use super::word::{Took, Word};
use crate::sync::{AtomicU64, Ordering, spin};
use lessor_holder::permits::Balance;

/// Most stripes of a slot. More would be memory (128 bytes each, of a slot that is striped at all) and a longer way for a
/// sweep before it refuses, for machines on which more threads than that spend from one limit at once, and share stripes then.
pub const STRIPES_MAX: usize = if cfg!(slot_loom) { 4 } else { 16 };

/// How often a sweep that found nothing looks again because permits are being moved. A move takes some hundred nanoseconds,
/// unless the thread that moves them lost its core in between.
const LOOKS_MAX: u32 = 64;

/// What callers on one stripe take from and write. Two lines are fetched at a time by common processors.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Stripe {
    pub(super) words: StripeWords,
    /// Others read the word before they refuse: what is written at each refusal is in another line.
    pub(super) refused: Line<AtomicU64>,
}

/// Something with a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Line<T>(pub(super) T);

impl Stripe {
    fn new() -> Self {
        Stripe { words: StripeWords::new(), refused: Line(AtomicU64::new(0)) }
    }
}

/// The stripes of one slot, beside its own word, where permits come in.
#[derive(Debug)]
pub(super) struct Stripes {
    /// Here, though seldom all are in use: a list elsewhere would be one more wait for memory at each call.
    places: [Stripe; STRIPES_MAX],
    /// How many are in use, less one: a power of two of them.
    mask: usize,
    /// Permits that a stripe should have at least, or they are left where they are.
    worth: u64,
    /// Odd while permits are moved, and changed when some were put in: a sweep that meets neither has seen all of them.
    moves: AtomicU64,
}

/// Where a take found what it wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) took: Took,
    /// The stripe, or `None` for the slot's own word.
    pub(super) place: Option<usize>,
}

impl Stripes {
    /// A power of two of them.
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

    /// The stripe for a caller that is told `stripe_hint`.
    #[inline]
    pub(super) fn stripe(&self, stripe_hint: usize) -> &Stripe {
        &self.places[stripe_hint & self.mask]
    }

    /// Those that are in use.
    pub(super) fn all(&self) -> &[Stripe] {
        &self.places[..=self.mask]
    }

    fn words<'a>(&'a self, own: &'a Word) -> impl Iterator<Item = &'a Word> {
        std::iter::once(own).chain(self.all().iter().map(|stripe| &stripe.words.word))
    }

    /// What is in all words.
    pub(super) fn balance(&self, own: &Word) -> Balance {
        self.words(own).map(Word::balance).fold(Balance::default(), |sum, word| Balance {
            free: sum.free + word.free,
            held: sum.held + word.held,
        })
    }

    /// Takes `permits` from any word, or from several; `None` only if there was an instant at which fewer were free.
    #[cold]
    pub(super) fn sweep(&self, own: &Word, stripe_hint: usize, permits: u64) -> Option<Found> {
        self.until_still(|| {
            self.take_whole(own, stripe_hint, permits).or_else(|| self.take_parts(own, permits))
        })
    }

    /// What `look` finds, if it finds something while nothing is moved or put in.
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

    /// Of each word what it has, set aside until it is enough: a call that fails spends nothing.
    fn take_parts(&self, own: &Word, permits: u64) -> Option<Found> {
        self.hold_parts(own, permits).then(|| {
            let left = self.spend_held(own, permits);
            Found { took: Took { left, clashed: false }, place: None }
        })
    }

    /// Sets `permits` aside, in one word if possible.
    pub(super) fn hold(&self, own: &Word, permits: u64) -> bool {
        let in_one = || self.words(own).any(|word| word.hold(permits).is_some());
        self.until_still(|| (in_one() || self.hold_parts(own, permits)).then_some(())).is_some()
    }

    fn hold_parts(&self, own: &Word, permits: u64) -> bool {
        // One permit is in one word; and what is not there in all of them need not be collected to be put back.
        if permits <= 1 || self.balance(own).free < permits {
            return false;
        }
        let mut missing = permits;
        for word in self.words(own) {
            missing -= word.hold_up_to(missing);
        }
        if missing > 0 {
            self.put_back(own, permits - missing);
        }
        missing == 0
    }

    /// Spends what was set aside, and returns how many are free. Permits are all alike: those that this call set
    /// aside may be spent by another one, which has set aside as many elsewhere.
    pub(super) fn spend_held(&self, own: &Word, permits: u64) -> u64 {
        self.release(own, permits, false);
        self.balance(own).free
    }

    /// Frees what was set aside.
    pub(super) fn put_back(&self, own: &Word, permits: u64) {
        self.release(own, permits, true);
        self.moves.fetch_add(2, Ordering::AcqRel);
    }

    fn release(&self, own: &Word, permits: u64, back: bool) {
        let mut rest = permits;
        // As many are set aside in all words together at least, though they may move on while this looks for them.
        while rest > 0 {
            for word in self.words(own) {
                rest -= word.release(rest, back);
            }
        }
    }

    /// Takes out up to `most` that are free. Returns how many.
    pub(super) fn take_up_to(&self, own: &Word, most: u64) -> u64 {
        let mut rest = most;
        for word in self.words(own) {
            rest -= word.take_up_to(rest, 0);
        }
        most - rest
    }

    /// Permits were put into the slot's own word: gives every stripe its share. One caller at a time, under the lock that
    /// reports are written under.
    pub(super) fn level(&self, own: &Word) {
        self.moves.fetch_add(1, Ordering::AcqRel);
        let share = self.balance(own).free / self.all().len() as u64;
        if share >= self.worth {
            self.share_out(own, share);
        }
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    /// Brings stripes that have less than half of `share` to it: with what has just come in, and then with what others have
    /// beyond theirs.
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
