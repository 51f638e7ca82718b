//! The permits of one pool that this process may spend now, in one atomic word, or in several words for threads that
//! contend. Every admission takes from it, and one background task refills it. It never blocks or reads a clock.
//!
//! A permit leaves its word in the compare-exchange that admits the call. Every spend checks the deadline against the
//! latest time that it may be. So a process that was stopped past the deadline spends nothing when it wakes. The
//! `margin` of the limit covers the time between that check and the call's arrival at the vendor.

mod stripes;
mod watch;
mod word;

use crate::sync::{AtomicU64, OnceLock, Ordering};
use lessor_holder::permits::Permits;
use lessor_protocol::{Moment, Tick};
use std::sync::atomic::AtomicU32;
use stripes::Stripes;
use word::Word;

pub use lessor_holder::permits::{Balance, Short};
pub use stripes::STRIPES_MAX;
pub use watch::{LATE_STEPS, Reading, Time, Watch};
pub use word::SLOT_MAX;

/// Clashes of takes on one word, between two looks of the background task, that make a slot striped. A few happen by
/// chance; threads that spend in a loop clash a thousand times in a millisecond.
const CLASHES: u32 = 64;

/// The result of a spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Free permits: at least those in the word that was taken from. Those in all words, unless other threads took
    /// meanwhile.
    pub free: u64,
    /// The stripe where this caller should look first next time.
    pub stripe_hint: usize,
}

/// The permits in hand and the instant at which their lease ends.
///
/// # Memory ordering
/// [`Slot::install`] changes the words before it moves the deadline (Release). So a spender that sees the new deadline
/// (Acquire) takes from words that hold nothing of an ended lease.
///
/// The deadline moves back in two places. [`Slot::end`] moves it before the reading of the clock that the next lease
/// must outlast: a thread that saw the old deadline told the time before that, and the next lease ends later.
/// [`Slot::renew`] moves it where no other thread sees it.
///
/// A successful spend is AcqRel on its word, and so ordered with every other change of that balance.
#[derive(Debug)]
#[repr(align(64))]
pub struct Slot {
    /// In nanoseconds of the node's clock: nothing may be spent from this instant on. Written by `install`, `end` and
    /// `renew`.
    deadline: AtomicU64,
    /// Present once threads have contended. Set by the background task only.
    stripes: OnceLock<Box<Stripes>>,
    clashes: AtomicU32,
    /// The only words while the slot is not striped; otherwise, new permits are added here.
    own: StripeWords,
    refused: AtomicU64,
}

/// The permits that callers of one stripe take from, and their reading of the clock.
#[derive(Debug)]
struct StripeWords {
    word: Word,
    watch: Watch,
}

/// The result of the quickest way to spend.
#[derive(Clone, Copy, Debug)]
pub enum Quick {
    /// The permits were spent, and this many are free in the same word.
    Spent(u64),
    /// There are too few permits, and it is this time or later.
    Empty(Moment),
    /// A closer look is needed, with [`Slot::spend`].
    Unsure,
}

impl Default for Slot {
    fn default() -> Self {
        Slot::new()
    }
}

impl Slot {
    /// Makes an empty slot whose lease is over.
    pub fn new() -> Self {
        Slot {
            deadline: AtomicU64::new(0),
            stripes: OnceLock::new(),
            clashes: AtomicU32::new(0),
            own: StripeWords::new(),
            refused: AtomicU64::new(0),
        }
    }

    /// Gives threads words of their own from now on: `stripes` of them, rounded up to a power of two, each worthwhile
    /// if it gets `worth` permits. Shares out the permits in hand. A striped slot stays striped. One caller at a time,
    /// the same as for [`Slot::install`].
    pub fn stripe(&self, stripes: usize, worth: u64) {
        if stripes > 1 {
            let stripes = self.stripes.get_or_init(|| Box::new(Stripes::new(stripes, worth)));
            stripes.level(&self.own.word);
        }
    }

    /// Whether it is not striped, and threads have contended for it since the last [`Slot::take_contended`].
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.clashes.load(std::sync::atomic::Ordering::Relaxed) >= CLASHES && !self.is_striped()
    }

    /// As [`Slot::is_crowded`], and starts a new count.
    pub fn take_contended(&self) -> bool {
        let is_crowded = self.is_crowded();
        if self.clashes.load(std::sync::atomic::Ordering::Relaxed) > 0 {
            self.clashes.store(0, std::sync::atomic::Ordering::Relaxed);
        }
        is_crowded
    }

    /// Whether threads spend from different words.
    #[inline]
    pub fn is_striped(&self) -> bool {
        self.stripes.get().is_some()
    }

    /// Spends `permits` and returns how many are still free.
    ///
    /// # Errors
    /// If there are fewer, or the lease is over. Nothing changes then.
    #[inline]
    pub fn take(&self, permits: u64, now: Moment) -> Result<u64, Short> {
        self.take_by_hint(0, permits, now)?;
        Ok(self.balance().free)
    }

    /// Spends `permits`, from the stripe at `stripe_hint` if it has them, by the cheapest reading of the `time` that
    /// suffices. Returns what is left, or the reason why not and the time.
    ///
    /// # Errors
    /// As [`Slot::take`].
    #[inline]
    pub fn spend<F: Fn() -> Moment>(
        &self,
        stripe_hint: usize,
        permits: u64,
        time: &Time<'_, F>,
    ) -> Result<Left, (Short, Moment)> {
        let watch = &self.words(|| stripe_hint).watch;
        let mut reading = watch.read_cached(time);
        let mut taken = self.take_by_hint(stripe_hint, permits, reading.latest);
        let is_unsure = || reading.earliest < self.deadline() && self.balance().free >= permits;
        if taken == Err(Short::Expired) && !reading.is_exact() && is_unsure() {
            reading = watch.read_exact(time);
            taken = self.take_by_hint(stripe_hint, permits, reading.latest);
        }
        match taken {
            Ok(left) => {
                if Watch::is_due(left.free, permits) {
                    watch.forget();
                }
                Ok(left)
            }
            Err(short) => Err((short, reading.earliest)),
        }
    }

    /// Spends `permits` from the stripe at `stripe_hint`, if the stripe has them and no other thread takes from it at
    /// the same instant. The coarse clock must still show `tick`, as it did at the last reading of the exact clock: for
    /// this stripe, or for all slots with the `shared` watch.
    #[inline(always)]
    pub fn spend_quickly(
        &self,
        stripe_hint: impl Fn() -> usize,
        shared: Option<&Watch>,
        permits: u64,
        tick: Tick,
        late_ns: u64,
    ) -> Quick {
        let words = self.words(stripe_hint);
        let Some(reading) = words.watch.known(shared, tick, late_ns) else { return Quick::Unsure };
        // First, because it needs no clock: too few permits are too few, whether the lease is over or not.
        let Some(seen) = words.word.see(permits) else {
            return if self.is_striped() { Quick::Unsure } else { Quick::Empty(reading.earliest) };
        };
        if self.check(reading.latest).is_err() {
            return Quick::Unsure;
        }
        let Some(left) = words.word.take_seen(seen, permits) else { return Quick::Unsure };
        if Watch::is_due(left, permits) {
            words.watch.forget();
        }
        Quick::Spent(left)
    }

    /// Returns the time, by the cheapest reading.
    pub fn read_cached<F: Fn() -> Moment>(&self, stripe_hint: usize, time: &Time<'_, F>) -> Reading {
        self.words(|| stripe_hint).watch.read_cached(time)
    }

    /// Spends `permits`, from the stripe at `stripe_hint` if it has them, when the time is at most `latest`.
    #[inline]
    fn take_by_hint(&self, stripe_hint: usize, permits: u64, latest: Moment) -> Result<Left, Short> {
        match self.stripes.get() {
            None => match (self.take_own(stripe_hint, permits, latest), self.stripes.get()) {
                // The slot was striped just now, and its permits moved to the stripes.
                (Err(Short::Empty), Some(stripes)) => {
                    self.take_striped(stripes, stripe_hint, permits, latest)
                }
                (taken, _) => taken,
            },
            Some(stripes) => self.take_striped(stripes, stripe_hint, permits, latest),
        }
    }

    #[inline]
    fn take_own(&self, stripe_hint: usize, permits: u64, latest: Moment) -> Result<Left, Short> {
        // First, because it needs no clock: too few permits are too few, whether the lease is over or not.
        if !self.own.word.has(permits) {
            return Err(Short::Empty);
        }
        self.check(latest)?;
        let took = self.own.word.take(permits).ok_or(Short::Empty)?;
        if took.clashed {
            self.clashes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(Left { free: took.left, stripe_hint })
    }

    #[inline]
    fn take_striped(
        &self,
        stripes: &Stripes,
        stripe_hint: usize,
        permits: u64,
        latest: Moment,
    ) -> Result<Left, Short> {
        self.check(latest)?;
        if let Some(took) = stripes.stripe(stripe_hint).words.word.take(permits) {
            // After a clash, the caller moves to the next stripe.
            return Ok(Left { free: took.left, stripe_hint: stripe_hint + usize::from(took.clashed) });
        }
        let found = stripes.sweep(&self.own.word, stripe_hint, permits).ok_or(Short::Empty)?;
        Ok(Left { free: found.took.left, stripe_hint: found.place.unwrap_or(stripe_hint) })
    }

    /// Sets `permits` aside: [`Slot::spend_held`] or [`Slot::put_back`] must follow.
    ///
    /// # Errors
    /// As [`Slot::take`].
    #[inline]
    pub fn hold(&self, permits: u64, now: Moment) -> Result<u64, Short> {
        self.check(now)?;
        // As in a spend: the slot may be striped at this moment.
        if self.stripes.get().is_none()
            && let Some(took) = self.own.word.hold(permits)
        {
            return Ok(took.left);
        }
        match self.stripes.get() {
            Some(stripes) if stripes.hold(&self.own.word, permits) => {
                Ok(stripes.balance(&self.own.word).free)
            }
            Some(_) | None => Err(Short::Empty),
        }
    }

    /// Spends what was set aside, and returns how many are still free.
    pub fn spend_held(&self, permits: u64) -> u64 {
        self.release(permits, false);
        self.balance().free
    }

    /// Frees what was set aside.
    pub fn put_back(&self, permits: u64) {
        self.release(permits, true);
        if let Some(stripes) = self.stripes.get() {
            stripes.put_in();
        }
    }

    /// Takes out `permits` that were set aside, and frees them if they go `back`.
    fn release(&self, permits: u64, back: bool) {
        let rest = permits - self.own.word.release(permits, back);
        if rest > 0 {
            // Another call took these out of the own word, and set aside as many in stripes. The word shows its change,
            // so this thread sees the stripes that it saw.
            let stripes = self.stripes.get().expect("permits that a call set aside stay set aside");
            stripes.release(&self.own.word, rest, back);
        }
    }

    /// Returns the permits in the slot. All others were spent or taken out.
    pub fn balance(&self) -> Balance {
        self.stripes.get().map_or_else(|| self.own.word.balance(), |stripes| stripes.balance(&self.own.word))
    }

    /// The instant at which the lease ends.
    pub fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Counts `permits` that a caller with this `stripe_hint` was refused.
    #[inline]
    pub fn refuse(&self, stripe_hint: usize, permits: u64) {
        let refused =
            self.stripes.get().map_or(&self.refused, |stripes| &stripes.stripe(stripe_hint).refused.0);
        refused.fetch_add(permits, Ordering::Relaxed);
    }

    /// As [`Slot::refuse`], after [`Slot::spend_quickly`] returned [`Quick::Empty`]: the slot is not striped, or was
    /// not a moment ago.
    #[inline(always)]
    pub fn refuse_unstriped(&self, permits: u64) {
        self.refused.fetch_add(permits, Ordering::Relaxed);
    }

    /// Permits refused so far, in total.
    pub fn refused(&self) -> u64 {
        let striped = self.stripes.get().map_or(&[][..], |stripes| stripes.all());
        let striped: u64 = striped.iter().map(|stripe| stripe.refused.0.load(Ordering::Relaxed)).sum();
        self.refused.load(Ordering::Relaxed) + striped
    }

    /// Adds `permits`, takes `lost` out again (as far as they are still free), and moves the deadline to
    /// `deadline` unless it is later already. Returns how many of `lost` were still there. One caller at a time.
    pub fn install(&self, permits: u64, lost: u64, deadline: Moment) -> u64 {
        let taken = match self.stripes.get() {
            None => self.own.word.add(permits, lost),
            Some(stripes) => {
                let of_new = lost.min(permits);
                let of_old = stripes.take_up_to(&self.own.word, lost - of_new);
                self.own.word.add(permits - of_new, 0);
                of_new + of_old
            }
        };
        // Pairs with the Acquire loads of spenders: see the type's docs.
        self.deadline.fetch_max(deadline.as_nanos(), Ordering::Release);
        if let Some(stripes) = self.stripes.get() {
            stripes.level(&self.own.word);
        }
        taken
    }

    /// Ends the lease, whatever its deadline, takes out all free permits, and returns their number. The next
    /// [`Slot::install`] sets the deadline anew. Its lease must be asked for after this, or outlast a reading of the
    /// clock after this. One caller at a time, the same as for [`Slot::install`].
    pub fn end(&self) -> u64 {
        // Before the next lease is installed: a thread that sees the new permits sees this too.
        self.deadline.store(0, Ordering::Release);
        self.shed(0)
    }

    /// Takes out all free permits beyond `keep`, and returns their number.
    pub fn shed(&self, keep: u64) -> u64 {
        match self.stripes.get() {
            None => self.own.word.take_up_to(u64::MAX, keep),
            Some(stripes) => {
                let surplus = stripes.balance(&self.own.word).free.saturating_sub(keep);
                stripes.take_up_to(&self.own.word, surplus)
            }
        }
    }

    /// Resets the slot: empty, with a lease that is over. Its stripes stay, empty too; a client uses the same number
    /// and worth of stripes for all its slots. No other thread may have the slot, and the caller orders how other
    /// threads come to see it afterwards.
    pub fn renew(&self) {
        self.deadline.store(0, Ordering::Relaxed);
        self.own.renew();
        self.clashes.store(0, std::sync::atomic::Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
        if let Some(stripes) = self.stripes.get() {
            stripes.renew();
        }
    }

    #[inline]
    fn words(&self, stripe_hint: impl Fn() -> usize) -> &StripeWords {
        self.stripes.get().map_or(&self.own, |stripes| &stripes.stripe(stripe_hint()).words)
    }

    /// Checks that the lease is live when the time is at most `latest`.
    #[inline]
    fn check(&self, latest: Moment) -> Result<(), Short> {
        // Pairs with the Release in `install`.
        if latest.as_nanos() >= self.deadline.load(Ordering::Acquire) { Err(Short::Expired) } else { Ok(()) }
    }
}

impl StripeWords {
    fn new() -> Self {
        StripeWords { word: Word::new(), watch: Watch::new() }
    }

    fn renew(&self) {
        self.word.renew();
        self.watch.renew();
    }
}

/// The operations of the refill; callers use the slot directly.
impl Permits for Slot {
    fn balance(&self) -> Balance {
        Slot::balance(self)
    }

    fn deadline(&self) -> Moment {
        Slot::deadline(self)
    }

    fn refused(&self) -> u64 {
        Slot::refused(self)
    }

    fn take(&self, permits: u64, now: Moment) -> Result<u64, Short> {
        Slot::take(self, permits, now)
    }

    fn spend_held(&self, permits: u64) -> u64 {
        Slot::spend_held(self, permits)
    }

    fn install(&self, permits: u64, lost: u64, deadline: Moment) -> u64 {
        Slot::install(self, permits, lost, deadline)
    }

    fn shed(&self, keep: u64) -> u64 {
        Slot::shed(self, keep)
    }

    fn end(&self) -> u64 {
        Slot::end(self)
    }
}

#[cfg(test)]
mod tests;
