//! An experiment that was given up, and is no part of the product: each thread spends from a part of a slot that only
//! it writes, with plain loads and stores. These rows measure its hits alone, without taking a part back.
//! `docs/design/client.md` tells why it was given up.

use crate::sample::Case;
use lessor_protocol::{CLOCK, CoarseClock, Moment};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Parts for threads. More than live at once, because each sample starts some threads.
const PLACES: usize = 64;

/// Permits that a part gets before the exact clock is read again: as many as in the shipped slot.
const SHARE: u64 = 512;

/// Assumed delay of the coarse clock, as in the shipped slot.
const LATE: Duration = Duration::from_millis(27);

/// A value of `armed` that no tick has.
const NONE: u64 = u64::MAX;

thread_local! {
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The permits that one thread spends from.
#[repr(align(128))]
struct Part {
    /// The tick in which the part may be spent. To take the part back, the refill would set it to [`NONE`], have all
    /// threads pass a barrier, and then read what is left.
    armed: AtomicU64,
    /// Written only by the thread of this part.
    left: AtomicU64,
}

struct Slot {
    clock: CoarseClock,
    /// Callers in line, which others must not overtake.
    queued: AtomicU64,
    parts: [Part; PLACES],
    deadline: Moment,
    free: Mutex<u64>,
}

impl Slot {
    /// Makes a slot with more permits than samples take, and a lease that outlasts them.
    fn new(clock: CoarseClock) -> Self {
        let part = |_| Part { armed: AtomicU64::new(NONE), left: AtomicU64::new(0) };
        Slot {
            clock,
            queued: AtomicU64::new(0),
            parts: std::array::from_fn(part),
            deadline: CLOCK.now() + Duration::from_secs(24 * 3600),
            free: Mutex::new(u64::MAX / 2),
        }
    }

    #[inline(always)]
    fn try_acquire(&self, permits: u64) -> bool {
        let tick = self.clock.tick().number();
        let Some(part) = self.parts.get(PLACE.get()) else { return self.try_slowly(permits, tick, false) };
        let left = part.left.load(Ordering::Relaxed);
        if left < permits || self.queued.load(Ordering::Relaxed) > 0 {
            return self.try_slowly(permits, tick, false);
        }
        part.left.store(left - permits, Ordering::Relaxed);
        // The barrier of all threads makes this a processor fence: it sees this store, or this thread sees `NONE`.
        compiler_fence(Ordering::SeqCst);
        part.armed.load(Ordering::Acquire) == tick || self.try_slowly(permits, tick, true)
    }

    /// Spends with the exact clock. With `took`, the permits are out of the part already, which was not armed for this
    /// tick.
    #[cold]
    fn try_slowly(&self, permits: u64, tick: u64, took: bool) -> bool {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if CLOCK.now() + LATE >= self.deadline || self.queued.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let part = &self.parts[place()];
        if !took {
            let more = SHARE.max(permits).min(*free);
            *free -= more;
            let left = part.left.load(Ordering::Relaxed) + more;
            part.left.store(left.saturating_sub(permits), Ordering::Relaxed);
        }
        part.armed.store(tick, Ordering::Release);
        true
    }
}

/// Index of this thread's part. The first thread takes all samples, and shares its part with no later thread.
fn place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if PLACE.get() == usize::MAX {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        PLACE.set(if next == 0 { 0 } else { 1 + next % (PLACES - 1) });
    }
    PLACE.get()
}

pub(super) fn cases() -> Vec<Case> {
    let Some(clock) = CoarseClock::try_new() else { return vec![] };
    let row = |name| {
        let slot = Slot::new(clock);
        Case::new(name, move || black_box(&slot).try_acquire(1))
    };
    vec![row("floor/own-part"), row("floor/own-part-2-threads").on_two_threads()]
}
