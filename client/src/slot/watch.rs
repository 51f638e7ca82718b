//! How a caller tells the time cheaply: an exact reading is good for as long as a coarse clock shows the same, and then
//! only for a few calls. Callers on a stripe share what one of them has read, and those of many slots may do so too; nothing
//! here reads a clock.

use crate::sync::{AtomicU64, Ordering};
use lessor_protocol::{Moment, Tick};

/// No tick has this number: none was looked at.
const NONE: u64 = u64::MAX;

/// Nor has any this one: so much was spent here since the exact clock was read that it is to be read again.
const DUE: u64 = u64::MAX - 1;

/// Permits after which the exact clock is read again, though the coarse one shows the same: so many can be spent too late
/// on each stripe if the coarse clock stands still for longer than its docs say, by whose reading ever: what is due is noted
/// on the stripe, before what others share is looked at. It costs a twentieth of a nanosecond a call;
/// fewer would cost more than it is worth.
pub(super) const LOOK_EVERY: u64 = 512;

/// How late a reading may be that the coarse clock says is of its own step, in steps. One would do if every step came in
/// time. On a virtual machine the processor that moves the clock may be without a core for a while, while ours has one:
/// Linux (since 5.18) notices after five interrupts of ours, and moves the clock from there.
pub const LATE_STEPS: u32 = 6;

/// The time, as far as a caller has looked: not before `earliest`, and not after `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What the exact clock showed.
    pub earliest: Moment,
    /// What it shows now at most.
    pub latest: Moment,
}

impl Reading {
    /// The exact clock was just read.
    pub fn exact(now: Moment) -> Self {
        Reading { earliest: now, latest: now }
    }

    pub(super) fn is_exact(self) -> bool {
        self.earliest == self.latest
    }
}

/// How a caller tells the time.
#[derive(Clone, Copy, Debug)]
pub struct Time<'a, F> {
    /// What the coarse clock shows. It was read before anything else; `None` if there is none.
    pub tick: Option<Tick>,
    /// How long ago an exact reading may be that was taken while the coarse clock showed the same, in nanoseconds.
    pub late_ns: u64,
    /// What callers of other slots have read.
    pub shared: Option<&'a Watch>,
    /// Reads the exact clock.
    pub exact: F,
}

/// The newest exact reading, and what the coarse clock showed **before** it was taken.
///
/// # Memory ordering
/// A reading is published before its tick (Release), so a thread that finds a tick (Acquire) finds that reading or a newer
/// one. Readings only rise: a thread that was stopped before it wrote an old one changes nothing.
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
    /// A watch without a reading.
    pub fn new() -> Self {
        Watch { tick: AtomicU64::new(NONE), seen: AtomicU64::new(0) }
    }

    /// See [`super::Slot::renew`].
    pub(super) fn renew(&self) {
        self.tick.store(NONE, Ordering::Relaxed);
        self.seen.store(0, Ordering::Relaxed);
    }

    /// The time, by what was read since the coarse clock moved to `tick`, if anything was: for this stripe, or (`shared`) for
    /// others too.
    #[inline(always)]
    pub(super) fn known(&self, shared: Option<&Watch>, tick: Tick, late_ns: u64) -> Option<Reading> {
        match shared {
            None => self.known_here(tick, late_ns),
            // What others have read does not count here.
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

    /// The same, or by a new reading.
    #[inline]
    pub(super) fn read_cached<F: Fn() -> Moment>(&self, time: &Time<'_, F>) -> Reading {
        let known = time.tick.and_then(|tick| self.known(time.shared, tick, time.late_ns));
        known.unwrap_or_else(|| self.read_exact(time))
    }

    /// Reads the exact clock, for others too.
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

    /// `permits` were taken, and `left` are left: whether so many were since the exact clock was read that it should
    /// be read again.
    #[inline]
    pub(super) fn is_due(left: u64, permits: u64) -> bool {
        (left ^ (left + permits)) >= LOOK_EVERY
    }

    /// The next caller reads the exact clock.
    #[cold]
    pub(super) fn forget(&self) {
        self.tick.store(DUE, Ordering::Release);
    }
}
