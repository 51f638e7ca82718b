//! How a caller tells the time cheaply. An exact reading is good while the coarse clock shows the same tick, and then
//! only for a few calls. Callers on a stripe share a reading, and callers of several slots may share one too. Nothing
//! here reads a clock.

use crate::sync::{AtomicU64, Ordering};
use lessor_protocol::{Moment, Tick};

/// Tick of a watch without a reading. No clock shows it.
const NONE: u64 = u64::MAX;

/// Tick of a stripe that has spent so much since the last exact reading that another one is due. No clock shows it.
const DUE: u64 = u64::MAX - 1;

/// Permits spent on a stripe after which the exact clock is read again, even if the coarse clock still shows the same
/// tick. It bounds what each stripe can spend too late if the coarse clock stands still for longer than its docs say.
/// It holds with a shared reading too, because the stripe is checked before the shared watch. It costs a twentieth of a
/// nanosecond a call; less would cost more than it is worth.
pub(super) const LOOK_EVERY: u64 = 512;

/// Assumed age of a reading within the current tick of the coarse clock, at most, in steps. One would do if every step
/// came in time. On a virtual machine, the processor that moves the clock may lack a core while ours has one. Linux
/// (since 5.18) notices after five of our timer interrupts, and moves the clock from there.
pub const LATE_STEPS: u32 = 6;

/// The time as far as a caller knows it: at least `earliest`, and at most `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The time that the exact clock showed.
    pub earliest: Moment,
    /// The latest time that the exact clock can show now.
    pub latest: Moment,
}

impl Reading {
    /// Makes a reading of the exact clock at `now`.
    pub fn exact(now: Moment) -> Self {
        Reading { earliest: now, latest: now }
    }

    pub(super) fn is_exact(self) -> bool {
        self.earliest == self.latest
    }
}

/// The sources from which a caller tells the time.
#[derive(Clone, Copy, Debug)]
pub struct Time<'a, F> {
    /// The tick of the coarse clock, read before anything else; `None` without such a clock.
    pub tick: Option<Tick>,
    /// Longest time, in nanoseconds, for which the coarse clock may show the same tick.
    pub late_ns: u64,
    /// The reading shared by callers of several slots.
    pub shared: Option<&'a Watch>,
    /// Reads the exact clock.
    pub exact: F,
}

/// The newest exact reading, and the tick that the coarse clock showed **before** it.
///
/// # Memory ordering
/// A reading is published before its tick (Release), so a thread that finds a tick (Acquire) finds that reading or a
/// newer one. Readings only rise: a thread that was stopped before it wrote an old one changes nothing.
#[derive(Debug)]
pub struct Watch {
    tick: AtomicU64,
    seen: AtomicU64,
}

impl Default for Watch {
    fn default() -> Self {
        Watch::new()
    }
}

impl Watch {
    /// Makes a watch without a reading.
    pub fn new() -> Self {
        Watch { tick: AtomicU64::new(NONE), seen: AtomicU64::new(0) }
    }

    /// See [`super::Slot::renew`].
    pub(super) fn renew(&self) {
        self.tick.store(NONE, Ordering::Relaxed);
        self.seen.store(0, Ordering::Relaxed);
    }

    /// Returns the time by the reading, if any, that was taken since the coarse clock moved to `tick`: on this stripe
    /// or, with `shared`, in any slot that shares the watch.
    #[inline(always)]
    pub(super) fn known(&self, shared: Option<&Watch>, tick: Tick, late_ns: u64) -> Option<Reading> {
        match shared {
            None => self.known_here(tick, late_ns),
            // A reading is due on this stripe: a shared one does not count.
            Some(_) if self.tick.load(Ordering::Acquire) == DUE => None,
            Some(shared) => shared.known_here(tick, late_ns),
        }
    }

    #[inline(always)]
    fn known_here(&self, tick: Tick, late_ns: u64) -> Option<Reading> {
        let known = self.tick.load(Ordering::Acquire);
        if known != tick.number() {
            return None;
        }
        let earliest = Moment::from_nanos(self.seen.load(Ordering::Relaxed));
        // 2^64 ns are 584 years.
        Some(Reading { earliest, latest: Moment::from_nanos(earliest.as_nanos().wrapping_add(late_ns)) })
    }

    /// As [`Watch::known`], with a new reading if needed.
    #[inline]
    pub(super) fn read_cached<F: Fn() -> Moment>(&self, time: &Time<'_, F>) -> Reading {
        let known = time.tick.and_then(|tick| self.known(time.shared, tick, time.late_ns));
        known.unwrap_or_else(|| self.read_exact(time))
    }

    /// Reads the exact clock, and notes the reading for other callers.
    #[cold]
    pub(super) fn read_exact<F: Fn() -> Moment>(&self, time: &Time<'_, F>) -> Reading {
        let now = (time.exact)();
        if let Some(tick) = time.tick {
            // Shared first: a thread that finds a reading noted here finds it in the shared watch, too.
            for watch in time.shared.into_iter().chain([self]) {
                watch.seen.fetch_max(now.as_nanos(), Ordering::AcqRel);
                // Pairs with the Acquire above.
                watch.tick.store(tick.number(), Ordering::Release);
            }
        }
        Reading::exact(now)
    }

    /// Whether a take of `permits` that left `left` crosses a multiple of [`LOOK_EVERY`], so that the exact clock
    /// should be read again.
    #[inline]
    pub(super) fn is_due(left: u64, permits: u64) -> bool {
        (left ^ (left + permits)) >= LOOK_EVERY
    }

    /// Makes the next caller read the exact clock.
    #[cold]
    pub(super) fn forget(&self) {
        self.tick.store(DUE, Ordering::Release);
    }
}
