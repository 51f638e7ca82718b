//! What this process may spend of one pool right now, in one atomic word, or in one for each thread that contends for
//! it. Callers take from it at every admission, one background task refills it; it never blocks or reads a clock.
//!
//! A permit leaves its word in the same compare-exchange that decides to admit. The deadline is checked at
//! every spend, against the latest that it can be, so a process that was stopped past it spends nothing
//! when it wakes. What passes between that check and the call's arrival at the vendor is the limit's `margin`.

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

/// Takes that met another one at the same word, between two looks of the background task, that make a slot striped. A few
/// are chance; threads that spend in a loop meet a thousand times in a millisecond.
const CLASHES: u32 = 64;

/// What a spend left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Permits that are free, in the word that it took from at least: in all of them, unless others took at once.
    pub free: u64,
    /// Where this caller should look first next time.
    pub stripe_hint: usize,
}

/// The permits in hand and the instant they end.
///
/// # Memory ordering
/// [`Slot::install`] changes the words before it moves the deadline (Release). A spender that sees the new deadline (Acquire)
/// therefore takes from words in which nothing of an ended lease is left. The deadline moves back in two places.
/// [`Slot::end`] moves it before the clock is read that the next lease must outlast. A thread that saw the old deadline also
/// told the time before that, and the next lease ends later. [`Slot::renew`] moves it where no other thread sees it. A
/// successful spend is AcqRel on its word: it is ordered with every other change of that balance.
#[derive(Debug)]
#[repr(align(64))]
pub struct Slot {
    /// Nanoseconds of the node's clock; nothing may be spent from this instant on. Written by `install` only.
    deadline: AtomicU64,
    /// There once threads contended. Set by the background task only.
    stripes: OnceLock<Box<Stripes>>,
    clashes: AtomicU32,
    /// All that there is while there are no stripes; where permits come in when there are.
    own: StripeWords,
    refused: AtomicU64,
}

/// What callers of one stripe take from, and how they tell the time.
#[derive(Debug)]
struct StripeWords {
    word: Word,
    watch: Watch,
}

/// What the quickest way to a permit comes to.
#[derive(Clone, Copy, Debug)]
pub enum Quick {
    /// It was spent, and so many are free where it was.
    Spent(u64),
    /// There is none, and it was this late at least.
    Empty(Moment),
    /// It takes a closer look, with [`Slot::spend`].
    Unsure,
}

impl Default for Slot {
    fn default() -> Self {
        Slot::new()
    }
}

impl Slot {
    /// An empty slot whose lease is over.
    pub fn new() -> Self {
        Slot {
            deadline: AtomicU64::new(0),
            stripes: OnceLock::new(),
            clashes: AtomicU32::new(0),
            own: StripeWords::new(),
            refused: AtomicU64::new(0),
        }
    }

    /// Gives threads words of their own from now on, a power of two of them, each worth having if it holds `worth`
    /// permits, and shares out what is in hand. Once and for all; the same caller that installs.
    pub fn stripe(&self, stripes: usize, worth: u64) {
        if stripes > 1 {
            let stripes = self.stripes.get_or_init(|| Box::new(Stripes::new(stripes, worth)));
            stripes.level(&self.own.word);
        }
    }

    /// Whether it is not striped, and threads have contended for it since [`Slot::is_contended`] was last asked.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.clashes.load(std::sync::atomic::Ordering::Relaxed) >= CLASHES && !self.is_striped()
    }

    /// The same; from now on it counts anew.
    pub fn is_contended(&self) -> bool {
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

    /// Spends `permits`, of the stripe `stripe_hint` the caller if that has them, by the cheapest reading of the `time` that
    /// will do. Says what is left, or why not and what the time was.
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

    /// Spends `permits` of the stripe `stripe_hint` the caller if the stripe has them and no other thread takes from it in the same
    /// instant. The coarse clock must still show `tick`, as it did when a caller read the exact one. That reading was for
    /// this stripe, or for all that have the `shared` watch.
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
        // First, for it needs no clock: there is nothing, whether the lease is over or not.
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

    /// The time, by the cheapest reading.
    pub fn read_cached<F: Fn() -> Moment>(&self, stripe_hint: usize, time: &Time<'_, F>) -> Reading {
        self.words(|| stripe_hint).watch.read_cached(time)
    }

    /// Spends `permits`, of the stripe `stripe_hint` the caller if that has them, when it is not later than `latest`.
    #[inline]
    fn take_by_hint(&self, stripe_hint: usize, permits: u64, latest: Moment) -> Result<Left, Short> {
        match self.stripes.get() {
            None => match (self.take_own(stripe_hint, permits, latest), self.stripes.get()) {
                // It was striped just now, and what was here is there.
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
        // First, for it needs no clock: there is nothing, whether the lease is over or not.
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
            // A caller that met another one leaves the stripe to it.
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
        // As a spend does: it may be striped just now.
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
        match self.stripes.get() {
            None => self.own.word.spend_held(permits),
            Some(stripes) => stripes.spend_held(&self.own.word, permits),
        }
    }

    /// Frees what was set aside.
    pub fn put_back(&self, permits: u64) {
        match self.stripes.get() {
            None => self.own.word.put_back(permits),
            Some(stripes) => stripes.put_back(&self.own.word, permits),
        }
    }

    /// What is in it. Whatever is not in it was spent or taken out.
    pub fn balance(&self) -> Balance {
        self.stripes.get().map_or_else(|| self.own.word.balance(), |stripes| stripes.balance(&self.own.word))
    }

    /// The instant its lease ends.
    pub fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Counts `permits` that a caller `stripe_hint` this stripe was refused.
    #[inline]
    pub fn refuse(&self, stripe_hint: usize, permits: u64) {
        let refused =
            self.stripes.get().map_or(&self.refused, |stripes| &stripes.stripe(stripe_hint).refused.0);
        refused.fetch_add(permits, Ordering::Relaxed);
    }

    /// The same of a caller that [`Slot::spend_quickly`] told that it is empty: then it is not striped, or was not just now.
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

    /// Ends the lease, whatever its deadline, takes out all that is free, and returns it. The next [`Slot::install`] sets the
    /// deadline anew: only for leases that are asked for from now on, or end after a reading of the clock from now on. One caller at
    /// a time, the same that installs.
    pub fn end(&self) -> u64 {
        // Before the next lease is installed: a thread that sees its permits sees this, too.
        self.deadline.store(0, Ordering::Release);
        self.shed(0)
    }

    /// Takes out whatever is free beyond `keep`, and returns it.
    pub fn shed(&self, keep: u64) -> u64 {
        match self.stripes.get() {
            None => self.own.word.take_up_to(u64::MAX, keep),
            Some(stripes) => {
                let surplus = stripes.balance(&self.own.word).free.saturating_sub(keep);
                stripes.take_up_to(&self.own.word, surplus)
            }
        }
    }

    /// Makes it as it was when it was new: empty, with a lease that is over. Stripes that it has stay, empty too. The client
    /// decides how many they are and what they are worth, the same for all its slots. Only for a caller that has the slot
    /// alone. That caller orders how other threads come to see it afterwards.
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

    /// Whether the lease is live when it is not later than `latest`.
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

/// What a refill changes; callers have the slot itself.
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
